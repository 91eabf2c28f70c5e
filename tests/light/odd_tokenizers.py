"""Tokenizers as people have them: ids without a token, two tokens of one id, ids that the library does not take."""

import json
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

WORDS = ["<pad>", "<s>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]


def added(index: int, content: str, **flags: bool) -> dict[str, Any]:
    """Return an added token as a `tokenizer.json` has it; special unless the flags say otherwise."""
    names = ("single_word", "lstrip", "rstrip", "normalized")
    return {"id": index, "content": content, "special": True} | dict.fromkeys(names, False) | flags


def odd_tokenizer(step: int, *tokens: dict[str, Any], more: dict[str, int] | None = None) -> str:
    """Return a `tokenizer.json` of bytes, whose ids are `step` apart. tokens: added ones; more: of its vocabulary."""
    vocabulary = {word: step * place for place, word in enumerate(WORDS)} | (more or {})
    made = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return json.dumps(json.loads(made.to_str()) | {"added_tokens": tokens})


ODD = {
    "holes between all ids": odd_tokenizer(2, added(4, "</s>")),
    "an added token in a hole that has an id already": odd_tokenizer(2, added(4, "</s>"), added(900, "<x>")),
    "a hole before the added tokens": odd_tokenizer(1, added(300, "<x>"), added(400, "<y>")),
    "one text twice": odd_tokenizer(1, added(260, "<x>"), added(261, "<x>", special=False)),
    "one id twice": odd_tokenizer(1, added(260, "<x>"), added(260, "<y>")),
    "two texts of one id": odd_tokenizer(1, more={"A": 5, "ab": 262}),
    "a letter that is special": odd_tokenizer(1, added(69, "a"), added(261, "<x>")),
    "tokens that begin alike": odd_tokenizer(1, added(260, "<x>"), added(261, "<x>y"), added(262, "b", special=False)),
}
