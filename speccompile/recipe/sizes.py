"""Compute the bytes of weights in the layouts that bundles store, from the shapes in a checkpoint's headers.

The layouts are those of `speccompile.compiler.lower.quantize`, which has the table of weights and layouts.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from speccompile.compiler.checkpoints.gguf.block_types import CODE_KINDS, EXPERTS, QUANTIZED, CodeKind, joined_kind
from speccompile.compiler.checkpoints.quantization import Quantization
from speccompile.compiler.checkpoints.weights import BITS
from speccompile.plan.plan import EnginePlan
from speccompile.plan.precisions import FLOATS, IN_BLOCKS, PRECISIONS, STORED, head_precision, round_up

LAYER, HEAD, TABLE, OTHER = "layer", "head", "table", "other"
"""Roles of weights: linear layer, output head, embedding table, or a weight that stays float."""

_TABLES = re.compile(r"(?:.*\.)?(?:embed_tokens|wte|embed_in|word_embeddings|embeddings|embedding)\.weight")
_POSITIONS = re.compile(r"(?:.*\.)?(?:wpe|embed_positions|position_embeddings)\.weight")
_PACKED = (".qweight", ".weight_packed", "_blocks")
"""Name suffixes of tensors that pack several numbers of a weight into one element."""
_BESIDE = (
    ".scales", ".qzeros", ".g_idx", ".weight_scale", ".weight_scale_inv", ".weight_zero_point", ".weight_shape",
    ".weight_g_idx", ".weight_global_scale", ".input_scale", ".input_global_scale", "_scales",
)  # fmt: skip
"""Name suffixes of the scales, zero points and other companions of a quantized weight."""


@dataclass(frozen=True)
class Weight:
    """A weight of a model. columns, depth: sizes of its matrices [depth, columns] together, for a linear layer; for
    other roles only their product counts. dtype: in the file; beside: of the weight that it is joined with, or none."""

    role: str
    columns: int
    depth: int
    dtype: str = "F32"
    beside: str = ""

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.columns * self.depth


@dataclass(frozen=True)
class Packing:
    """Storage layout of a matrix [K, N]. bits: per number. block: numbers of a column that share a scale, 0 for all;
    block_bytes: additional bytes per block; column_bytes: additional bytes per column. tile, padding: N is padded to a
    multiple of `tile`, K to one of `padding`.
    """

    bits: int
    block: int = 0
    block_bytes: float = 0
    column_bytes: int = 0
    tile: int = 1
    padding: int = 1

    def bytes_of(self, weight: Weight) -> float:
        columns = round_up(weight.columns, self.tile)
        depth = round_up(weight.depth, max(self.padding, self.block))
        blocks = depth // self.block if self.block else 0
        return columns * (depth * self.bits / 8 + blocks * self.block_bytes + self.column_bytes)


def find_weights(
    tensors: Iterable[tuple[str, str, tuple[int, ...]]], vocabulary_size: int, quantization: Quantization | None = None
) -> list[Weight]:
    """Return the weights of a language model, with roles, among tensors (name, dtype of safetensors, shape).
    vocabulary_size: of its head and its table."""
    found, tensors = [], list(tensors)
    types = {name: dtype for name, dtype, _ in tensors if EXPERTS in name}
    for name, dtype, shape in tensors:
        is_packed = quantization is not None and name.endswith(_PACKED)
        if (name.endswith(_BESIDE) and quantization is not None) or not (is_packed or _is_float(dtype)):
            continue
        if is_packed:
            bits = quantization.bits if quantization is not None and quantization.bits else 4
            found.append(Weight(LAYER, prod(shape[:-1]), shape[-1] * BITS[dtype] // bits))
        else:
            beside = types.get(_partner(name), "") if name in types else ""
            found.append(replace(_weight(name, shape, vocabulary_size), dtype=dtype, beside=beside))
    return found


def _partner(name: str) -> str:
    """Return the name of the weight of an expert that one is joined with, if it is joined: gate and up."""
    return name.replace("gate_proj", "up_proj") if "gate_proj" in name else name.replace("up_proj", "gate_proj")


def _is_float(dtype: str) -> bool:
    return dtype == "BF16" or dtype in QUANTIZED or (dtype.startswith("F") and not dtype.startswith(("F4", "F6")))


def _weight(name: str, shape: tuple[int, ...], vocabulary_size: int) -> Weight:
    if len(shape) < 2 or _POSITIONS.fullmatch(name):
        return Weight(OTHER, prod(shape), 1)
    if len(shape) == 2 and shape[0] >= vocabulary_size:
        return Weight(TABLE if _TABLES.fullmatch(name) else HEAD, *shape)
    return Weight(LAYER, prod(shape[:-1]), shape[-1])


def stored_bytes(weights: Iterable[Weight], layout: str, word: str, block_size: int, *, tied: bool) -> float:
    """Return the bytes of a model's weights in a layout (see `layout_of`) and a precision. tied: the head is the
    embedding table, so a separate weight of the head does not count."""
    found = list(weights)
    has_head = any(weight.role == HEAD for weight in found)
    total = 0.0
    for weight in found:
        if weight.role == HEAD and tied and any(each.role == TABLE for each in found):
            continue
        total += (_stored(weight) if word == STORED else _packing(layout, word, block_size, weight.role)).bytes_of(
            weight
        )
        if weight.role == TABLE and (tied or not has_head) and layout != NATIVE and word not in FLOATS:
            total += _packing(layout, word, block_size, HEAD).bytes_of(weight)  # the head has a copy in fewer bits
    return total


NATIVE, MATMUL_NBITS, QDQ = "native", "matmul_nbits", "qdq"

_BLOCKS_OF_8_BITS = 32


def layout_of(engine: EnginePlan) -> str:
    """Return the layout of an engine's weights."""
    if engine.provider == "cpu":
        return NATIVE
    return MATMUL_NBITS if (engine.backend, engine.provider) == ("onnxruntime", "cuda") else QDQ


