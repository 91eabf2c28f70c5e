"""Data that cannot be learnt from: one error that says where it stands, what it is and what was expected."""

import subprocess
import sys

import pytest

from speccompile.errors import BuildError, MissingPackageError, RecipeError
from speccompile.train.data.prepare import prepare, prepare_prompts
from tests.light.train_data_example import MARKED, UNMARKED, chat, plan, tokenizer, write_lines

USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("kind", "row", "words"),
    [
        ("text", {"prompt": "x"}, "received the keys 'prompt', expected {\"text\": "),
        ("text", {"text": 5}, "received int under 'text', expected text"),
        ("text", {"text": "\ud800"}, "as character 0 of 'text', expected text that UTF-8 can hold"),
        ("text", {"text": "a", "token_ids": [1]}, "received 'text' and 'token_ids'"),
        ("text", "x", "received x, expected"),
        ("text", {"token_ids": [1, 2, 4096, 3]}, "received the token id 4096, expected one of the target's, from 0 to"),
        ("text", {"token_ids": [1, 2, -1]}, "received the token id -1"),
        ("text", {"token_ids": [1, True]}, "expected a list of token ids"),
        ("prompts", {"text": ["x"]}, "received list under 'text'"),
        ("prompts", {"prompt": "x"}, "received a prompt without an answer"),
        ("prompts", {"prompt": "x", "answer": "y", "completion": "y"}, "received two answers"),
        ("conversations", {"text": "x"}, "received the keys 'text', expected {\"messages\": "),
        ("conversations", {"messages": []}, "expected {\"messages\": "),
        ("conversations", {"messages": [USER, "x"]}, "message 2: received x"),
        ("conversations", {"messages": [USER, {"role": "assistant"}]}, "message 2: received {\"role\": \"assistant\"}"),
        ("conversations", {"messages": [{"from": "nobody", "value": "x"}]}, "received 'from' nobody, expected one of"),
        ("text", {"token_ids": [1, 10**30]}, f"received the token id {10**30}"),
        ("conversations", {"messages": [{"from": ["human"], "value": "x"}]}, '\'from\' ["human"], expected one'),
        ("conversations", {"messages": [{"from": "gpt", "value": 5}]}, "received int under 'value'"),
        (
            "conversations",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "received parts of image_url, expected text alone",
        ),
        ("conversations", {"messages": [USER | {"content": [{"type": ["text"]}]}]}, 'received parts of ["text"]'),
    ],
)  # fmt: skip
def test_rows(tmp_path, kind, row, words):
    good = {"text": {"text": "a = b + c"}, "prompts": {"prompt": "a =", "answer": "b + c"}, "conversations": chat(1)}
    file = write_lines(tmp_path / "data.jsonl", [good[kind], good[kind], row])
    with pytest.raises(RecipeError) as raised:
        prepare(plan([file], kind), tokenizer(MARKED), tmp_path / "work")
    assert str(raised.value).startswith(f"{file}, line 3")
    assert words in str(raised.value)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', "line 2: expected JSON"),
        ("a.jsonl", b'{"text": "x"}\n{"text": "\xff"}\n', "line 2: received byte 0xff"),
        ("a.json", b'[{"text": "a = b + c"}, {"tex": 1}]', "row 2: received the keys 'tex'"),
        ("a.parquet", b"no table", "expected a table in Parquet"),
        ("a.parquet", b"PAR1" + bytes(8) + (8).to_bytes(4, "little") + b"PAR1", "expected a table in Parquet"),
        ("a.txt", b"abc\nd\xe9f\n", "line 2: byte 0xe9 is no UTF-8"),
    ],
)
def test_files(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((RecipeError, BuildError)) as raised:
        prepare(plan([tmp_path / name]), tokenizer(), tmp_path / "work")
    assert str(raised.value).startswith(str(tmp_path / name))
    assert words in str(raised.value)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["nowhere/x.jsonl"], "received 'nowhere/x.jsonl': nothing lies there"),
        (["nowhere/*.txt"], "received the pattern 'nowhere/*.txt', which no file has"),
        (["owner/one", "owner/two"], "received 'owner/one': nothing lies there"),
        (["{folder}"], "expected data in it: .jsonl"),
    ],
)
def test_names(tmp_path, files, words):
    (tmp_path / "image.png").write_bytes(b"x")
    with pytest.raises(RecipeError) as raised:
        prepare(plan([name.format(folder=tmp_path) for name in files]), tokenizer(), tmp_path / "work")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("text", {"text": "a = b + c"}),
        ("prompts", {"token_ids": [1, 2], "answer": "words"}),
        ("conversations", chat(1)),
    ],
)
def test_words_need_a_tokenizer(tmp_path, kind, row):
    file = write_lines(tmp_path / "data.jsonl", [row])
    with pytest.raises(RecipeError, match=r"data.jsonl, line 1: received words, expected token ids") as raised:
        prepare(plan([file], kind), None, tmp_path / "work")
    assert "token_ids" in raised.value.hint


