"""Freeze rotary frequencies that would change with the sequence length."""

from typing import Any

import torch
from torch import Tensor, nn

from speccompile.errors import UnsupportedModelError

LONGROPE = "longrope"


def freeze_positions(model: nn.Module, max_length: int) -> None:
    """Freeze rotary frequencies that would change with the sequence to those of a sequence of `max_length` positions.

    `dynamic` scaling and `longrope` switch their frequencies once a sequence outgrows a number of positions. Cached
    keys would then have other frequencies than the queries. So `longrope` has one set for all positions, that of
    `max_length`, as in vLLM and llama.cpp; `dynamic` has another one for every length, and a larger `max_length` than
    its number raises UnsupportedModelError.
    """
    for name, module in model.named_modules():
        rope_type = getattr(module, "rope_type", None)
        kinds = rope_type if isinstance(rope_type, dict) else {None: str(rope_type)}
        changing = {layer: kind for layer, kind in kinds.items() if kind == LONGROPE or "dynamic" in kind}
        first = 2
        for layer, kind in changing.items():
            limit = _constant_positions(module, layer, kind)
            if max_length > limit and kind != LONGROPE:
                raise UnsupportedModelError(
                    f"{type(model).__name__}: rope scaling {kind!r} in {name} changes its frequencies beyond {limit} "
                    f"positions, and cache.max_length is {max_length}",
                    hint=f"set cache.max_length to {limit} or less",
                )
            first = max(first, limit + 1) if max_length > limit else first
        if changing:
            _freeze(model, name, (first, max_length), kinds | dict.fromkeys(changing, "default"))


def _constant_positions(module: nn.Module, layer: str | None, kind: str) -> int:
    """Return the number of positions up to which transformers (modeling_rope_utils) keeps the frequencies."""
    if kind == LONGROPE:
        parameters = module.config.rope_parameters
        return int((parameters if layer is None else parameters[layer])["original_max_position_embeddings"])
    return int(getattr(module, f"{layer}_max_seq_len_cached", module.max_seq_len_cached))


def _freeze(model: nn.Module, name: str, lengths: tuple[int, int], kinds: dict[Any, str]) -> None:
    """Set these rope types, by layer type, in a rotary module, and prove that its output is that for sequences of any
    of these lengths."""
    module = model.get_submodule(name)
    first, last = lengths

    def angles(length: int) -> list[Tensor]:
        arguments = [torch.zeros(1, 1), torch.arange(length)[None]]
        return [part for layer in kinds for part in module(*arguments, *([] if layer is None else [layer]))]

    few, all_positions = angles(min(first, last)), angles(last)
    module.rope_type = kinds.get(None, kinds)
    for early, late, frozen in zip(few, all_positions, angles(last), strict=True):
        if not (_near(early, frozen[:, : early.shape[1]]) and _near(late, frozen)):
            raise UnsupportedModelError(
                f"{type(model).__name__}: rope scaling in {name} is not constant over {last} positions",
                hint="only rope scaling as in transformers' modeling_rope_utils can be compiled",
            )


def _near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=1e-6)
