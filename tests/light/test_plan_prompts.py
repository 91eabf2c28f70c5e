"""Prompt files."""

import pytest

from speccompile.bundle.prompts import read_prompts, read_questions
from speccompile.errors import PromptError


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "prompts.jsonl"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_text_and_token_ids_in_order(write):
    content = '\ufeff{"prompt": "größe\u2028 \\n"}\r\n\n{"token_ids": [0, 5]}\n{"prompt": " "}'
    assert read_prompts(write(content)) == ["größe\u2028 \n", [0, 5], " "]


def test_other_keys_are_left_alone(write):
    content = '{"id": 7, "prompt": "a", "expected": ["b"]}\n{"token_ids": [3], "source": null, "text": "c"}'
    assert read_prompts(write(content)) == ["a", [3]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"def main(", r'line 2: received def main\(, expected \{"prompt": "text"\} or \{"token_ids": \[1, 2, 3\]\}'),
        (b'"text"', 'line 2: received "text", expected'),
        (b'{"text": "a"}', "line 2: received .*, expected"),
        (b'{"prompt": 3}', "line 2: received .*, expected"),
        (b'{"prompt": "a", "token_ids": [1]}', "line 2: received a prompt and token ids, expected one of the two"),
        (b'{"token_ids": [1.5]}', "line 2: received .*, expected"),
        (b'{"token_ids": [true]}', "line 2: received .*, expected"),
        (b'{"token_ids": [-1]}', "line 2: received .*, expected"),
        (b"x" * 100, r"line 2: received x{80}\.\.\., expected"),
        (b'{"token_ids": []}', "line 2: received no token ids, expected one token id or more"),
        (b'{"prompt": ""}', "line 2: received an empty prompt, expected text"),
        (b'{"prompt": "\\ud800"}', "line 2: received text that is not Unicode, expected text that UTF-8 can hold"),
        (b'{"prompt": "\xff"}', "line 2: received bytes that are not UTF-8, expected text"),
    ],
)
def test_a_line_in_no_form_is_refused(write, line, message):
    with pytest.raises(PromptError, match=message) as caught:
        read_prompts(write(b'{"prompt": "a"}\n' + line + b"\n"))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("line", "named", "medium"),
    [
        ('{"prompt": "What is this?", "image": "cat.png"}', "image", "image"),
        ('{"token_ids": [3], "image_url": "cat.png"}', "image_url", "image"),
        ('{"messages": [{"role": "user", "content": [{"type": "image", "url": "cat.png"}]}]}', "image", "image"),
        ('{"prompt": [{"type": "image_url", "image_url": {"url": "cat.png"}}]}', "image_url", "image"),
        ('{"prompt": [{"type": "input_audio", "input_audio": {"data": "AA=="}}]}', "input_audio", "audio"),
        ('{"question_id": 1, "category": "a", "turns": ["b"], "video": "cat.mp4"}', "video", "video"),
    ],
)
@pytest.mark.parametrize("read", [read_prompts, read_questions])
def test_images_and_the_like_are_refused_by_name(write, line, named, medium, read):
    message = rf"line 2: received '{named}', expected text or token ids alone: no {medium} is read$"
    with pytest.raises(PromptError, match=message) as caught:
        read(write('{"prompt": "a"}\n' + line))
    assert "the text decoder alone is compiled" in caught.value.hint


def test_pictures_of_a_prompt_are_for_bench_alone(write):
    with pytest.raises(PromptError, match="line 1: received 'images', expected text or token ids alone"):
        read_prompts(write('{"prompt": "What is this?", "images": ["cat.png"]}'))


def test_a_line_that_says_it_has_no_image_is_read(write):
    assert read_prompts(write('{"prompt": "image", "image": null, "images": [], "type": "text"}')) == ["image"]


def test_a_file_without_prompts_is_refused(write):
    with pytest.raises(PromptError, match=r"prompts\.jsonl: received no prompts, expected one a line"):
        read_prompts(write("\n \n"))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(PromptError, match=r"nowhere\.jsonl', expected a file: nothing lies there"):
        read_prompts(tmp_path / "nowhere.jsonl")
    with pytest.raises(PromptError, match="expected a file: it is a folder") as caught:
        read_prompts(tmp_path)
    assert "one prompt a line" in str(caught.value.hint)
