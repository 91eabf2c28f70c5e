"""Bound on the text of tokens: no text is longer, and there is none where a tokenizer may drop text."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from speccompile.runtime.text.token_bytes import BYTE_LETTERS, longest_token_bytes

DEMO = Tokenizer.from_file(str(Path(__file__).resolve().parents[2] / "recipes/demo/target/tokenizer.json"))
MARKS = "e\u0301\u0327\u03b1\u0313\u0300\u0345"


def definition(tokenizer: Tokenizer) -> dict:
    return json.loads(tokenizer.to_str())


def byte_level(normalizer=None, added=(), drop=0, steps=()) -> Tokenizer:
    letters = list(BYTE_LETTERS)[drop:]
    made = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if normalizer is not None:
        made.normalizer = normalizer
    made.add_special_tokens(list(added))
    return made


@pytest.mark.parametrize("made", [DEMO, byte_level(), byte_level(normalizers.NFC())], ids=["demo", "bytes", "composed"])
@settings(max_examples=100, deadline=None)
@given(
    text=st.text(max_size=40) | st.text(alphabet=MARKS, max_size=40) | st.text(alphabet=" <|endoftext|>", max_size=60)
)
def test_no_text_is_longer_than_the_bound(made, text):
    tokens = made.encode(text, add_special_tokens=False).ids
    assert len(text.encode()) <= longest_token_bytes(definition(made)) * len(tokens)


@pytest.mark.parametrize("made", [
    byte_level(normalizers.Strip()), byte_level(normalizers.NFKC()), byte_level(drop=1),
    byte_level(added=[AddedToken("<mask>", lstrip=True)]),
    byte_level(steps=[pre_tokenizers.Split(" ", "removed")]), byte_level(steps=[pre_tokenizers.Whitespace()]),
    Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")), Tokenizer(models.BPE({"a": 0}, [])),
])  # fmt: skip
def test_a_tokenizer_that_may_drop_text_has_no_bound(made):
    assert longest_token_bytes(definition(made)) == 0
