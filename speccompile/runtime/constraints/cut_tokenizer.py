"""Tokenizer without the tokens that the model has no row for."""

import json
from typing import Any


def with_rows(text: str, rows: int) -> str:
    """Return a `tokenizer.json` without its tokens from id `rows` on: such a model never gives these, as the image
    token of Gemma 3 1B. What they would have written is then made of other tokens.

    Raise ValueError, LookupError or TypeError for a text that is no tokenizer, or that has no tokens beyond.
    """
    file = json.loads(text)
    model = file["model"]
    vocabulary: dict[str, int] | list[Any] = model["vocab"]
    tokens = list(file.get("added_tokens") or ())
    kept = [token for token in tokens if token["id"] < rows]
    if isinstance(vocabulary, dict):
        model["vocab"] = {token: index for token, index in vocabulary.items() if index < rows}
    else:  # of Unigram: pairs of token and score, in the order of their ids
        model["vocab"] = vocabulary[:rows]
    if len(kept) == len(tokens) and len(model["vocab"]) == len(vocabulary):
        raise ValueError(f"it has no tokens beyond {rows}, and still is not taken")
    if "merges" in model:
        model["merges"] = _merges(model)
    return json.dumps(file | {"added_tokens": kept, "post_processor": None})  # which may name what is left out


def _merges(model: dict[str, Any]) -> list[Any]:
    """Return the merges of BPE whose three tokens are in the vocabulary."""
    known, prefix = model["vocab"], len(model.get("continuing_subword_prefix") or "")
    pairs = ((merge, merge.split(" ", 1) if isinstance(merge, str) else merge) for merge in model["merges"])
    return [
        merge for merge, (left, right) in pairs if left in known and right in known and left + right[prefix:] in known
    ]
