"""Stored keys and values of a bundle's graphs: floats, or int8 codes with a scale for each row of a head."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sources import CROSS_KINDS
from speccompile.contract import (
    CACHED_KINDS,
    COMPONENTS,
    DTYPES,
    FLOAT_CACHE,
    FP8,
    FP8_CACHE,
    INT4_VALUES,
    INT8_CACHE,
    SCALE_SUFFIX,
    Graph,
    Tensor,
    is_scale,
)

STORED_KINDS = {*CACHED_KINDS, *(kind + SCALE_SUFFIX for kind in CACHED_KINDS)}
"""Words in the names of buffers that hold keys and values of a sequence, or their scales."""
QUANTIZED_KINDS = (*CACHED_KINDS, *CROSS_KINDS)
"""Kinds of states that a quantized cache holds as codes and scales: those of a text and those of a source."""


def scale_name(name: str) -> str:
    """Return the name of the scales of a quantized cache, or of the tensor that updates them: target.key.0 ->
    target.key_scale.0."""
    parts = name.split(".")
    return ".".join(part + SCALE_SUFFIX if part in QUANTIZED_KINDS else part for part in parts)


def code_bits(dtype: str, name: str) -> int:
    """Return the bits of a code of a quantized cache. dtype: of `cache_dtype`; name: of the cache, as target.key.0."""
    values = CACHED_KINDS[1], CROSS_KINDS[1]
    return 4 if dtype == INT4_VALUES and any(part in values for part in name.split(".")) else 8


def caches_in(dtype: str) -> str:
    """Name caches of a dtype in messages, such as "int8 caches"."""
    return f"caches of {dtype}" if dtype == INT4_VALUES else f"{dtype} caches"


def has_codes(dtype: str) -> bool:
    """Return whether neutral graphs hold caches of this dtype as codes and scales. fp8 caches have no scales: neutral
    graphs hold them as rounded floats, and the lowering for GPUs stores them in bytes."""
    return dtype not in (FLOAT_CACHE, FP8_CACHE)


def code_widths(width: int, bits: int) -> tuple[int, int]:
    """Return the bytes of a row's codes, and the number of its scales. Rows in 4 bits have two: the scale and the
    smallest value."""
    return (width, 1) if bits == 8 else (width // 2, 2)


def cache_dtype(graphs: Iterable[Graph], part: str) -> str:
    """Return the dtype of a component's stored keys and values, of `CACHE_DTYPES`, or INT4_VALUES. part: one of
    `COMPONENTS`."""
    read = [t for graph in graphs for t in graph.inputs if t.role == "state" and t.buffer.startswith(f"{part}.")]
    if any(tensor.dtype == FP8 for tensor in read):
        return FP8_CACHE
    scales = {tensor.shape[-1] for tensor in read if is_scale(tensor.buffer)}
    return FLOAT_CACHE if not scales else INT4_VALUES if 2 in scales else INT8_CACHE


def cache_token_bytes(graphs: Iterable[Graph], part: str) -> int:
    """Return the bytes of one token's keys and values, scales included, in all caches of a component."""
    states = {tensor.buffer: tensor for graph in graphs for tensor in graph.inputs if tensor.role == "state"}
    own = (name for name in states if name.startswith(f"{part}.") and STORED_KINDS & {*name.split(".")})
    return sum(_row_bytes(states[name]) for name in own)


def _row_bytes(cache: Tensor) -> int:
    """Return the bytes of a token's rows in a cache."""
    return DTYPES[cache.dtype].bytes * int(cache.shape[1]) * int(cache.shape[3])


def max_cached_tokens(graphs: Iterable[Graph], manifest: Manifest, memory: float) -> int | None:
    """Return the maximum tokens of a sequence in one batch slot whose caches fit `memory` bytes. Return None for no
    maximum: all caches are rings, whose size does not depend on the sequence. graphs: of one engine."""
    states = {tensor.buffer: tensor for graph in graphs for tensor in graph.inputs if tensor.role == "state"}
    token, fixed = 0, 0
    for name, tensor in states.items():
        if not STORED_KINDS & {*name.split(".")}:
            continue
        row, rows = _row_bytes(tensor), int(tensor.shape[2])
        if name in manifest.rings:
            fixed += row * rows
        else:  # a drafter with another tokenizer has several rows for a token
            several = max(1, rows // manifest.max_length)
            token, fixed = token + several * row, fixed + row * (rows - several * manifest.max_length)
    if not token:
        return None if fixed <= memory else 0
    return max(0, (int(memory) - fixed) // token)


GIGABYTE = 1e9
"""Bytes."""


def format_max_tokens(tokens: int | None) -> str:
    """Format the result of `max_cached_tokens`."""
    return "any" if tokens is None else f"{tokens} tokens"


def context_of(manifest: Manifest, gigabytes: float) -> dict[str, int | None]:
    """Return `describe_context` for the caches of the first engine."""
    graphs, memory = manifest.engines[0].graphs, gigabytes * GIGABYTE
    token = sum(cache_token_bytes(graphs, part) for part in COMPONENTS)
    return describe_context(token, memory, max_cached_tokens(graphs, manifest, memory))


def describe_context(token: int, memory: float, max_tokens: int | None) -> dict[str, int | None]:
    """Return the JSON object `context`: bytes of a token, memory in bytes, and the most tokens that fit into it."""
    return {"bytes_per_token": token, "memory": int(memory), "tokens": max_tokens}


def describe_caches(manifest: Manifest, gigabytes: float = 1) -> str:
    """Describe the caches of the first engine: KB a token, quantized dtypes, rings, and the maximum tokens of a
    sequence whose caches fit into so many gigabytes."""
    graphs, parts = manifest.engines[0].graphs, list[str]()
    for part in COMPONENTS:
        size, dtype = cache_token_bytes(graphs, part), cache_dtype(graphs, part)
        if size:
            parts.append(f"{part} {'' if dtype == FLOAT_CACHE else dtype + ', '}{size / 1e3:.2f} KB a token")
    if not parts:
        return "none"
    if manifest.rings:
        rows = {int(t.shape[2]) for graph in graphs for t in graph.inputs if t.buffer in manifest.rings}
        layers = {name.rpartition(".")[2] for name in manifest.rings}
        parts.append(f"rings of {', '.join(map(str, sorted(rows)))} rows in {len(layers)} layers")
    most = max_cached_tokens(graphs, manifest, gigabytes * GIGABYTE)
    return "; ".join([*parts, f"{gigabytes:g} GB holds {format_max_tokens(most)}"])


def has_quantized_caches(graphs: Iterable[Graph]) -> bool:
    """Return whether some caches of these graphs are quantized."""
    known = tuple(graphs)
    return any(cache_dtype(known, part) != FLOAT_CACHE for part in COMPONENTS)


def with_quantized_caches(graph: Graph, names: Collection[str] | Mapping[str, int]) -> Graph:
    """Return the graph with the named caches as int8 codes, each followed by its scales. names: may map to the bits of
    a code; a byte holds two codes of 4 bits."""
    bits = names if isinstance(names, Mapping) else dict.fromkeys(names, 8)

    def stored(tensor: Tensor) -> list[Tensor]:
        if tensor.buffer not in names:
            return [tensor]
        *rows, width = tensor.shape
        codes, scales = code_widths(int(width), bits[tensor.buffer])
        return [
            replace(tensor, dtype="int8", shape=(*rows, codes)),
            replace(tensor, name=scale_name(tensor.name), buffer=scale_name(tensor.buffer), shape=(*rows, scales)),
        ]

    inputs, outputs = (tuple(each for t in its for each in stored(t)) for its in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs)
