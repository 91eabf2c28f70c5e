"""How many bytes weights take in the forms that bundles store them in, by the shapes in a checkpoint's headers.

The forms are those of `speccompile.compiler.lower.quantize`, which has the table of what goes into what.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from speccompile.compiler.checkpoints.quantization import Quantization
from speccompile.compiler.checkpoints.weights import BITS
from speccompile.plan.plan import EnginePlan

LAYER, HEAD, TABLE, OTHER = "layer", "head", "table", "other"
"""What a weight is: any linear layer, the scores of tokens, the rows of tokens, or what stays a float."""

FLOATS = {"float32": 32, "float16": 16, "bfloat16": 16}
"""Precisions that are dtypes -> bits of a number."""

_TABLES = re.compile(r"(?:.*\.)?(?:embed_tokens|wte|embed_in|word_embeddings|embeddings|embedding)\.weight")
_POSITIONS = re.compile(r"(?:.*\.)?(?:wpe|embed_positions|position_embeddings)\.weight")
_PACKED = (".qweight", ".weight_packed", "_blocks")
"""How names of tensors end that hold several numbers of a weight in one element."""
_BESIDE = (
    ".scales", ".qzeros", ".g_idx", ".weight_scale", ".weight_scale_inv", ".weight_zero_point", ".weight_shape",
    ".weight_g_idx", ".weight_global_scale", ".input_scale", ".input_global_scale", "_scales",
)  # fmt: skip
"""And of those that belong to a quantized weight."""


@dataclass(frozen=True)
class Weight:
    """A weight of a model. columns, depth: of all its matrices [depth, columns] together, for a linear layer; for
    anything else their product alone counts."""

    role: str
    columns: int
    depth: int

    @property
    def size(self) -> int:
        """Numbers in it."""
        return self.columns * self.depth


@dataclass(frozen=True)
class Packing:
    """How a matrix [K, N] is stored. bits: of a number. block: how many numbers of a column share a scale, 0 for all;
    beside: bytes for each block; column: bytes for each column. tile, fill: what N and K are filled up to multiples of.
    """

    bits: int
    block: int = 0
    block_bytes: float = 0
    column_bytes: int = 0
    tile: int = 1
    padding: int = 1

    def bytes_of(self, weight: Weight) -> float:
        columns = _round_up(weight.columns, self.tile)
        depth = _round_up(weight.depth, max(self.padding, self.block))
        blocks = depth // self.block if self.block else 0
        return columns * (depth * self.bits / 8 + blocks * self.block_bytes + self.column_bytes)


def find_weights(
    tensors: Iterable[tuple[str, str, tuple[int, ...]]], vocabulary_size: int, quantization: Quantization | None = None
) -> list[Weight]:
    """What tensors (name, dtype as safetensors calls it, shape) are to a language model. vocabulary_size: of its head
    and its table."""
    found = []
    for name, dtype, shape in tensors:
        is_packed = quantization is not None and name.endswith(_PACKED)
        if (name.endswith(_BESIDE) and quantization is not None) or not (is_packed or _is_float(dtype)):
            continue
        if is_packed:
            bits = quantization.bits if quantization is not None and quantization.bits else 4
            found.append(Weight(LAYER, prod(shape[:-1]), shape[-1] * BITS[dtype] // bits))
        else:
            found.append(_weight(name, shape, vocabulary_size))
    return found


def _is_float(dtype: str) -> bool:
    return dtype == "BF16" or (dtype.startswith("F") and not dtype.startswith(("F4", "F6")))


def _weight(name: str, shape: tuple[int, ...], vocabulary_size: int) -> Weight:
    if len(shape) < 2 or _POSITIONS.fullmatch(name):
        return Weight(OTHER, prod(shape), 1)
    if len(shape) == 2 and shape[0] >= vocabulary_size:
        return Weight(TABLE if _TABLES.fullmatch(name) else HEAD, *shape)
    return Weight(LAYER, prod(shape[:-1]), shape[-1])


def stored_bytes(weights: Iterable[Weight], layout: str, word: str, block_size: int, *, tied: bool) -> float:
    """Bytes of a model's weights in a layout (see `layout_of`) and a precision. tied: its head is its table, and no
    weight of its own counts."""
    found = list(weights)
    has_head = any(weight.role == HEAD for weight in found)
    total = 0.0
    for weight in found:
        if weight.role == HEAD and tied and any(each.role == TABLE for each in found):
            continue
        total += _packing(layout, word, block_size, weight.role).bytes_of(weight)
        if weight.role == TABLE and (tied or not has_head) and layout != NATIVE and word not in FLOATS:
            total += _packing(layout, word, block_size, HEAD).bytes_of(weight)  # the head has a copy in fewer bits
    return total


NATIVE, MATMUL_NBITS, QDQ = "native", "matmul_nbits", "qdq"

_BLOCKS_OF_8_BITS = 32


def layout_of(engine: EnginePlan) -> str:
    """How an engine's weights are stored."""
    if engine.provider == "cpu":
        return NATIVE
    return MATMUL_NBITS if (engine.backend, engine.provider) == ("onnxruntime", "cuda") else QDQ


def _packing(layout: str, word: str, block_size: int, role: str) -> Packing:
    if layout == NATIVE:
        return _native(word, block_size, role)
    if word in FLOATS:
        return Packing(FLOATS[word])
    if role in (TABLE, OTHER):
        return Packing(FLOATS["float16"])
    is_int4 = word == "int4" and role == LAYER
    if layout == MATMUL_NBITS:  # scales in float16, and zero points of 4 bits
        return Packing(4, block_size, 2.5) if is_int4 else Packing(8, _BLOCKS_OF_8_BITS, 2)
    return Packing(4, block_size, 2) if is_int4 else Packing(8, column_bytes=2)


def _native(word: str, block_size: int, role: str) -> Packing:
    """Tiles of sixteen columns."""
    if role == OTHER:
        return Packing(32)
    if word in FLOATS:
        return Packing(FLOATS[word], tile=1 if role == TABLE else 16)
    if word == "int4" and role == LAYER:
        return Packing(4, block_size, block_bytes=3, column_bytes=4, tile=16)
    return Packing(8, column_bytes=4, tile=16, padding=64)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
