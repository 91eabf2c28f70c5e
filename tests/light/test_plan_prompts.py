"""Prompt files."""

import pytest

from speccompile.bundle.prompts import read_prompts
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


def test_a_file_without_prompts_is_refused(write):
    with pytest.raises(PromptError, match=r"prompts\.jsonl: received no prompts, expected one a line"):
        read_prompts(write("\n \n"))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(PromptError, match=r"nowhere\.jsonl', expected a file: nothing lies there"):
        read_prompts(tmp_path / "nowhere.jsonl")
