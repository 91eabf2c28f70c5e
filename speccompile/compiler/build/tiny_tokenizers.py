"""Tokenizers for small models whose drafter has another one: nearly the same texts, under other ids."""

import json
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from speccompile.compiler.checkpoints.facts import TOKENIZER
from speccompile.drafters.token_map import Tokenizer, TokenizerPair
from speccompile.runtime.text.token_bytes import BYTE_LETTERS

SHIFT = 5
"""Distance between the ids of one text in both tokenizers."""
_OWN = 2
"""Tokens of two letters that only one of them has."""


def tiny_tokenizers(size: int, folder: Path) -> TokenizerPair:
    """Write tokenizers with `size` tokens each into `folder`: letters, and two tokens of their own."""
    letters = [*BYTE_LETTERS][: size - _OWN]
    pairs = list(zip(letters[::2], letters[1::2], strict=False))[:_OWN]
    ours = letters + [one + other for one, other in pairs]
    theirs = letters + [other + one for one, other in pairs]
    shifted = [theirs[(token + SHIFT) % size] for token in range(size)]
    return TokenizerPair(_written(ours, folder / "target.tokens"), _written(shifted, folder / "drafter.tokens"))


def _written(names: list[str], folder: Path) -> Tokenizer:
    folder.mkdir()
    model = {"type": "BPE", "vocab": {name: token for token, name in enumerate(names)}, "merges": []}
    (folder / TOKENIZER).write_text(json.dumps({"model": model, "pre_tokenizer": {"type": "ByteLevel"}}))
    return Tokenizer(folder, len(names))


@torch.no_grad()
def shift_tokens(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """Give a copy of the target the ids of the drafter's tokenizer, in place, and return it."""
    for weight in {model.get_input_embeddings().weight, model.get_output_embeddings().weight}:
        weight.copy_(weight.roll(-SHIFT, 0))
    return model
