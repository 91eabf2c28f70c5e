"""Compare the weights of a neutral graph in another weight format with those of the model.

Graphs in one format agree even if its weights are wrong: only this check sees a quantizer's errors.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.lower.files import read_neutral
from speccompile.compiler.lower.native import layouts
from speccompile.compiler.lower.quantize.gemm import split_gemm
from speccompile.compiler.lower.quantize.heads import split_heads
from speccompile.compiler.lower.quantize.linear import find_linears
from speccompile.compiler.lower.quantize.native import JOINED
from speccompile.compiler.weights.graph import source_of
from speccompile.compiler.weights.source import LazyWeight
from speccompile.errors import ProofError
from speccompile.machine.parallel import in_parallel
from speccompile.plan.precisions import OWN_LAYOUTS, PRECISIONS
from speccompile.progress import progress_counter

Floats = NDArray[np.float32]

_LARGEST_ERROR = {
    **{row.suffix: row.largest_error for row in PRECISIONS.values() if row.suffix},
    "int4": 1 / 14,
    "float8e4m3fn": 1 / 16,
    "8bits": 1 / 115,
}
"""Storage of a weight, by its name suffix -> largest error of a number, relative to the largest one in its block.

Half a step, and a little for scales that are rounded to float16; a whole one for the blocks of MatMulNBits, whose
numbers extend further on one side. Each float is its own block.
"""

_TINY = 2e-5
"""Scales that float16 cannot hold turn numbers of about this size into zero."""

_AT_A_TIME = 1 << 17  # elements of a weight: half a megabyte, which a core keeps near


@dataclass(frozen=True)
class _Stored:
    """A weight [K, N] in another format. block_size: along K. restored: columns -> their dequantized floats."""

    name: str
    block_size: int
    restored: Callable[[slice], Floats]


@dataclass
class _Loss:
    """Loss of one weight: largest error of a number, relative to the largest one in its block; the sum of all errors;
    and the sum of all numbers."""

    largest: float = 0.0
    error: float = 0.0
    numbers: float = 0.0

    @staticmethod
    def of(error: Floats, wanted: Floats, largest: Floats) -> "_Loss":
        """Return that of some numbers. error and wanted: [K, n]. largest: of the block of each number."""
        relative = np.divide(error, largest, out=np.zeros_like(error), where=largest > 0)
        sums = (float(each.sum(dtype=np.float64)) for each in (error, np.abs(wanted)))
        return _Loss(float(relative.max()), *sums)

    @staticmethod
    def total(losses: "Sequence[_Loss]") -> "_Loss":
        """Return that of all numbers of some parts."""
        largest = max((loss.largest for loss in losses), default=0.0)
        return _Loss(largest, sum(loss.error for loss in losses), sum(loss.numbers for loss in losses))

    @staticmethod
    def row(losses: "Sequence[_Loss]") -> dict[str, Any]:
        total = _Loss.total(losses)
        return {
            "weights": len(losses),
            "kept": sum(loss.error == 0 for loss in losses),
            "largest_error": total.largest,
            "mean_error": total.error / total.numbers if total.numbers else 0.0,
        }


def check_weights(traced: Path, converted: Path, graph: str, precision: str) -> dict[str, Any]:
    """Compare the weights of a neutral graph in another format with those in float32, a few columns at a time.

    Both are ONNX files. The row reports the number of unchanged weights, the largest error of a number, relative to the
    largest one in its block, and the mean error, relative to the mean number. Raise ProofError naming the weight whose
    error is more than rounding.
    """
    before, after = read_neutral(traced), ir.load(converted)
    originals: dict[str, LazyWeight] = {
        name: source_of(tensor)
        for name, value in before.graph.initializers.items()
        if (tensor := value.const_value) is not None and tensor.dtype == ir.DataType.FLOAT
    }
    matrices = sum(len(each.shape) > 1 for each in originals.values())
    # An embedding has the format of the head that is, or could be, tied to it.
    originals |= {f"{name}.T": each.transpose((1, 0)) for name, each in originals.items() if len(each.shape) == 2}
    split_gemm(before)
    split_heads(before)
    originals |= {linear.weight.name: linear.weight.source_weight for linear in find_linears(before.graph)}
    losses = []
    with progress_counter(f"comparing weights of {graph}", matrices, "weights") as advance:
        for stored in _stored(after.graph):
            names, _, form = stored.name.rpartition(".")
            start = 0
            for name in names.split(JOINED) if form in _LARGEST_ERROR else ():
                if name in originals:
                    losses.append(_check(originals[name], stored, start, form, f"{graph} in {precision}"))
                    start += originals[name].shape[-1]
                    advance(1)
            del stored  # it reads mapped memory
    for tensor in _mapped(after.graph):
        tensor.release()
    return {"graph": graph, "level": "weights against the model's", "precision": precision, **_Loss.row(losses)}


def _mapped(graph: ir.Graph) -> list[ir.ExternalTensor]:
    """Return weights that are memory-mapped on reading. Until they are released their file counts as resident."""
    tensors = (value.const_value for value in graph.initializers.values())
    return [tensor for tensor in tensors if isinstance(tensor, ir.ExternalTensor)]


def _check(weight: LazyWeight, stored: _Stored, first: int, form: str, where: str) -> _Loss:
    """Compare a weight with the columns from `first` on."""
    limit, tiny = _LARGEST_ERROR[form], 0.0 if form in ("float32", "codes") else _TINY
    columns = weight.shape[-1]
    rows = weight.size // columns
    step = max(1, _AT_A_TIME // rows // layouts.TILE) * layouts.TILE if len(weight.shape) == 2 else columns

    def compare(part: slice) -> _Loss:
        wanted = weight.columns(part) if len(weight.shape) == 2 else weight.read_all().reshape(rows, columns)
        filled = np.pad(np.abs(wanted), ((0, -rows % stored.block_size), (0, 0)))
        largest = filled.reshape(-1, stored.block_size, wanted.shape[1]).max(axis=1)
        spread = largest.repeat(stored.block_size, axis=0)[:rows]
        allowed = 1.001 * limit * spread + tiny
        restored = stored.restored(slice(first + part.start, first + min(part.stop, columns)))
        error = np.abs(restored - wanted)
        if not (error <= allowed).all():
            raise ProofError(
                f"{where}: weight {stored.name} is off by {error.max():.3g} where the model's largest is "
                f"{largest.max():.3g}, expected at most {limit:.3g} of the largest value in each block of "
                f"{stored.block_size}",
                hint="weights were converted wrong: please report it with the recipe",
            )
        return _Loss.of(error, wanted, spread)

    parts = (slice(start, min(start + step, columns)) for start in range(0, columns, step))
    return _Loss.total(in_parallel(compare, parts))


def _stored(graph: ir.Graph) -> Iterator[_Stored]:
    """Yield every changed weight, once."""
    constants = graph.initializers
    seen: set[str] = set()
    for node in graph:
        place, read = _READERS.get(node.op_type, (0, None))
        weight = node.inputs[place] if read else None
        if read is None or weight is None or weight.name not in constants or weight.name in seen:
            continue
        seen.add(str(weight.name))
        yield read(node)
    for name, value in constants.items():
        if name not in seen and value.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16) and value.shape:
            yield _low(str(name), _array(value))


def _array(value: ir.Value | None) -> NDArray[Any]:
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    assert tensor is not None, "a quantized weight is constant"
    return tensor.numpy()


def _low(name: str, floats: NDArray[Any]) -> _Stored:
    matrix = floats.reshape(-1, floats.shape[-1])
    return _Stored(name, 1, lambda part: matrix[:, part].astype(np.float32))


def _by_scale(node: ir.Node) -> _Stored:
    """Read DequantizeLinear(numbers [K, N], scales [N], or [K / block_size, N])."""
    numbers, scales = _array(node.inputs[0]), _array(node.inputs[1]).astype(np.float32)
    axis, block = node.attributes.get_int("axis", 1), node.attributes.get_int("block_size", 0)

    def restored(part: slice) -> Floats:
        spread = scales.repeat(block, axis=axis) if block else np.expand_dims(scales, 1 - axis)
        factors = spread[:, part] if spread.shape[1] > 1 else spread
        product: Floats = numbers[:, part].astype(np.float32) * factors
        return product

    assert node.inputs[0] is not None
    return _Stored(str(node.inputs[0].name), block or len(numbers), restored)


def _packed(node: ir.Node) -> _Stored:
    """Read MatMulNBits(x, numbers uint8 [N, blocks, block_size * bits / 8], scales [N, blocks], zero points)."""
    numbers, scales, *zeros = (_array(value) for value in node.inputs[1:])
    rows, bits, block = (node.attributes[name].as_int() for name in ("K", "bits", "block_size"))

    def unpacked(some: NDArray[Any]) -> NDArray[Any]:
        return np.stack([some & 15, some >> 4], -1) if bits == 4 else some

    def restored(part: slice) -> Floats:
        factors = scales[part][..., None].astype(np.float32)
        codes = unpacked(numbers[part]).reshape(*factors.shape[:2], block).astype(np.float32)
        middle = unpacked(zeros[0][part]).reshape(len(codes), -1, 1)[:, : codes.shape[1]] if zeros else 128
        products: Floats = (codes - middle) * factors
        return products.reshape(len(codes), -1)[:, :rows].T

    assert node.inputs[1] is not None
    return _Stored(str(node.inputs[1].name), block, restored)


def _native(node: ir.Node) -> _Stored:
    """Read Linear..(x, numbers, .., bias) or Embed..(ids, numbers, ..): see `lower.quantize.formats`."""
    numbers, *beside = (_array(value) for value in node.inputs[1:])
    depth, form = node.attributes["depth"].as_int(), node.op_type.removeprefix("Linear").removeprefix("Embed")

    def restored(part: slice) -> Floats:
        # Tiles begin at every sixteenth column.
        start = part.start // layouts.TILE * layouts.TILE
        whole, wanted = slice(start, part.stop), slice(part.start - start, None)
        if form == "Int8":
            return layouts.unpacked_int8(numbers, depth, whole)[:, wanted] * beside[0][part]
        if form == "Int4":
            scales, zeros, factors = beside[0], beside[1], beside[2]
            block = node.attributes["block_size"].as_int()
            codes = layouts.unpacked_int4(numbers, whole)[:depth, wanted].astype(np.float32)
            middle = layouts.unpacked_blocks(zeros, whole)[:, wanted].repeat(block, axis=0)[:depth]
            steps = layouts.unpacked_blocks(scales, whole)[:, wanted].astype(np.float32) * factors[part]
            products: Floats = (codes - middle) * steps.repeat(block, axis=0)[:depth]
            return products
        if form.startswith("Blocks"):
            block, zero_point = (node.attributes[name].as_int() for name in ("block_size", "zero_point"))
            if form == "Blocks8":
                codes = layouts.unpacked_int8(numbers, depth, whole)[:, wanted].astype(np.float32)
            else:
                codes = layouts.unpacked_int4(numbers, whole)[:, wanted].astype(np.float32) - np.float32(zero_point)
            codes *= layouts.unpacked_blocks(beside[0], whole)[:, wanted].repeat(block, axis=0)
            if beside[1].size > 1:
                codes += layouts.unpacked_blocks(beside[1], whole)[:, wanted].repeat(block, axis=0)
            return codes
        return layouts.unpacked_floats(numbers, whole)[:, wanted]

    block_size = {"Int8": depth, "Float32": 1, "BFloat16": 1}.get(form) or node.attributes["block_size"].as_int()
    assert node.inputs[1] is not None
    return _Stored(str(node.inputs[1].name), block_size, restored)


_FORMS = (*(PRECISIONS[word].kernel for word in OWN_LAYOUTS), "Blocks4", "Blocks8")
_NATIVE = [f"{kind}{form}" for kind in ("Linear", "Embed") for form in _FORMS]

_READERS: dict[str, tuple[int, Callable[[ir.Node], _Stored]]] = {
    "MatMulNBits": (1, _packed),
    "DequantizeLinear": (0, _by_scale),
    **dict.fromkeys(_NATIVE, (1, _native)),
}
"""Operator -> the index of its weight input, and its reader."""
