"""Graphs of one node of the kernels, and what is put in: sizes, and numbers that show where sums go wrong."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from speccompile.compiler.lower.native import DOMAIN, VERSION, layouts
from tests.compile import kernel_reference as reference
from tests.compile.kernel_reference import Array, Floats

EXTREMES = [
    0.0, -0.0, 1e-45, -1.1754942e-38, 1.1754944e-38, 9.9999994e-31, 1e-30, -1e-20, 1.0, -127.0, 1e20, 1e38,
    -3.4028235e38, np.inf, -np.inf, np.nan,
]  # fmt: skip
"""The ends of float32, what is below its normal numbers, and both sides of where a block counts as zeros."""

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def quick(examples: int) -> settings:
    """Draw a number of examples, the same ones every time."""
    return settings(max_examples=examples, derandomize=True)


def drawn(few: int, many: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test of a check that draws from `data`: few examples in the first tier, many in the second."""

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        @pytest.mark.parametrize("count", [few, pytest.param(many, marks=pytest.mark.sweep("more examples"))])
        @wraps(check)
        def test(count: int, **others: Any) -> None:
            def once(data: st.DataObject) -> None:
                check(data=data, **others)

            quick(count)(given(data=st.data())(once))()

        others = [each for name, each in signature(check).parameters.items() if name != "data"]
        own = Parameter("count", Parameter.KEYWORD_ONLY)
        test.__signature__ = Signature([*others, own])  # type: ignore[attr-defined]
        return test

    return decorate


def graph(
    op: str,
    inputs: Mapping[str, Any],
    outputs: int = 1,
    *,
    feeds: Mapping[str, type] | None = None,
    **attributes: object,
) -> onnx.ModelProto:
    """Make a graph of one node. inputs: in its order, an array for what is a constant, None for what is fed; feeds:
    what is no float32. Outputs are y0, y1 .."""
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, list(inputs), names, domain=DOMAIN, **attributes)
    types = {name: helper.np_dtype_to_tensor_dtype(np.dtype((feeds or {}).get(name, np.float32))) for name in inputs}
    fed = [helper.make_tensor_value_info(name, types[name], None) for name in inputs if inputs[name] is None]
    constants = [numpy_helper.from_array(value, name) for name, value in inputs.items() if value is not None]
    found = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    imports = [helper.make_opsetid("", 24), helper.make_opsetid(DOMAIN, VERSION)]
    return helper.make_model(
        helper.make_graph([node], "one", fed, found, constants), opset_imports=imports, ir_version=10
    )


