"""Freeze rotary frequencies that would change with the sequence length."""

from typing import Any

import torch
from torch import Tensor, nn

from speccompile.errors import UnsupportedModelError


def freeze_positions(model: nn.Module, max_length: int) -> None:
    """Freeze rotary frequencies that would change with the sequence to those of the first `max_length` positions.

    `dynamic` scaling and `longrope` switch their frequencies once a sequence outgrows a number of positions. Cached
    keys would then have other frequencies than the queries, so a larger `max_length` raises UnsupportedModelError.
    """
    for name, module in model.named_modules():
        rope_type = getattr(module, "rope_type", None)
        kinds = rope_type if isinstance(rope_type, dict) else {None: str(rope_type)}
        changing = {layer: kind for layer, kind in kinds.items() if kind == "longrope" or "dynamic" in kind}
        for layer, kind in changing.items():
            limit = _constant_positions(module, layer, kind)
            if max_length > limit:
                raise UnsupportedModelError(
                    f"{type(model).__name__}: rope scaling {kind!r} in {name} changes its frequencies beyond {limit} "
                    f"positions, and cache.max_length is {max_length}",
                    hint=f"set cache.max_length to {limit} or less",
                )
        if changing:
            _freeze(model, name, max_length, kinds | dict.fromkeys(changing, "default"))


def _constant_positions(module: nn.Module, layer: str | None, kind: str) -> int:
    """Return the number of positions up to which transformers (modeling_rope_utils) keeps the frequencies."""
    if kind == "longrope":
        parameters = module.config.rope_parameters
        return int((parameters if layer is None else parameters[layer])["original_max_position_embeddings"])
    return int(getattr(module, f"{layer}_max_seq_len_cached", module.max_seq_len_cached))


def _freeze(model: nn.Module, name: str, max_length: int, kinds: dict[Any, str]) -> None:
    """Set these rope types, by layer type, in a rotary module, and prove that its output is unchanged."""
    module = model.get_submodule(name)

    def angles(length: int) -> list[Tensor]:
        arguments = [torch.zeros(1, 1), torch.arange(length)[None]]
        return [part for layer in kinds for part in module(*arguments, *([] if layer is None else [layer]))]

    few, all_positions = angles(min(2, max_length)), angles(max_length)
    module.rope_type = kinds.get(None, kinds)
    for early, late, frozen in zip(few, all_positions, angles(max_length), strict=True):
        if not (_near(early, frozen[:, : early.shape[1]]) and _near(late, frozen)):
            raise UnsupportedModelError(
                f"{type(model).__name__}: rope scaling in {name} is not constant over {max_length} positions",
                hint="only rope scaling as in transformers' modeling_rope_utils can be compiled",
            )


def _near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=1e-6)
