"""Files -> texts: what is read, and which tokens are learnt."""

import json
import logging
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from transformers import AutoTokenizer

from speccompile.errors import RecipeError
from speccompile.train.answers import make_answers
from speccompile.train.data.prepare import check_sides, prepare, prepare_prompts
from speccompile.train.data.print_sample import print_sample
from tests import zoo
from tests.light.train_data_example import (
    MARKED,
    TARGET,
    TEXTS,
    UNMARKED,
    both,
    chat,
    learnt,
    plan,
    tokenizer,
    words,
    write_lines,
)  # fmt: skip


def write_as(form: str, folder: Path) -> list[Path | str]:
    rows = [{"text": text, "n": number} for number, text in enumerate(TEXTS)]
    if form == "jsonl":
        return [write_lines(folder / "texts.jsonl", rows)]
    if form == "json":
        (folder / "texts.json").write_text(json.dumps(rows))
        return [folder / "texts.json"]
    if form == "json lines":
        return [write_lines(folder / "texts.json", rows)]
    if form == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "texts.parquet")
        return [folder / "texts.parquet"]
    for number, text in enumerate(TEXTS):
        (folder / f"{number:02}.{('py', 'md', 'txt')[number % 3]}").write_text(text)
    return [folder] if form == "folder" else [folder / "*.py", folder / "*.md", folder / "?[0-9].txt"]


@pytest.mark.parametrize("form", ["jsonl", "json", "json lines", "parquet", "folder", "patterns"])
def test_texts_of_every_form_are_the_same(tmp_path, form):
    data = tmp_path / "data"
    data.mkdir()
    train, held = prepare(plan(write_as(form, data)), tokenizer(), tmp_path / "work")
    assert both((train, held)) == sorted(TEXTS)
    assert all(train.sample(number).learnt.all() for number in range(len(train)))
    plain = tmp_path / "plain"
    plain.mkdir()
    again = prepare(plan(write_as("jsonl", plain)), tokenizer(), tmp_path / "other")
    assert sorted(words(held)) == sorted(words(again[1]))


def test_hub_name(tmp_path, monkeypatch):
    import datasets

    asked = []

    def load(name, revision=None, split=None):
        asked.append((name, revision, split))
        if name != "owner/name":
            raise datasets.exceptions.DatasetNotFoundError("no such data set\nanywhere")
        return datasets.Dataset.from_list([{"text": text, "other": None} for text in TEXTS])

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", lambda *args, **options: None)
    assert both(prepare(plan(["owner/name@main"]), tokenizer(), tmp_path / "work")) == sorted(TEXTS)
    assert set(asked) == {("owner/name", "main", "train")}
    with pytest.raises(RecipeError, match=r"'owner/other': no such file, .*: no such data set$"):
        prepare(plan(["owner/other"]), tokenizer(), tmp_path / "work")


def test_hub_that_does_not_answer(tmp_path, monkeypatch, caplog):
    """Read the cache, and ask the Hub once."""
    import datasets

    def no_answer(*args, **options):
        raise OSError("Name or service not known")

    def load(name, **options):
        assert datasets.config.HF_HUB_OFFLINE
        return datasets.Dataset.from_list([{"text": text} for text in TEXTS])

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", no_answer)
    before = datasets.config.HF_HUB_OFFLINE
    assert both(prepare(plan(["owner/name"]), tokenizer(), tmp_path / "work")) == sorted(TEXTS)
    assert "owner/name: taken from the local cache: Name or service not known" in caplog.text
    assert datasets.config.HF_HUB_OFFLINE is before


def test_long_texts_are_split_on_one_side(tmp_path):
    long = ["".join(TEXTS[start:] + TEXTS[:start]) for start in range(12)]
    file = write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in long])
    train, held = prepare(plan([file], length=32), tokenizer(), tmp_path / "work")
    documents = [{corpus.sample(number).document for number in range(len(corpus))} for corpus in (train, held)]
    assert len(documents[0] | documents[1]) == 12
    assert not documents[0] & documents[1]
    assert all(documents)
    assert train.lengths.max() == 32
    joined = {}
    for corpus in (train, held):
        for number, piece in enumerate(words(corpus)):
            document = corpus.sample(number).document
            joined[document] = joined.get(document, "") + piece
    assert sorted(joined.values()) == sorted(long)


