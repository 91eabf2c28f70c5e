"""MXFP4, as in GPT-OSS: X_blocks uint8 [E, N, groups, 16], X_scales uint8 [E, N, groups], for the weight X [E, K, N].

    weight[e, k, n] = e2m1(four bits of blocks[e, n, g]) * 2 ** (scales[e, n, g] - 127)       g = k // 32

The low half of a byte comes first. transformers.integrations.mxfp4, `convert_moe_packed_tensors`; e2m1: OCP
Microscaling Formats, section 5.3.3.
"""

from math import prod

from speccompile.compiler.weights.quantized.packed import E2M1, Packed, nibbles
from speccompile.compiler.weights.quantized.scaled import Groups, QuantizedRows, Scaled
from speccompile.compiler.weights.quantized.tensor_pool import CheckpointTensors, scales_of
from speccompile.compiler.weights.source import LazyWeight, Stacked

_MARK, _SCALES = "_blocks", "_scales"
_GROUP, _AXES = 32, 4


def find(stock: CheckpointTensors) -> dict[str, LazyWeight]:
    return {name: _weight(stock, name) for name in stock.names_with_suffix(_MARK)}


def _weight(stock: CheckpointTensors, name: str) -> LazyWeight:
    blocks, scales = stock.packed(f"{name}{_MARK}", "U8"), stock.packed(f"{name}{_SCALES}", "U8", "F8_E8M0")
    if len(blocks.shape) != _AXES or blocks.shape[-1] * 2 != _GROUP:
        raise stock.wrong(f"{name}{_MARK}", blocks, "U8 [experts, outputs, groups, 16]")
    stock.check(f"{name}{_SCALES}", scales, blocks.shape[:-1])
    experts = [_Mxfp4(blocks.select(index), scales.select(index)) for index in range(blocks.shape[0])]
    return Stacked([expert.transpose((1, 0)) for expert in experts])


class _Mxfp4(Scaled):
    """One expert [N, K]. Two mantissa bits and an exponent: bfloat16 holds all of its values."""

    def __init__(self, blocks: Packed, scales: Packed) -> None:
        shape = (blocks.shape[0], prod(blocks.shape[1:]) * 2)
        super().__init__(shape, Groups(_GROUP), {"blocks": blocks, "scales": scales}, "bfloat16")

    def codes(self, part: slice) -> QuantizedRows:
        blocks = self._made_of["blocks"].rows(part)
        numbers = E2M1[nibbles(blocks.reshape(len(blocks), -1))]
        return QuantizedRows(numbers.T, scales_of(self._made_of["scales"], part).T, None)