def test_text_is_no_conversation(tmp_path):
    (tmp_path / "a.txt").write_text("hello\n")
    with pytest.raises(RecipeError, match=r"a.txt, from line 1: received text, expected a table of conversations"):
        prepare(plan([tmp_path / "a.txt"], "conversations"), tokenizer(MARKED), tmp_path / "work")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (None, "it has none"),
        (UNMARKED, "does not mark answers: expected {% generation %}"),
        (f"{MARKED}\n{{% for", "a chat template that cannot be read, line "),
    ],
)
def test_templates(tmp_path, template, words):
    file = write_lines(tmp_path / "chats.jsonl", [chat(number) for number in range(5)])
    with pytest.raises(RecipeError) as raised:
        prepare(plan([file], "conversations"), tokenizer(template), tmp_path / "work")
    assert words in str(raised.value)
    assert raised.value.hint
    if template is None:
        with pytest.raises(RecipeError, match="expected a chat template in the target's tokenizer: it has none"):
            prepare_prompts(plan([file], "conversations", answers="bundle"), tokenizer(None), tmp_path / "work")


def test_template_that_refuses(tmp_path):
    strict = "{% if messages[0].role != 'user' %}{{ raise_exception('users begin') }}{% endif %}" + MARKED
    rows = [chat(1), {"messages": chat(2)["messages"][1:]}]
    file = write_lines(tmp_path / "chats.jsonl", rows)
    with pytest.raises(RecipeError, match="line 2: the chat template does not take this conversation: users begin"):
        prepare(plan([file], "conversations"), tokenizer(strict), tmp_path / "work")


def test_masks_that_are_all_empty(tmp_path):
    """Refuse data of which nothing is learnt, as in EAGLE's issue 286."""
    rows = [{"messages": [USER, {"role": "bot", "content": "an answer"}]} for _ in range(9)]
    file = write_lines(tmp_path / "chats.jsonl", rows)
    with pytest.raises(RecipeError) as raised:
        prepare(plan([file], "conversations"), tokenizer(MARKED), tmp_path / "work")
    assert "nothing is left to learn: 9 documents read, 0 texts" in str(raised.value)
    assert "9 skipped with nothing to learn" in str(raised.value)
    assert "{% generation %}" in raised.value.hint


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"document": "00000000000000ff", "prompt_ids": [1], "answer_ids": [5, 9999, 7]}, "the token id 9999"),
        ({"document": 5, "prompt_ids": [1], "answer_ids": [5, 6, 7]}, "the document 5, expected 16"),
        ({"prompt_ids": [1]}, 'expected {"document": "..", "prompt_ids": [..], "answer_ids": [..]}'),
    ],
)
def test_answers(tmp_path, line, words):
    file = write_lines(tmp_path / "prompts.jsonl", [{"prompt": "x"}])
    good = {"document": "00000000000000aa", "prompt_ids": [1], "answer_ids": [5, 6, 7]}
    answers = write_lines(tmp_path / "answers.jsonl", [good, line])
    with pytest.raises(RecipeError) as raised:
        prepare(plan([file], "prompts", answers="bundle"), tokenizer(), tmp_path / "work", answers)
    assert str(raised.value).startswith(f"{answers}, line 2: received ")
    assert words in str(raised.value)


def test_without_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = write_lines(tmp_path / "texts.jsonl", [{"text": "a = b + c"}])
    with pytest.raises(MissingPackageError, match="without pyarrow, expected the extra 'train'") as raised:
        prepare(plan([file]), tokenizer(), tmp_path / "work")
    assert raised.value.hint == "pip install 'speccompile[train]'"


def test_files_are_found_without_torch():
    code = "import sys, speccompile.recipe.training_files; print({'torch', 'datasets', 'pyarrow'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