def _packing(layout: str, word: str, block_size: int, role: str) -> Packing:
    if layout == NATIVE:
        return _native(word, block_size, role)
    if word in FLOATS:
        return Packing(PRECISIONS[word].bits)
    if role in (TABLE, OTHER):
        return Packing(PRECISIONS["float16"].bits)
    is_int4 = word == IN_BLOCKS and role == LAYER
    if layout == MATMUL_NBITS:  # scales in float16, and zero points of 4 bits
        return Packing(4, block_size, 2.5) if is_int4 else Packing(8, _BLOCKS_OF_8_BITS, 2)
    return Packing(4, block_size, 2) if is_int4 else Packing(8, column_bytes=2)


def _stored(weight: Weight) -> Packing:
    """Return the packing of a weight of a GGUF file whose codes stay as they are."""
    kind = stored_kind(weight)
    if kind is None:
        return Packing(16 if weight.dtype == "BF16" and weight.role != OTHER else 32, tile=16)
    return Packing(kind.bits, kind.block_size, kind.block_bytes, tile=16)


def stored_kind(weight: Weight) -> CodeKind | None:
    """Return how such a weight's codes are stored, None for floats."""
    if weight.dtype not in CODE_KINDS or weight.role == OTHER:
        return None
    return joined_kind(CODE_KINDS[each] for each in (weight.dtype, weight.beside) if each in CODE_KINDS)


def _native(word: str, block_size: int, role: str) -> Packing:
    """Return the packing of the native kernels: tiles of sixteen columns."""
    if role == OTHER:
        return Packing(32)
    row = PRECISIONS[word if role == LAYER else head_precision(word)]
    return Packing(
        row.bits, block_size if row.block_bytes else 0, row.block_bytes, row.column_bytes,
        1 if row.is_dtype and role == TABLE else 16, row.padding,
    )  # fmt: skip
