"""Cases for the kernels: graphs of one node, and what goes in. Written once, on the machine that has the compiler.

    cases.py FOLDER        # CASE.onnx and CASE.npz, whose arrays are named RUN.INPUT

The first word of a case's name is its operator. Graphs have no bodies of the operators: without kernels none opens.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from case import Case
from coded_cases import adapter_cases, block_cases, code_cases, coded_attention
from inputs import EXTREMES, RANDOM, WINDOWS, Array, Floats, Maker, Runs, extreme, normal, runs_of
from onnx import helper
from state_cases import convolution_cases, number_cases, recurrence_cases

from speccompile.compiler.lower.native import DOMAIN, VERSION, layouts
from speccompile.compiler.lower.native.functions import functions

BLOCKS = (32, 64, 128)
EPSILON = 1e-5


def linear_cases() -> Iterator[Case]:
    """Yield linear layers. (depth, columns): less than a tile beside whole ones, more than is filled up, and more than
    the cache takes."""
    for depth, columns in ((96, 40), (300, 131), (1100, 72)):
        shape, bias = f"{depth}x{columns}", normal(columns) if depth > 96 else np.zeros(1, np.float32)  # none
        sizes = {"depth": depth, "columns": columns}
        weight = normal(depth, columns) * np.float32(0.1)
        weight[3, :4] = 1e-39, -0.0, 1e30, 65504  # a column with more would have nothing else
        runs = runs_of({"x": _rows_of(depth)}, "x")
        for name, dtype in (("LinearFloat32", np.float32), ("LinearBFloat16", ml_dtypes.bfloat16)):
            packed = layouts.packed_floats(weight, np.dtype(dtype))
            yield Case(f"{name} {shape}", ("x", "w", "b"), ("y",), {"w": packed, "b": bias}, runs, sizes)
        yield _int8_case(sizes, bias, shape, runs)
        for block in BLOCKS:
            yield _int4_case(sizes, block, bias, f"{shape}, blocks of {block}", runs)


def _rows_of(width: int) -> Maker:
    return lambda rows: normal(rows, width)


def _int8_case(sizes: dict[str, int], bias: Floats, shape: str, runs: Runs) -> Case:
    scales = _scales(sizes["columns"])
    constants = {"w": _numbers(**sizes), "s": layouts.padded_columns(scales), "b": bias}
    return Case(f"LinearInt8 {shape}", ("x", "w", "s", "b"), ("y",), constants, runs, sizes)


def _scales(columns: int) -> Floats:
    scales = (RANDOM.random(columns) * 0.01 + 0.001).astype(np.float32)
    scales[:4] = 0, 1e-39, 1e30, 1
    return scales


def _numbers(depth: int, columns: int) -> Array:
    numbers = RANDOM.integers(-127, 128, (depth, columns)).astype(np.int8)
    numbers[:, 4], numbers[:, 5] = 127, -127
    return layouts.packed_int8(lambda part: numbers[:, part], depth, columns)


def _int4_case(sizes: dict[str, int], block: int, bias: Floats, label: str, runs: Runs) -> Case:
    depth, columns = sizes["depth"], sizes["columns"]
    blocks = -(-depth // block)
    numbers = RANDOM.integers(0, 16, (depth, columns)).astype(np.uint8)
    numbers[:, 4], numbers[:, 5] = 15, 0
    scales = (RANDOM.random((blocks, columns)) + 0.1).astype(np.float16)
    scales[-1, :6] = 6e-8, -5e-6, 6.1e-5, 0, 65504, np.inf  # the first two are subnormal
    zero_points = RANDOM.integers(0, 16, (blocks, columns)).astype(np.uint8)
    zero_points[:, 4], zero_points[:, 5] = 0, 15
    factors = np.full(columns, 2.0**-6, np.float32)
    factors[6:8] = 1e-39, 1e30
    constants = {
        "w": layouts.packed_int4(lambda part: numbers[:, part], depth, columns, block),
        "s": layouts.packed_blocks(scales, np.dtype(np.float16)),
        "z": layouts.packed_blocks(zero_points, np.dtype(np.uint8)),
        "f": layouts.padded_columns(factors),
        "b": bias,
    }
    attributes = {**sizes, "block_size": block}
    return Case(f"LinearInt4 {label}", ("x", "w", "s", "z", "f", "b"), ("y",), constants, runs, attributes)


def embed_cases() -> Iterator[Case]:
    depth, columns = 70, 83
    sizes = {"depth": depth, "columns": columns}
    weight = extreme(normal(columns, depth)).T.copy()
    ids = {f"{rows} rows": {"ids": RANDOM.integers(0, columns, (2, rows))} for rows in WINDOWS}
    ids["all"] = {"ids": np.arange(columns)[None]}
    for name, dtype in (("EmbedFloat32", np.float32), ("EmbedBFloat16", ml_dtypes.bfloat16)):
        with np.errstate(over="ignore"):
            packed = layouts.packed_floats(weight, np.dtype(dtype))
        yield Case(f"{name} {depth}x{columns}", ("ids", "w"), ("y",), {"w": packed}, ids, sizes)
    constants = {"w": _numbers(**sizes), "s": layouts.padded_columns(_scales(columns))}
    yield Case(f"EmbedInt8 {depth}x{columns}", ("ids", "w", "s"), ("y",), constants, ids, sizes)


@dataclass(frozen=True)
class Sizes:
    """Of attention. window, softcap: 0 for none."""

    batch: int
    heads: int
    groups: int
    key_width: int
    value_width: int
    capacity: int
    window: int
    softcap: float

    def __str__(self) -> str:
        return f"{self.heads} by {self.groups} heads, {self.key_width} by {self.value_width}"


ATTENTION = (
    Sizes(1, 4, 2, 64, 64, 128, 0, 0.0),
    Sizes(2, 6, 2, 24, 40, 50, 9, 30.0),
    Sizes(1, 8, 1, 128, 128, 200, 0, 0.0),
    Sizes(2, 3, 3, 16, 16, 64, 0, 0.0),
    Sizes(1, 6, 2, 33, 35, 70, 5, 0.0),
)


def attend_cases() -> Iterator[Case]:
    for sizes in ATTENTION:
        runs: Runs = {}
        for rows in WINDOWS:
            runs[f"{rows} rows"] = plain = _attention(sizes, rows)
            runs[f"{rows} rows of a tree"] = plain | {"bias": _tree_bias(sizes.batch, rows)}
            for length in (0, sizes.capacity):
                run = plain | {"length": np.full(sizes.batch, length), "positions": plain["positions"] * 0 + length}
                runs[f"{rows} rows behind {length}"] = run
            for first in range(0, len(EXTREMES), rows):
                runs[f"{rows} extreme queries from {first}"] = plain | {"query": extreme(plain["query"], first)}
        for kind in EXTREMES:
            for name, row in (("key_rows", 2), ("value_rows", 2), ("key_cache", 3), ("value_cache", 3)):
                runs[f"5 rows, {kind} in {name}"] = _with_extreme_row(_attention(sizes, 5), name, row, kind)
        attributes = {
            "scale": sizes.key_width**-0.5, "softcap": sizes.softcap, "window": sizes.window, "ring": 0,
        }  # fmt: skip
        yield from _attend_kinds(sizes, runs, attributes)


def _attend_kinds(sizes: Sizes, runs: Runs, attributes: dict[str, Any]) -> Iterator[Case]:
    """Yield every kind of attention: over latent rows, whose queries are wider, and over codes, which come from
    numbers."""
    latent = {run: feeds | {"query": _latent_query(feeds, sizes)} for run, feeds in runs.items()}
    plain = {run: feeds for run, feeds in runs.items() if "extreme" not in run and " in " not in run}
    kinds = {"": runs, "Latent": latent, "Int8": {run: coded_attention(feeds, 8) for run, feeds in plain.items()}}
    if sizes.value_width % 2 == 0:
        kinds["Int8Int4"] = {run: coded_attention(feeds, 4) for run, feeds in plain.items()}
    sinks = {"sinks": normal(sizes.heads)}
    for kind, own in kinds.items():
        inputs = tuple(own["1 rows"])
        yield Case(f"Attend{kind} {sizes}", inputs, ("y",), {}, own, attributes)
        yield Case(f"Attend{kind}Sinks {sizes}", (*inputs, "sinks"), ("y",), sinks, own, attributes)


def _latent_query(feeds: dict[str, Array], sizes: Sizes) -> Floats:
    batch, rows = feeds["query"].shape[:2]
    parts = feeds["query"].reshape(batch, rows, sizes.heads, -1), normal(batch, rows, sizes.heads, sizes.value_width)
    return np.concatenate(parts, -1).reshape(batch, rows, -1)


def _attention(sizes: Sizes, rows: int) -> dict[str, Array]:
    committed, token = np.array([sizes.capacity // 2, 7][: sizes.batch]), np.arange(rows)
    causal = np.where(token <= token[:, None], 0, -1e30).astype(np.float32)

    def per_group(rows: int, width: int) -> Floats:
        return normal(sizes.batch, sizes.groups, rows, width)

    return {
        "query": normal(sizes.batch, rows, sizes.heads * sizes.key_width),
        "key_rows": per_group(rows, sizes.key_width),
        "value_rows": per_group(rows, sizes.value_width),
        "key_cache": per_group(sizes.capacity, sizes.key_width),
        "value_cache": per_group(sizes.capacity, sizes.value_width),
        "length": committed,
        "positions": committed[:, None] + token,
        "bias": np.broadcast_to(causal, (sizes.batch, 1, rows, rows)).copy(),
    }


def _tree_bias(batch: int, rows: int) -> Floats:
    """Hide any rows, and give some a bias of their own."""
    seen = RANDOM.random((batch, 1, rows, rows)) < 0.6
    return np.where(seen, np.round(normal(batch, 1, rows, rows)) / 2, np.float32(-1e30)).astype(np.float32)


def _with_extreme_row(run: dict[str, Array], name: str, row: int, kind: str) -> dict[str, Array]:
    made = run[name].copy()
    made[0, 0, row] = EXTREMES[kind](made[0, 0, row])
    return run | {name: made}


def head_cases() -> Iterator[Case]:
    inputs, outputs = ("x", "x", "x"), ("queries", "keys", "values")
    for sizes in ATTENTION:
        queries, keys = sizes.heads * sizes.key_width, sizes.groups * sizes.key_width
        places = {
            "heads": sizes.heads,
            "groups": sizes.groups,
            "key_width": sizes.key_width,
            "value_width": sizes.value_width,
            "query_offset": 3,
            "key_offset": 3 + queries,
            "value_offset": 3 + queries + keys,
        }
        width = 3 + queries + keys + sizes.groups * sizes.value_width

        def x(rows: int, batch: int = sizes.batch, width: int = width) -> Floats:
            return normal(batch, rows, width)

        yield Case(f"SplitHeads {sizes}", inputs, outputs, {}, runs_of({"x": x}, "x"), places)
        weights = {"query_weight": normal(sizes.key_width), "key_weight": normal(sizes.key_width)}
        for turned, interleaved in ((sizes.key_width // 2 * 2, 0), (sizes.key_width // 4 * 2, 1)):

            def angles(rows: int, batch: int = sizes.batch, half: int = turned // 2) -> Floats:
                return np.cos(normal(batch, rows, half))

            turn = {**places, "turned": turned, "interleaved": interleaved}
            label = f"{sizes}, {turned} turned" + ", interleaved" * interleaved
            runs, tables = runs_of({"x": x, "cosines": angles, "sines": angles}, "x"), ("cosines", "sines")
            yield Case(f"RotaryHeads {label}", (*inputs, *tables), outputs, {}, runs, turn)
            names = (*inputs, *tables, *weights)
            yield Case(f"NormRotaryHeads {label}", names, outputs, weights, runs, {**turn, "epsilon": EPSILON})


def table_cases() -> Iterator[Case]:
    for width, scale in ((32, 1.0), (19, 1.2)):
        frequencies = (10000.0 ** -(np.arange(width) / width)).astype(np.float32)
        runs = {f"{rows} rows": {"positions": RANDOM.integers(0, 1 << 17, (2, rows))} for rows in WINDOWS}
        runs["far"] = {"positions": np.array([[0, -5, 131071, 1_647_098, 1_647_100, (1 << 24) + 1, 1 << 40]])}
        constants = {"frequencies": frequencies}
        attributes = {"scale": scale}
        yield Case(
            f"RotaryTables of {width}", ("positions", "frequencies"), ("cosines", "sines"), constants, runs, attributes
        )


def row_cases() -> Iterator[Case]:
    for width in (50, 64, 257):

        def x(rows: int, width: int = width) -> Floats:
            return normal(1, rows, width) * 3

        weight, bias = {"w": normal(width)}, {"b": normal(width)}
        epsilon, alone = {"epsilon": EPSILON}, runs_of({"x": x}, "x")
        yield Case(f"RmsNorm of {width}", ("x", "w"), ("y",), weight, alone, epsilon)
        yield Case(f"LayerNorm of {width}", ("x", "w", "b"), ("y",), weight | bias, alone, epsilon)
        runs = runs_of({"x": x, "r": x}, "x")
        yield Case(f"SkipRmsNorm of {width}", ("x", "r", "w"), ("y", "sum"), weight, runs, epsilon)
    for width, gate_offset, up_offset in ((21, 4, 27), (64, 0, 64)):

        def gates(rows: int, width: int = up_offset + width) -> Floats:
            return normal(1, rows, width) * 5

        places = {"width": width, "gate_offset": gate_offset, "up_offset": up_offset}
        runs = runs_of({"x": gates}, "x")
        for name in ("GatedSilu", "GatedGelu"):
            yield Case(f"{name} of {width}", ("x", "x"), ("y",), {}, runs, places)


def all_cases() -> list[Case]:
    """Return cases of every operator, in the order in which they are reported."""
    makers = (
        linear_cases, embed_cases, block_cases, attend_cases, head_cases, table_cases, row_cases, code_cases,
        adapter_cases, number_cases, convolution_cases, recurrence_cases,
    )  # fmt: skip
    return sorted((case for maker in makers for case in maker()), key=lambda case: case.operator)


def make_graph(case: Case) -> onnx.ModelProto:
    node = helper.make_node(case.operator, case.inputs, case.outputs, domain=DOMAIN, **case.attributes)
    inputs = [_describe(name, array) for name, array in next(iter(case.runs.values())).items()]
    types = {name: helper.np_dtype_to_tensor_dtype(np.dtype(case.types.get(name, np.float32))) for name in case.outputs}
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in types.items()]
    constants = [_constant(name, array) for name, array in case.constants.items()]
    graph = helper.make_graph([node], "case", inputs, outputs, constants)
    imports = [helper.make_opsetid("", 24), helper.make_opsetid(DOMAIN, VERSION)]
    return helper.make_model(graph, opset_imports=imports, ir_version=11)


def _describe(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)


def _constant(name: str, array: Array) -> onnx.TensorProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor(name, kind, array.shape, np.ascontiguousarray(array).tobytes(), raw=True)


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    cases = all_cases()
    if forgotten := functions().keys() - {case.operator for case in cases}:
        sys.exit(f"cases.py: found no case of {', '.join(sorted(forgotten))}, expected one of every operator")
    for case in cases:
        onnx.save(make_graph(case), folder / f"{case.name}.onnx")
        arrays: dict[str, Any] = {f"{run}.{name}": x for run, feeds in case.runs.items() for name, x in feeds.items()}
        np.savez(folder / f"{case.name}.npz", **arrays)
    runs = sum(len(case.runs) for case in cases)
    print(f"{len(cases)} cases of {len({case.operator for case in cases})} operators, {runs} runs")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
