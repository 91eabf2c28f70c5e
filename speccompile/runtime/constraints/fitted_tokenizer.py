"""Tokenizer with exactly the tokens that llguidance can count, ids from 0 on without holes, each with a row, and with
spaces as it knows them."""

import json
from typing import Any

_FILLER = "<|no token {}|>"


def fitted(text: str, rows: int) -> str:
    """Return a `tokenizer.json` that has a token at each id up to its last one, and none from id `rows` on.

    A model without a row for a token never gives it, as the image token of Gemma 3 1B: what it would have written is
    then made of other tokens. llguidance takes the number of tokens for the first id that is none: so an id that no
    token has becomes a special token, which no constraint allows. It reads which letter stands for a space from a
    Replace step of the decoder alone: so that stands for Metaspace.

    Raise ValueError, LookupError, TypeError or AttributeError for a text that is no tokenizer.
    """
    file = json.loads(text)
    decoder = _with_plain_spaces(file.get("decoder"))
    if decoder != file.get("decoder"):
        file["decoder"] = decoder
        text = json.dumps(file)
    model = file["model"]
    vocabulary: dict[str, int] | list[Any] = model["vocab"]
    added = list(file.get("added_tokens") or ())
    ids = {each["id"] for each in added}
    ids |= set(vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary)))
    kept = {each for each in ids if each < rows}
    holes = [each for each in range(max(kept, default=-1) + 1) if each not in kept]
    if len(kept) == len(ids) and not holes:
        return text
    added = [each for each in added if each["id"] < rows] + [_special(index) for index in holes]
    if isinstance(vocabulary, dict):
        tokens = {index: token for token, index in vocabulary.items() if index < rows}
        tokens |= {each["id"]: each["content"] for each in added}  # in the vocabulary as well, they keep their ids
        vocabulary = {token: index for index, token in tokens.items()}
    else:  # of Unigram: pairs of token and score, in the order of their ids, without holes
        vocabulary = vocabulary[:rows]
    model["vocab"] = vocabulary
    if "merges" in model:
        model["merges"] = _merges(model)
    return json.dumps(file | {"added_tokens": added, "post_processor": None})  # which may name tokens that are left out


def _with_plain_spaces(decoder: Any) -> Any:
    """Return a decoder with Replace in place of Metaspace."""
    if not isinstance(decoder, dict):
        return decoder
    if decoder.get("type") == "Metaspace":
        return {"type": "Replace", "pattern": {"String": decoder["replacement"]}, "content": " "}
    if decoder.get("type") == "Sequence":
        return decoder | {"decoders": [_with_plain_spaces(each) for each in decoder["decoders"]]}
    return decoder


def _special(index: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": _FILLER.format(index), "special": True, **flags}


def _merges(model: dict[str, Any]) -> list[Any]:
    """Return the merges of BPE whose three tokens are in the vocabulary."""
    known, prefix = model["vocab"], len(model.get("continuing_subword_prefix") or "")
    pairs = ((merge, merge.split(" ", 1) if isinstance(merge, str) else merge) for merge in model["merges"])
    return [
        merge for merge, (left, right) in pairs if left in known and right in known and left + right[prefix:] in known
    ]