def test_large_file_is_one_document_and_read_in_pieces(tmp_path):
    line = "    self.assertEqual(first, second, msg)  # a line as any other\n"
    (tmp_path / "large.py").write_text(line * 40_000)  # 2.6 MB
    (tmp_path / "small.py").write_text("import os\nimport sys\n")
    train, held = prepare(plan(tmp_path.glob("*.py"), length=128), tokenizer(), tmp_path / "work")
    parts = {corpus.sample(number).document for corpus in (train, held) for number in range(len(corpus))}
    assert len(parts) == 2
    large = max(train, held, key=len)
    assert sum(text.count("assertEqual") for text in words(large)) >= 39_900


def test_what_a_tokenizer_puts_before_a_text_is_before_every_piece(tmp_path):
    from tokenizers.processors import TemplateProcessing

    begins = AutoTokenizer.from_pretrained(TARGET)
    begins.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    file = write_lines(tmp_path / "texts.jsonl", [{"text": text * 9} for text in TEXTS])
    train, _ = prepare(plan([file], length=16), begins, tmp_path / "work")
    samples = [train.sample(number).tokens for number in range(len(train))]
    assert {int(tokens[0]) for tokens in samples} == {0}
    assert not any((tokens[1:] == 0).any() for tokens in samples)
    assert max(map(len, samples)) == 16


def test_conversations_learn_what_the_template_marks(tmp_path):
    rows = [chat(number, turns=2) for number in range(20)]
    file = write_lines(tmp_path / "chats.jsonl", rows)
    train, held = prepare(plan([file], "conversations"), tokenizer(MARKED), tmp_path / "work")
    assert len(train) + len(held) == 20
    for shown, said in zip(words(train), learnt(train), strict=True):
        number = shown[len("<user>def f") :].partition("_")[0]
        assert shown.startswith(f"<user>def f{number}_0(\n<assistant>return {number}<|endoftext|>\n<user>")
        assert said == f"return {number}<|endoftext|>" * 2
    last, _ = prepare(plan([file], "conversations", last_turn=True), tokenizer(MARKED), tmp_path / "last")
    assert words(last) == words(train)
    assert all(said.count("return") == 1 for said in learnt(last))
    assert all(last.sample(number).learnt[-2] for number in range(len(last)))


def test_mask_is_transformers_own(tmp_path):
    file = write_lines(tmp_path / "chats.jsonl", [chat(number, turns=3) for number in range(5)])
    train, _ = prepare(plan([file], "conversations", length=256), tokenizer(MARKED), tmp_path / "work")
    for number in range(len(train)):
        text = train.sample(number)
        for row in range(5):
            made = tokenizer(MARKED).apply_chat_template(
                chat(row, turns=3)["messages"], return_dict=True, return_assistant_tokens_mask=True
            )
            if made["input_ids"] == text.tokens.tolist():
                assert made["assistant_masks"] == text.learnt.astype(int).tolist()
                break
        else:
            pytest.fail("no conversation has these tokens")


def test_share_gpt_is_the_same(tmp_path):
    said = {"user": "human", "assistant": "gpt"}
    rows = [chat(number) for number in range(10)]
    other = [
        {
            "id": "x",
            "conversations": [{"from": said[each["role"]], "value": each["content"]} for each in row["messages"]],
        }
        for row in rows
    ]
    pairs = [
        prepare(
            plan([write_lines(tmp_path / f"{name}.jsonl", lines)], "conversations"), tokenizer(MARKED), tmp_path / name
        )
        for name, lines in (("openai", rows), ("sharegpt", other))
    ]
    assert [words(corpus) for corpus in pairs[0]] == [words(corpus) for corpus in pairs[1]]