def values(draw: st.DrawFn, *shape: int, kinds: tuple[str, ...] = ("any", "ends", "halves", "extremes")) -> Floats:
    """Draw float32 of a shape [.., K]. Ends: every magnitude is the same, so all are 127 in eight bits; halves: such as
    are rounded to even; extremes: some of EXTREMES, and a row of zeros."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    kind = draw(st.sampled_from(kinds))
    if kind == "ends":
        signs = random.choice([-1, 1], shape) if draw(st.booleans()) else np.full(shape, draw(st.sampled_from([-1, 1])))
        return (signs * draw(st.sampled_from([1e-20, 0.1, 1.0, 3e38]))).astype(np.float32)
    if kind == "halves":
        halves = (random.integers(-253, 254, shape) / 2).astype(np.float32)
        halves[..., 0] = 127
        return halves
    x: Floats = (random.standard_normal(shape) * draw(st.sampled_from([1e-3, 1.0, 50.0]))).astype(np.float32)
    if kind == "extremes":
        flat = x.reshape(-1)
        for value in draw(st.lists(st.sampled_from(EXTREMES), max_size=5)):
            flat[draw(st.integers(0, flat.size - 1))] = value
        if draw(st.booleans()):
            x.reshape(-1, shape[-1])[draw(st.integers(0, flat.size // shape[-1] - 1))] = 0
    return x


def sizes(parts: tuple[int, int], deep: tuple[int, int, int] = (64, 70, 10)) -> st.SearchStrategy[tuple[int, int, int]]:
    """Draw rows, depth and columns: small ones, many rows, great depths, and as many columns as threads share.

    parts: the depth and the least columns of the last."""
    depth, columns = parts
    return st.one_of(
        st.tuples(st.integers(1, 20), st.integers(1, 140), st.integers(1, 70)),
        st.tuples(st.integers(1, 64), st.integers(1, 40), st.integers(1, 40)),
        st.tuples(st.integers(5, 14), st.integers(deep[0], deep[1]), st.integers(1, deep[2])),
        st.tuples(st.integers(1, 18), st.integers(depth - 30, depth), st.integers(columns, columns + 70)),
    )


class Linear(NamedTuple):
    """A linear layer: its graph, whose input is x, and what it computes, by the reference."""

    model: onnx.ModelProto
    product: Any
    """x -> y"""


def linear_int8(depth: int, columns: int, random: np.random.Generator, *, ends: bool, bias: Floats | None) -> Linear:
    weight = integers(random, -128, 127, (depth, columns), ends=ends).astype(np.int8)
    scales = scales_of(random, columns)
    model = graph(
        "LinearInt8",
        {
            "x": None,
            "numbers": layouts.packed_int8(lambda part: weight[:, part], depth, columns),
            "scales": layouts.padded_columns(scales),
            "bias": no_bias(bias),
        },
        columns=columns,
        depth=depth,
    )
    return Linear(model, lambda x: reference.product_int8(x, weight, scales, bias))


def linear_int4(
    depth: int, columns: int, random: np.random.Generator, *, ends: bool, bias: Floats | None, block: int
) -> Linear:
    blocks = -(-depth // block)
    codes, zero_points = (
        integers(random, 0, 15, (rows, columns), ends=ends).astype(np.uint8) for rows in (depth, blocks)
    )
    scales = (random.standard_normal((blocks, columns)) * 0.1).astype(np.float16)
    scales.reshape(-1)[random.integers(scales.size, size=3)] = [6e-8, 65504, 0]  # its smallest and its largest
    weight = reference.Blocks(codes, zero_points, scales, scales_of(random, columns), block)
    model = graph(
        "LinearInt4",
        {
            "x": None,
            "numbers": layouts.packed_int4(lambda part: weight.codes[:, part], depth, columns, block),
            "scales": layouts.packed_blocks(weight.scales, np.dtype(np.float16)),
            "zero_points": layouts.packed_blocks(weight.zero_points, np.dtype(np.uint8)),
            "factors": layouts.padded_columns(weight.factors),
            "bias": no_bias(bias),
        },
        columns=columns,
        depth=depth,
        block_size=block,
    )
    return Linear(model, lambda x: reference.product_int4(x, weight, bias))


def linear_codes(
    bits: int, depth: int, columns: int, random: np.random.Generator, *, ends: bool, bias: Floats | None, block: int,
    has_offsets: bool,
) -> Linear:  # fmt: skip
    """Draw a layer in codes. depth: of whole blocks. Codes in four bits have any zero point; those in eight are -128 to
    127."""
    zero_point = int(random.integers(16)) if bits == 4 else 128
    codes = integers(random, 0, 15 if bits == 4 else 255, (depth, columns), ends=ends).astype(np.uint8)
    scales, offsets = (np.stack([scales_of(random, columns) for _ in range(depth // block)]) for _ in range(2))
    weight = reference.Codes(codes.astype(np.int64) - zero_point, scales, offsets if has_offsets else None)

    def numbers(part: slice) -> Array:
        return codes[:, part] if bits == 4 else (codes[:, part] ^ np.uint8(128)).view(np.int8)

    packed = layouts.packed_int4 if bits == 4 else layouts.packed_int8
    model = graph(
        f"LinearBlocks{bits}",
        {
            "x": None,
            "numbers": packed(numbers, depth, columns, block),
            "scales": layouts.packed_blocks(scales, np.dtype(np.float32)),
            "offsets": layouts.packed_blocks(offsets, np.dtype(np.float32)) if has_offsets else layouts.NO_OFFSETS,
            "bias": no_bias(bias),
        },
        columns=columns,
        depth=depth,
        block_size=block,
        zero_point=zero_point,
    )
    return Linear(model, lambda x: reference.product_codes(x, weight, bias))


def linear_floats(weight: Floats, dtype: np.dtype[Any], *, bias: Floats | None) -> Linear:
    rounded = weight.astype(dtype).astype(np.float32)
    model = graph(
        {np.dtype(np.float32): "LinearFloat32", BFLOAT16: "LinearBFloat16"}[dtype],
        {"x": None, "weight": layouts.packed_floats(weight, dtype), "bias": no_bias(bias)},
        columns=weight.shape[1],
        depth=len(weight),
    )
    return Linear(model, lambda x: reference.product_floats(x, rounded, bias))


def integers(random: np.random.Generator, first: int, last: int, shape: tuple[int, int], *, ends: bool) -> Array:
    """Return any; or the first and the last alone, of which two columns in three have only one."""
    if not ends:
        return random.integers(first, last + 1, shape)
    kinds = np.arange(shape[1]) % 3
    return np.where(kinds == 0, last, np.where(kinds == 1, first, random.choice([first, last], shape)))


def scales_of(random: np.random.Generator, columns: int) -> Floats:
    """Draw scales: a column in eight has a power of two far from one, with either sign."""
    return (random.standard_normal(columns) * np.exp2(random.choice([0] * 14 + [-90, 60], columns))).astype(np.float32)


def no_bias(bias: Floats | None) -> Floats:
    return np.zeros(1, np.float32) if bias is None else bias
