"""Cases for weights whose codes are read as they are, for codes of caches, and for adapters."""

from collections.abc import Iterator

import numpy as np
from case import Case
from inputs import RANDOM, WINDOWS, Array, Floats, Runs, extreme, normal, runs_of

from speccompile.compiler.lower.native import layouts

CODED = ("key_rows", "value_rows", "key_cache", "value_cache")


def block_cases() -> Iterator[Case]:
    """Yield products with codes in four and eight bits, with offsets and without."""
    for bits, depth, columns, block in ((4, 256, 40, 32), (8, 64, 131, 16), (4, 1056, 72, 16), (8, 96, 33, 32)):
        sizes = {"columns": columns, "depth": depth, "block_size": block, "zero_point": 7 if bits == 4 else 128}
        codes = RANDOM.integers(0, 1 << bits, (depth, columns)).astype(np.uint8)
        scales, offsets = normal(depth // block, columns), normal(depth // block, columns)
        scales[-1, :4] = 0, 1e-39, 1e30, -1
        constants = {
            "w": _packed(codes, bits, block),
            "s": layouts.packed_blocks(scales, np.dtype(np.float32)),
            "o": layouts.packed_blocks(offsets, np.dtype(np.float32)) if depth > block * 3 else layouts.NO_OFFSETS,
        }
        bias = {"b": normal(columns)}

        def x(rows: int, depth: int = depth) -> Floats:
            return normal(rows, depth)

        label = f"{depth}x{columns}, blocks of {block}"
        runs = runs_of({"x": x}, "x")
        yield Case(f"LinearBlocks{bits} {label}", ("x", "w", "s", "o", "b"), ("y",), constants | bias, runs, sizes)
        ids = {f"{rows} rows": {"ids": RANDOM.integers(0, columns, (2, rows))} for rows in WINDOWS}
        yield Case(f"EmbedBlocks{bits} {label}", ("ids", "w", "s", "o"), ("y",), constants, ids, sizes)


def _packed(codes: Array, bits: int, block: int) -> Array:
    depth, columns = codes.shape
    if bits == 4:
        return layouts.packed_int4(lambda part: codes[:, part], depth, columns, block)
    return layouts.packed_int8(lambda part: (codes[:, part] ^ np.uint8(128)).view(np.int8), depth, columns, block)


def code_cases() -> Iterator[Case]:
    """Yield rows of caches, to codes and back."""
    for bits, width in ((8, 64), (8, 33), (4, 64), (4, 34)):

        def rows(count: int, width: int = width) -> Floats:
            return normal(2, 2, count, width)

        outputs, types = ("codes", "scales"), {"codes": np.int8}
        runs = runs_of({"rows": rows}, "rows")
        yield Case(f"EncodeInt{bits} of {width}", ("rows",), outputs, {}, runs, {}, types)
        decoded: Runs = {}
        for count in WINDOWS:
            codes, scales = encoded(rows(count), bits)
            decoded[f"{count} rows"] = {"codes": codes, "scales": scales}
            decoded[f"{count} rows, extreme scales"] = {"codes": codes, "scales": extreme(scales)}
        yield Case(f"DecodeInt{bits} of {width}", outputs, ("values",), {}, decoded, {})


def encoded(rows: Floats, bits: int) -> tuple[Array, Floats]:
    """Return codes and scales by the definition; with four bits the least numbers as well."""
    if bits == 8:
        scales = (np.abs(rows).max(-1, keepdims=True) / np.float32(127)).astype(np.float32)
        return np.rint(rows / np.where(scales == 0, np.float32(1), scales)).clip(-127, 127).astype(np.int8), scales
    least = rows.min(-1, keepdims=True)
    step = ((rows.max(-1, keepdims=True) - least) / np.float32(15)).astype(np.float32)
    codes = np.rint((rows - least) / np.where(step == 0, np.float32(1), step)).clip(0, 15).astype(np.uint8)
    pairs = (codes[..., ::2] | codes[..., 1::2] << 4) ^ 0x80
    return pairs.view(np.int8), np.concatenate([step, least], -1)


def coded_attention(run: dict[str, Array], value_bits: int) -> dict[str, Array]:
    """Return the inputs of attention over codes, in order, for those of an Attend without extremes."""
    made: dict[str, Array] = {"query": run["query"]}
    for name in CODED:
        made[name], made[f"{name}_scales"] = encoded(run[name], value_bits if "value" in name else 8)
    return made | {name: array for name, array in run.items() if name not in made}


def adapter_cases() -> Iterator[Case]:
    """Yield cases of adapters, whose first slot is the base's."""
    for rank, depth, columns in ((4, 64, 40), (16, 300, 131)):
        slots = {"a": normal(3, rank, depth), "b": normal(3, rank, columns)}
        runs: Runs = {}
        for rows in WINDOWS:
            given = {"y": normal(2, rows, columns), "x": normal(2, rows, depth)}
            for adapter in ([0, 2], [1, 1]):
                runs[f"{rows} rows of {adapter}"] = given | slots | {"adapter": np.array(adapter)}
            runs[f"{rows} extreme rows"] = given | slots | {"x": extreme(given["x"]), "adapter": np.array([1, 2])}
        yield Case(f"LowRank {rank} of {depth}x{columns}", ("y", "x", "a", "b", "adapter"), ("z",), {}, runs, {})