def test_given_answers_are_learnt(tmp_path):
    rows = [{"prompt": f"def f{number}(", "answer": f"self, a{number}):"} for number in range(10)]
    rows += [{"messages": chat(number)["messages"][:1], "completion": "return"} for number in range(10)]
    file = write_lines(tmp_path / "prompts.jsonl", rows)
    train, held = prepare(plan([file], "prompts"), tokenizer(MARKED), tmp_path / "work")
    assert len(train) + len(held) == 20
    for shown, said in zip(words(train), learnt(train), strict=True):
        assert shown.endswith(said)
        assert said == "return<|endoftext|>" if shown.startswith("<user>") else said.startswith("self, a")


def test_prompts_and_their_answers(tmp_path, caplog):
    caplog.set_level(logging.INFO, "speccompile")
    file = write_lines(tmp_path / "chats.jsonl", [chat(number, turns=2) for number in range(10)])
    apart = write_lines(tmp_path / "held.jsonl", [chat(number, turns=2) for number in (3, 77)])
    wanted = plan([file], "conversations", answers="bundle", held_out=apart)
    prompts = prepare_prompts(wanted, tokenizer(UNMARKED), tmp_path / "work")
    assert len(prompts) == 24
    assert len(prompts[:3]) == 3
    shown = [tokenizer().decode(ids) for _, ids in prompts]
    assert shown[0] == "<user>def f0_0(\n<assistant>"
    assert shown[1] == "<user>def f0_0(\n<assistant>return 0<|endoftext|>\n<user>def f0_1(\n<assistant>"
    rows = [{"document": name, "prompt_ids": ids, "answer_ids": [5, 6, 7, 0]} for name, ids in prompts]
    rows[5] = {"document": rows[5]["document"], "failed": "a reason"}
    answers = write_lines(tmp_path / "answers.jsonl", rows)
    train, held = prepare(wanted, tokenizer(UNMARKED), tmp_path / "work", answers)
    assert (len(train), len(held)) == (17, 4)  # document 3 is held out as well, one answer failed
    assert all(
        train.sample(number).tokens[train.sample(number).learnt].tolist() == [5, 6, 7, 0] for number in range(17)
    )
    assert "1 skipped without an answer" in caplog.text
    assert "2 texts are held out as well" in caplog.text
    last = prepare_prompts(
        plan([file], "conversations", answers="bundle", last_turn=True), tokenizer(UNMARKED), tmp_path
    )
    assert len(last) == 10


def test_passages_of_texts_leave_room_for_answers(tmp_path):
    file = write_lines(tmp_path / "texts.jsonl", [{"text": "".join(TEXTS)}, {"text": TEXTS[0]}])
    prompts = prepare_prompts(plan([file], length=32, max_new_tokens=12, answers="transformers"), tokenizer(), tmp_path)
    assert max(len(ids) for _, ids in prompts) == 20
    assert "".join(tokenizer().decode(ids) for _, ids in prompts) == "".join(TEXTS) + TEXTS[0]


@pytest.mark.parametrize("kind", ["text", "prompts"])
def test_answers_of_a_target(tmp_path, kind):
    """Follow a sample from the question to transformers' answer and the tokens that are learnt."""
    zoo.save("llama", tmp_path / "llama")
    ours = AutoTokenizer.from_pretrained(tmp_path / "llama")
    rows = [{"text": f"the self = {number}"} for number in range(12)]
    file = write_lines(tmp_path / "texts.jsonl", rows)
    keys = {"answers": "transformers", "target": tmp_path / "llama", "vocabulary": zoo.VOCABULARY, "max_new_tokens": 9}
    wanted = plan([file], kind, **keys)
    prompts = prepare_prompts(wanted, ours, tmp_path / "work")
    answers = make_answers(wanted, prompts, tmp_path / "answers")
    pair = prepare(wanted, ours, tmp_path / "work", answers)
    assert sum(map(len, pair)) == 12
    model = zoo.model("llama")
    for text in (corpus.sample(number) for corpus in pair for number in range(len(corpus))):
        begin = int(np.argmax(text.learnt))
        assert text.learnt.tolist() == [False] * begin + [True] * 9
        logits = model(torch.from_numpy(text.tokens.astype(np.int64))[None]).logits[0]
        assert logits.argmax(1)[begin - 1 : -1].tolist() == text.tokens[begin:].tolist()


