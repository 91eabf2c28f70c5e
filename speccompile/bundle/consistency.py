"""Consistency of a manifest: its numbers are those of its plan and of its graphs, its graphs those of the contract, and
its engines' graphs those of the bundle. Without it an edited manifest runs, and gives other tokens."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from speccompile.bundle.manifest import DECODINGS, TREES, EngineEntry, Manifest
from speccompile.bundle.media import ENCODE_IMAGE, MEDIA
from speccompile.bundle.signatures import (
    ADAPTER_MATRIX,
    COMPANIONS,
    COMPONENT_STATES,
    COMPUTED,
    LIMITS,
    MOST_TOKENS,
    PLANNED,
    REQUIRED,
    ROUNDS,
    SIGNATURES,
    TOKENS_STATE,
)
from speccompile.bundle.source_section import source_problems
from speccompile.bundle.sources import round_only
from speccompile.contract import (
    ADAPTER_PREFIX,
    CACHED_KINDS,
    COMPONENTS,
    DTYPES,
    FP8,
    NEXT_ROUND_INPUTS,
    OUT_OF_PLACE_PREFIX,
    PERSISTENT_PREFIX,
    SCALE_SUFFIX,
    Dimension,
    Graph,
    Tensor,
    with_fixed_batch,
    with_tensorrt_states,
)
from speccompile.errors import BundleError

_REBUILD = "build the bundle again with this speccompile"

Shape = tuple[Dimension, ...]


def check_consistency(manifest: Manifest, file: str) -> None:
    """Raise BundleError naming `file`, the field and both values where a manifest contradicts itself."""
    for problem in _problems(manifest):
        raise BundleError(f"{file}: {problem}", hint=_REBUILD)


def _problems(manifest: Manifest) -> Iterator[str]:
    yield from _numbers(manifest)
    yield from _words(manifest)
    yield from _planned(manifest)
    yield from _round(manifest)
    yield from source_problems(
        manifest.source, {graph.name: graph for graph in manifest.graphs}, manifest.vocabulary_size
    )
    graphs = [with_fixed_batch(graph, manifest.batch_size) for graph in manifest.graphs]
    for graph in graphs:
        yield from (f"graph {graph.name!r}: {problem}" for problem in _graph(graph, manifest))
    yield from _features(manifest, round_only(graphs))
    yield from _rings(manifest)
    for engine in manifest.engines:
        yield from (f"engine {engine.name!r}: {problem}" for problem in _engine(engine, graphs, manifest.batch_size))


def _numbers(manifest: Manifest) -> Iterator[str]:
    for name, (least, most) in LIMITS.items():
        value = getattr(manifest, name)
        if not least <= value <= most:
            yield f"{name}: expected a number from {least} to {most}, got {value}"
    least = min(1, manifest.tokens)
    if not least <= manifest.depth <= manifest.tokens:
        yield f"depth: expected a number from {least} to {manifest.tokens}, got {manifest.depth}"
    for token in manifest.eos_token_ids:
        if not 0 <= token < MOST_TOKENS:
            yield f"eos_token_ids: expected numbers from 0 to {MOST_TOKENS - 1}, got {token}"


def _words(manifest: Manifest) -> Iterator[str]:
    for name, value, known in (("decoding", manifest.decoding, DECODINGS), ("tree", manifest.tree, TREES)):
        if value not in known:
            yield f"{name}: expected {' or '.join(map(repr, known))}, got {value!r}"


def _planned(manifest: Manifest) -> Iterator[str]:
    """Yield the fields that are not what the plan decided. A plan without a key decides nothing."""
    for name, path in PLANNED.items():
        planned: object = manifest.plan
        for key in path:
            planned = planned.get(key) if isinstance(planned, dict) else None
        value = getattr(manifest, name)
        value = list(value) if isinstance(value, tuple) else value
        if planned is not None and planned != value:
            yield f"{name} is {value!r}, but plan.{'.'.join(path)} is {planned!r}"


def _round(manifest: Manifest) -> Iterator[str]:
    names = [graph.name for graph in round_only(manifest.graphs)]
    drafts = manifest.tokens > 0
    if sorted(names) not in [sorted(each) for each in ROUNDS] or (len(names) > 1 and not drafts):
        known = ", ".join(" and ".join(each) for each in ROUNDS)
        yield f"graphs: expected {known if drafts else 'verify'}, got {' and '.join(names) or 'none'}"
    most = max(manifest.prefill_chunk, manifest.tokens + 1) + 1
    least = int(any("catch_up" in tensor.shape for graph in manifest.graphs for tensor in graph.inputs))
    if not least <= manifest.catch_up <= most:
        yield f"catch_up: expected a number from {least} to {most}, got {manifest.catch_up}"


def _features(manifest: Manifest, graphs: Sequence[Graph]) -> Iterator[str]:
    """Yield the fields that contradict the inputs of the graphs, which follow from them."""
    needs = {
        "decoding": (manifest.decoding == "sampling", "uniforms"),
        "sample": (manifest.sample, "draft_ids"),
        "tree": (manifest.tree == "dynamic", "parents"),
    }
    for graph in (graph for graph in graphs if graph.name != "draft"):
        inputs, outputs = ({tensor.name for tensor in each} for each in (graph.inputs, graph.outputs))
        for field, (is_so, name) in needs.items():
            if is_so != (name in inputs):
                has = "an" if name in inputs else "no"
                yield f"{field}: received {getattr(manifest, field)!r}, but {graph.name!r} has {has} input {name!r}"
        if ("nodes" in outputs) != (manifest.tree != "chain"):
            yield f"tree: received {manifest.tree!r}, which 'nodes' of {graph.name!r} contradicts"
    if graphs and len(graphs) > 1:
        drafting = next(graph for graph in graphs if graph.name != "verify")
        drafted = {tensor.name for tensor in drafting.outputs}
        for name, needed in (("next_parents", manifest.tree == "dynamic"), ("next_ids", manifest.sample)):
            if needed != (name in drafted):
                yield f"graph {drafting.name!r}: {'no' if needed else 'an'} output {name!r}"
        yield from _links(graphs)


def _rings(manifest: Manifest) -> Iterator[str]:
    """Yield the rings that are no caches of the target, or that hold no position."""
    inputs = (tensor for graph in manifest.graphs for tensor in graph.inputs)
    states = {each.buffer for each in inputs if each.role == "state" and _rows(each) is not None}
    for name, window in manifest.rings.items():
        if name not in states or not name.startswith(f"{COMPONENTS[0]}."):
            yield f"rings: {name!r} is no cache of the target"
        elif window < 1:
            yield f"rings: {name!r}: expected a number of positions from 1 on, got {window}"


def _links(graphs: Sequence[Graph]) -> Iterator[str]:
    """Yield the links that no graph writes, or that a graph writes with another dtype or shape."""
    links = {tensor.buffer: tensor for graph in graphs for tensor in graph.outputs}
    for graph in graphs:
        for tensor in (tensor for tensor in graph.inputs if tensor.role == "link"):
            link = links.get(tensor.buffer)
            if link is None or (link.shape, link.dtype) != (tensor.shape, tensor.dtype):
                written = "nothing" if link is None else _words_of(link)
                yield f"graph {graph.name!r}: {tensor.name!r} is {_words_of(tensor)}, written is {written}"


def _graph(graph: Graph, manifest: Manifest) -> Iterator[str]:
    for way, tensors, required in zip(
        ("input", "output"), (graph.inputs, graph.outputs), REQUIRED[graph.name], strict=True
    ):
        names = [tensor.name for tensor in tensors]
        yield from (f"no {way} {name!r}" for name in required if name not in names)
        yield from (f"the {way} {name!r} twice" for name in sorted({name for name in names if names.count(name) > 1}))
        for tensor in tensors:
            yield from _tensor(tensor, way, graph, manifest)
    names = [tensor.name for tensor in graph.inputs]
    for name, others in COMPANIONS.items():
        if name in names:
            yield from (f"the input {name!r} without {each!r}" for each in others if each not in names)
    read = {tensor.buffer: tensor for tensor in graph.inputs}
    for output in graph.outputs:
        source = read.get(output.buffer)
        if output.role == "state" and source and (source.shape, source.dtype) != (output.shape, output.dtype):
            yield f"the output {output.name!r} is {_words_of(output)}, the state that it updates {_words_of(source)}"


def _tensor(tensor: Tensor, way: str, graph: Graph, manifest: Manifest) -> Iterator[str]:
    known = ADAPTER_MATRIX if tensor.name.startswith(ADAPTER_PREFIX) else tensor.name
    if tensor.dtype not in DTYPES:
        yield f"the {way} {tensor.name!r} has the dtype {tensor.dtype!r}, expected one of {', '.join(DTYPES)}"
    elif tensor.role == "state":
        yield from _state(tensor, way, manifest)
    elif known not in SIGNATURES:
        yield f"the {way} {tensor.name!r}, which no graph of this contract has"
    else:
        dtype, sizes, roles = SIGNATURES[known]
        role = tensor.role if tensor.role in roles.split() else roles
        shape = tuple(_size(each, manifest) for each in sizes)
        buffer = NEXT_ROUND_INPUTS.get(tensor.name, tensor.name) if graph.name == "draft" else tensor.name
        expected = replace(tensor, dtype=dtype, shape=shape, role=role, buffer=buffer)
        if not _fits(tensor.shape, shape) or replace(tensor, shape=shape) != expected:
            yield f"the {way} {tensor.name!r} is {_words_of(tensor)}, expected {_words_of(expected)}"


def _size(size: str, manifest: Manifest) -> Dimension:
    field = COMPUTED.get(size)
    return size if field is None else getattr(manifest, field[0]) + field[1]


def _fits(shape: Shape, expected: Shape) -> bool:
    return len(shape) == len(expected) and all(
        size == other or (other == "*" and isinstance(size, int) and size > 0)
        for size, other in zip(shape, expected, strict=True)
    )


def _state(tensor: Tensor, way: str, manifest: Manifest) -> Iterator[str]:
    name = tensor.buffer.removeprefix(OUT_OF_PLACE_PREFIX)
    is_kept = name.startswith(PERSISTENT_PREFIX)
    if not (is_kept or name == TOKENS_STATE or name.startswith(COMPONENT_STATES)):
        yield f"the {way} {tensor.name!r} is the state {tensor.buffer!r}, which no graph of this contract has"
    elif not all(isinstance(size, int) and size > 0 for size in tensor.shape):
        yield f"the {way} {tensor.name!r} is {_words_of(tensor)}, expected the sizes of a state"
    elif not is_kept and tensor.shape[:1] != (manifest.batch_size,):
        yield f"the {way} {tensor.name!r} is {_words_of(tensor)}, expected {manifest.batch_size} lines: batch_size"
    else:
        widest = max(manifest.prefill_chunk, manifest.tokens + 1)
        window = manifest.rings.get(name)
        held = "max_length" if window is None else "what attention reads of a ring"
        least = (manifest.max_length if window is None else window) + widest + manifest.tokens + 1
        rows = None if is_kept else _rows(tensor)
        if rows is not None and rows < least:
            yield (
                f"the {way} {tensor.name!r} is {_words_of(tensor)}, expected {least} rows or more: "
                f"{held}, the widest window and its drafts"
            )


def _rows(tensor: Tensor) -> int | None:
    """Return the number of tokens that a state has a row for; None if it has no row for each token."""
    if tensor.dtype == "int64" and len(tensor.shape) == 2:
        return int(tensor.shape[1])
    is_cache = any(part.removesuffix(SCALE_SUFFIX) in CACHED_KINDS for part in tensor.buffer.split("."))
    return int(tensor.shape[2]) if is_cache and len(tensor.shape) == 4 else None


def _engine(engine: EngineEntry, graphs: Sequence[Graph], batch_size: int) -> Iterator[str]:
    """Yield what differs between the graphs of an engine and those of the bundle, but for the types of caches, and the
    states of TensorRT."""
    own = {graph.name: with_fixed_batch(graph, batch_size) for graph in engine.graphs}
    names = [graph.name for graph in graphs]
    if engine.build is not None and any(tensor.name == MEDIA for graph in graphs for tensor in graph.inputs):
        names.append(ENCODE_IMAGE)
    if sorted(own) != sorted(names) or len(own) != len(engine.graphs):
        found = ", ".join(graph.name for graph in engine.graphs) or "none"
        yield f"its graphs are {found}, the bundle's are {', '.join(names)}"
        return
    for graph in graphs:
        mine = own[graph.name]
        moved = with_tensorrt_states(_in_fp8(graph, mine))
        for way, has, wanted, others in (
            ("input", mine.inputs, graph.inputs, moved.inputs),
            ("output", mine.outputs, graph.outputs, moved.outputs),
        ):
            yield from (f"graph {graph.name!r}: {problem}" for problem in _pairs(way, has, wanted, others))


def _in_fp8(graph: Graph, mine: Graph) -> Graph:
    """Return the bundle's graph with the fp8 caches of an engine's graph."""
    fp8 = {tensor.buffer: tensor.dtype for tensor in mine.inputs if tensor.dtype == FP8}

    def typed(tensor: Tensor) -> Tensor:
        return replace(tensor, dtype=fp8.get(tensor.buffer, tensor.dtype))

    return Graph(graph.name, tuple(map(typed, graph.inputs)), tuple(map(typed, graph.outputs)))


def _pairs(way: str, has: Iterable[Tensor], wanted: Iterable[Tensor], others: Iterable[Tensor]) -> Iterator[str]:
    """Yield what differs. others: `wanted` as an engine has it that updates only caches in place."""
    mine = {tensor.name: tensor for tensor in has}
    theirs = {tensor.name: (tensor, other) for tensor, other in zip(wanted, others, strict=True)}
    for name in sorted(mine.keys() - theirs.keys()):
        yield f"the {way} {name!r} is unknown to the bundle's graph"
    for name, (tensor, other) in sorted(theirs.items()):
        if name not in mine:
            yield f"the {way} {name!r} is one of the bundle's graph"
        elif mine[name] != other and _as_cache(mine[name], tensor) != tensor:
            yield f"the {way} {name!r} is {_words_of(mine[name])}, that of the bundle is {_words_of(tensor)}"


def _as_cache(own: Tensor, tensor: Tensor) -> Tensor:
    """Return an engine's tensor with the type of the bundle's, if it is a cache, whose type an engine chooses."""
    is_cache = tensor.role == "state" and tensor.dtype in _CACHE_DTYPES and own.dtype in _CACHE_DTYPES
    return replace(own, dtype=tensor.dtype) if is_cache else own


_CACHE_DTYPES = ("float32", "float16", "bfloat16")


def _words_of(tensor: Tensor) -> str:
    buffer = "" if tensor.buffer == tensor.name else f" in {tensor.buffer!r}"
    return f"{tensor.dtype} [{', '.join(map(str, tensor.shape))}] ({tensor.role}){buffer}"
