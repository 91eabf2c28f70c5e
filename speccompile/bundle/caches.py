"""Stored keys and values of a bundle's graphs: floats, or int8 codes with a scale for each row of a head."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from speccompile.contract import (
    CACHED_KINDS,
    COMPONENTS,
    DTYPES,
    FLOAT_CACHE,
    INT8_CACHE,
    SCALE_SUFFIX,
    Graph,
    Tensor,
    is_scale,
)


def scale_name(name: str) -> str:
    """Return the name of the scales of a quantized cache, or of the tensor that updates them: target.key.0 ->
    target.key_scale.0."""
    parts = name.split(".")
    return ".".join(part + SCALE_SUFFIX if part in CACHED_KINDS else part for part in parts)


def cache_dtype(graphs: Iterable[Graph], part: str) -> str:
    """Return the dtype of a component's stored keys and values, of `CACHE_DTYPES`. part: one of `COMPONENTS`."""
    read = (tensor.buffer for graph in graphs for tensor in graph.inputs)
    is_quantized = any(is_scale(name) and name.startswith(f"{part}.") for name in read)
    return INT8_CACHE if is_quantized else FLOAT_CACHE


def cache_token_bytes(graphs: Iterable[Graph], part: str) -> int:
    """Return the bytes of a token's keys and values, scales included, in the caches of a component that graphs read."""
    kinds = {*CACHED_KINDS, *(kind + SCALE_SUFFIX for kind in CACHED_KINDS)}
    states = {tensor.buffer: tensor for graph in graphs for tensor in graph.inputs if tensor.role == "state"}
    own = (tensor for name, tensor in states.items() if name.startswith(f"{part}.") and kinds & {*name.split(".")})
    return sum(DTYPES[each.dtype].bytes * int(each.shape[1]) * int(each.shape[3]) for each in own)


def has_quantized_caches(graphs: Iterable[Graph]) -> bool:
    """Return whether some caches of these graphs are quantized."""
    known = tuple(graphs)
    return any(cache_dtype(known, part) != FLOAT_CACHE for part in COMPONENTS)


def with_quantized_caches(graph: Graph, names: Collection[str]) -> Graph:
    """Return the graph with the caches of these names as int8 codes, each followed by its scales."""

    def stored(tensor: Tensor) -> list[Tensor]:
        if tensor.buffer not in names:
            return [tensor]
        shape = (*tensor.shape[:-1], 1)
        scales = replace(tensor, name=scale_name(tensor.name), buffer=scale_name(tensor.buffer), shape=shape)
        return [replace(tensor, dtype="int8"), scales]

    inputs, outputs = (tuple(each for t in its for each in stored(t)) for its in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs)
