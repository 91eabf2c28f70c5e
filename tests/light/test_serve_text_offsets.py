"""Offsets of tokens in an answer's text: only text that is there counts."""

import pytest

from speccompile.serving.http.text_offsets import TextOffsets
from speccompile.serving.http.tokens import TokenTexts
from tests.light.serve_example import toy_server, toy_text

SPECIAL = 256
"""A special token of the toy's tokenizer, which writes no text."""


def offsets(tokens, most=None, start=0):
    return TextOffsets(TokenTexts(toy_text()), [97], start).take(tokens, most)


def test_special_tokens_and_unfinished_characters_add_no_text():
    assert toy_text().decode([SPECIAL]) == ""
    a, b = toy_text().encode("ab", special_tokens=False)
    assert offsets([SPECIAL, a, SPECIAL, SPECIAL, b], start=3) == [3, 3, 4, 4, 4]
    emoji = toy_text().encode("\N{GRINNING FACE}", special_tokens=False)
    assert len(emoji) == 4
    assert offsets([a, *emoji, b]) == [0, 1, 1, 1, 1, 2]


def test_tokens_of_a_stop_string_lie_at_the_end_of_the_text():
    tokens = toy_text().encode("xyz", special_tokens=False)
    assert offsets(tokens, most=1) == [0, 1, 1]


def test_without_a_tokenizer_there_is_no_text():
    assert TextOffsets(TokenTexts(None), [1], 0).take([5, 6]) == [0, 0]


@pytest.mark.parametrize("text", ["def main(", "\u00e9\N{GRINNING FACE}", "<s>a</s>"])
def test_detokenize_takes_what_tokenize_gives(text):
    with toy_server(vocabulary_size=200) as running:  # fewer rows than the tokenizer has tokens
        tokens = running.post("/tokenize", prompt=text, add_special_tokens=False).json["tokens"]
        assert max(tokens) >= 200 or text.isascii()
        said = running.post("/detokenize", tokens=tokens)
    assert said.status == 200
    assert said.json["prompt"] == text.replace("<s>", "").replace("</s>", "")
