"""Layers whose recurrence is not a separate function in transformers: patches of their modules, by class name."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.compiler.step.recurrent_state import RecurrentStates


@contextmanager
def _griffin(current: RecurrentStates, block: Any, layer: int) -> Iterator[None]:
    """Patch RecurrentGemma's block: a convolution, then the RG-LRU (De et al. 2024, arXiv 2402.19427), whose every
    channel is a head of one value with its own decay.

    The unit's gates are one linear layer per head. transformers computes them as a batched product, for which ONNX
    Runtime gives other results with one row than with several.
    """
    unit = block.rg_lru

    def convolution(hidden: Tensor) -> Tensor:
        current.asked["conv"] = layer, 0
        rows = current.convolve(hidden.transpose(1, 2)[:, None], block.conv_1d.weight[:, 0])[:, 0]
        return (rows + block.conv_1d.bias).transpose(1, 2)

    def gate(heads: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return a gate: heads [B, T, H, D], weight [H, D, D], bias [H, D] -> [B, T, H D]."""
        parts = [functional.linear(heads[:, :, head], weight[head].T, bias[head]) for head in range(heads.shape[2])]
        return torch.sigmoid(torch.cat(parts, 2))

    def recur(activations: Tensor, position_ids: Tensor) -> Tensor:
        """Run the RG-LRU over activations [B, T, C]. position_ids int64 [B, T]: the first token of a text is not
        scaled."""
        current.asked["state"] = layer, 0
        heads = activations.unflatten(2, (unit.num_attention_heads, -1))
        decay = -8.0 * gate(heads, unit.recurrent_gate_weight, unit.recurrent_gate_bias)
        decay = decay * functional.softplus(unit.recurrent_param)
        left = torch.where(position_ids[:, :, None] == 0, 1.0, (1 - torch.exp(2 * decay)).sqrt())
        values = activations * gate(heads, unit.input_gate_weight, unit.input_gate_bias) * left
        rows = [each.float().transpose(1, 2)[..., None] for each in (values, decay)]
        ones = torch.ones_like(rows[0][:, :1])
        return current.recur(ones, [ones, *rows])[..., 0].transpose(1, 2).to(activations.dtype)

    def forward(*args: Any, use_cache: bool, **more: Any) -> Any:
        """Run the block without its own states."""
        return type(block).forward(block, *args, use_cache=False, **more)

    with (
        patched_attribute(block, "forward", forward),
        patched_attribute(block.conv_1d, "forward", convolution),
        patched_attribute(unit, "forward", recur),
    ):
        yield


def _lightning(current: RecurrentStates, attention: Any, layer: int) -> AbstractContextManager[None]:
    """Patch MiniMax's lightning attention (Qin et al. 2024, arXiv 2401.04658), linear attention with a constant decay
    per head. Its module computes the attention in blocks; the patch calls the same projections before and after it."""

    def forward(hidden_states: Tensor, *args: object, **more: object) -> tuple[Tensor, None]:
        batch, width, _ = hidden_states.shape
        projected = attention.act_fn(attention.qkv_proj(hidden_states))
        heads = projected.reshape(batch, width, attention.num_attention_heads, -1).transpose(1, 2).float()
        query, key, value = heads.chunk(3, 3)
        current.asked["state"] = layer, 0
        decay = -attention.slope_rate[None].expand(batch, -1, width, -1)
        context = current.recur(query, [key, value, decay]).transpose(1, 2).flatten(2).to(hidden_states.dtype)
        gate = torch.sigmoid(attention.output_gate(hidden_states))
        return attention.out_proj(gate * attention.norm(context)), None

    return patched_attribute(attention, "forward", forward)


PATCHES: dict[str, Callable[[RecurrentStates, Any, int], AbstractContextManager[None]]] = {
    "RecurrentGemmaRecurrentBlock": _griffin,
    "MiniMaxLightningAttention": _lightning,
}
"""Class of a module -> its patch, a context manager of (pass, module, layer number)."""


def patched_layers(model: nn.Module) -> Iterator[tuple[int, nn.Module]]:
    """Yield (layer, module) for all modules of a model that are named in `PATCHES`."""
    for holder in model.modules():
        if isinstance(holder, nn.ModuleList):
            for layer, each in enumerate(holder):
                yield from ((layer, part) for part in each.children() if type(part).__name__ in PATCHES)