def test_everything_is_counted(tmp_path, caplog):
    caplog.set_level(logging.INFO, "speccompile")
    rows = [chat(number) for number in range(12)]
    rows[1]["messages"] = rows[1]["messages"][:1]
    rows[2]["messages"][1]["content"] = "x = 1\n" * 99
    rows[3]["messages"][0]["content"] = "x = 1\n" * 99
    file = write_lines(tmp_path / "chats.jsonl", rows)
    prepare(plan([file], "conversations"), tokenizer(MARKED), tmp_path / "work")
    said = "12 documents read, 10 texts of"
    assert said in caplog.text
    assert "kept, 1 of them cut, 2 skipped with nothing to learn within the length" in caplog.text
    caplog.clear()
    prepare(plan([file], "conversations"), tokenizer(MARKED), tmp_path / "work")
    assert said in caplog.text
    assert "kept from before" in caplog.text


def test_packed_rows_are_refused(tmp_path):
    file = write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    with pytest.raises(RecipeError, match=r"train.data.packing: received 'packed', expected 'buckets'"):
        prepare(plan([file], packing="packed"), tokenizer(), tmp_path)


def test_sample_is_shown(tmp_path):
    file = write_lines(tmp_path / "chats.jsonl", [chat(number) for number in range(5)])
    train, _ = prepare(plan([file], "conversations"), tokenizer(MARKED), tmp_path / "work")
    shown = print_sample(train, tokenizer(), 1)
    number = words(train)[1][len("<user>def f") :].partition("_")[0]
    assert shown.endswith(f"\n<user>def f{number}_0(\n<assistant>⟦return {number}<|endoftext|>⟧\n")
    assert shown.startswith(f"text 1 of {len(train)}, ")
    long = write_lines(
        tmp_path / "long.jsonl", [{"prompt": "a = 1\n" * 200 + str(n), "answer": "b" * 9} for n in range(5)]
    )
    train, _ = prepare(plan([long], "prompts", length=2048), tokenizer(), tmp_path / "work")
    shown = print_sample(train, tokenizer())
    assert "⟦bbbbbbbbb<|endoftext|>⟧" in shown
    assert shown.partition("\n")[2].startswith("..")
    assert len(shown) < 1500


def test_token_ids_need_no_tokenizer(tmp_path):
    """Learn and show token ids as they are, of a target without a tokenizer."""
    rows = [{"token_ids": [number, 3, 1, 4]} for number in range(10)]
    learnt, held_out = prepare(plan([write_lines(tmp_path / "ids.jsonl", rows)]), None, tmp_path / "work")
    assert len(learnt) + len(held_out) == 10
    first = " ".join(map(str, learnt.sample(0).tokens))
    assert print_sample(learnt, None).endswith(f"⟦{first}⟧")
    asked = prepare_prompts(plan([tmp_path / "ids.jsonl"], answers="bundle"), None, tmp_path / "work")
    assert [prompt.tokens for prompt in asked] == [row["token_ids"] for row in rows]


@pytest.mark.parametrize(("count", "held_out"), [(1, 0.2), (10, "held.jsonl")])
def test_sides_are_checked_before_anything_is_answered(tmp_path, count, held_out):
    write_lines(tmp_path / "prompts.jsonl", [{"token_ids": [number, 3, 1]} for number in range(10)])
    write_lines(tmp_path / "held.jsonl", [{"token_ids": [99, 3, 1]}])
    wanted = plan(
        [tmp_path / "prompts.jsonl"], "prompts", answers="bundle", prompts=count,
        held_out=tmp_path / held_out if isinstance(held_out, str) else held_out,
    )  # fmt: skip
    asked = prepare_prompts(wanted, None, tmp_path / "work")
    check_sides(wanted, asked)
    with pytest.raises(RecipeError, match="none is left to be") as raised:
        check_sides(wanted, asked[:count])
    assert "train.data.answers.prompts" in raised.value.hint


def test_arrays_are_what_is_promised(tmp_path):
    file = write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    train, _ = prepare(plan([file]), tokenizer(), tmp_path / "work")
    text = train.sample(3)
    assert (text.tokens.dtype, text.learnt.dtype) == (np.int32, bool)
    assert len(text.document) == 16
