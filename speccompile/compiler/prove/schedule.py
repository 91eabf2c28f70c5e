"""Schedules for running a graph in the proof: windows, some wide, some narrow, some batch slots idle, then drafts.

No torch: the schedule runs through the runtime's own engines, on any backend.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from speccompile.bundle.sampling import ADJUSTED
from speccompile.compiler.prove.feeds import make_input
from speccompile.compiler.prove.graph_traits import all_given, allowed_width, carries, pairs_next
from speccompile.compiler.prove.source_feeds import encode_sources, source_values
from speccompile.contract import (
    BATCH,
    OUT_OF_PLACE_PREFIX,
    PERSISTENT_PREFIX,
    Graph,
    Tensor,
    is_recurrent_state,
)
from speccompile.progress import progress_counter
from speccompile.runtime.devices.engine import Array, Engine
from speccompile.tree import Tree, chain

DRAFTED = "next_"
"""Name prefix of outputs that hold drafts: tokens before numbers."""

RARE = 7
"""Distance in a text between tokens that a drafter lacks, if it lacks any."""

Outputs = list[dict[str, Array]]
"""Outputs of a graph for each window of a schedule; after the text, also the used part of its states."""


@dataclass(frozen=True)
class Schedule:
    """A text for each batch slot, and the widths of its windows. As with ragged prompts, later slots skip the first
    ones.

    tree: of the drafts. rounds: windows of decoding, each the tokens of a tree's nodes in every batch slot, over the
    text's first `rounds_at` tokens; none until `with_rounds` finds drafts that are accepted. overlap: tokens of a text
    window that the next one repeats (see `pairs` in the contract). chunk: the widest window of text. sources: of all
    batch slots, for a target with an encoder; features: their shape, for speech. told: see `is_told` below.
    """

    texts: list[list[int]]
    widths: list[int]
    tree: Tree | None = None
    rounds_at: int = 0
    rounds: tuple[tuple[tuple[int, ...], ...], ...] = ()
    overlap: int = 0
    chunk: int = 1
    sources: tuple[list[int], ...] = ()
    features: tuple[int, int] | None = None
    told: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"tree": None if self.tree is None else list(self.tree.parents)}

    def windows(self) -> Iterator[tuple[int, list[int], list[int]]]:
        """Yield width, tokens fed to each batch slot (none or, in slots fed before, the whole window), and committed
        tokens."""
        committed = [0] * len(self.texts)
        for step, width in enumerate(self.widths):
            again = [min(self.overlap, start) for start in committed]
            fed = [width + again[row] if step >= row % 2 else 0 for row in range(len(self.texts))]
            starts = [start - more for start, more in zip(committed, again, strict=True)]
            yield max(fed), fed, starts
            committed = [a + b for a, b in zip(starts, fed, strict=True)]

    def source(self, row: int) -> list[int] | None:
        """Return the source of a batch slot, None without any."""
        return self.sources[row] if self.sources else None

    @property
    def ends(self) -> list[int]:
        """Return the number of tokens committed in each batch slot after the text."""
        *_, (_, fed, committed) = self.windows()
        return [a + b for a, b in zip(committed, fed, strict=True)]


@dataclass(frozen=True)
class ScheduledWindow:
    """One run of a round's graphs. values: written by the host, by buffer; fed: tokens of each batch slot, committed:
    those before; drafted: whether all but one are drafts; before: an earlier run, for the states alone; is_told:
    whether the token after a text window replaces the target's prediction before the draft."""

    widths: dict[str, int]
    values: dict[str, Array]
    fed: list[int]
    committed: list[int]
    drafted: bool
    before: tuple["ScheduledWindow", ...] = ()
    is_told: bool = False

    def input(self, tensor: Tensor) -> Array:
        """Return the value of an input that is no state."""
        shape = tensor.concrete_shape(self.widths)
        if tensor.role == "index":
            return np.arange(shape[0], dtype=tensor.dtype)
        return self.values[tensor.buffer].astype(tensor.dtype).reshape(shape)


@dataclass(frozen=True)
class Recording:
    """Outputs of a drafting graph, `draft` or `step`, over a schedule. level: of the proof, as its rows name it.

    all_graphs: of the round, if `draft` ran after `verify`. links: outputs passed from one graph to the next, of every
    run, if `outputs` lacks them.
    """

    graph: Graph
    level: str
    script: Schedule
    outputs: Outputs
    all_graphs: tuple[Graph, ...] = ()
    links: tuple[dict[str, Array], ...] = ()

    def runs(self) -> Iterator[tuple[int, ScheduledWindow, dict[str, Array]]]:
        """Yield every run's index in `outputs`, its window as the drafter read it, and its outputs.

        The drafter of a `step` reads the target's path: `fed` then counts the accepted tokens.
        """
        for number, window in enumerate(windows(self.script, self.all_graphs or [self.graph])):
            place = number + window.drafted  # the states lie between the text and the drafts
            outputs = self.outputs[place]
            fed = [int(n) for n in outputs.get("n_path", window.fed)]
            values = window.values | {"path": outputs.get("path", window.values["path"])}
            yield place, replace(window, fed=fed, values=values), outputs


def make_script(
    vocabulary_size: int,
    batch: int,
    max_length: int,
    chunk: int,
    far: int,
    tree: Tree | None = None,
    common: int | None = None,
    *,
    repeats: int = 0,
) -> Schedule:
    """Return a schedule of random tokens: prefill, single tokens and drafts in turn, 24 tokens beyond position `far`.

    common: first token that a drafter lacks; every text has some, to cover them. repeats: most distinct tokens
    in the first half of a text, which the second half then repeats for lookups; 0 for texts that do not repeat.
    """
    wanted = min(max_length, max(40, far + 24))
    widths: list[int] = []
    for width in (min(chunk, 17), 1, 5, 1, 2):
        widths += [width] if sum(widths) + width <= wanted else []
    while sum(widths) < wanted:
        widths.append(min(chunk, 24, wanted - sum(widths)))
    random = np.random.default_rng(0)
    texts = random.integers(0, vocabulary_size, (batch, sum(widths) + 1))
    if common is not None and common < vocabulary_size:
        texts[:, 2::RARE] = random.integers(common, vocabulary_size, texts[:, 2::RARE].shape)
    if repeats:
        half, own = texts.shape[1] // 2, batch
        if repeats < half:  # the first text repeats in all batch slots, which may share a table
            texts, own = np.take_along_axis(texts, random.integers(0, repeats, texts.shape), 1), 1
        texts[:, half : 2 * half] = texts[:own, :half]
    committed = sum(widths) - (widths[0] if batch > 1 else 0)  # in the batch slots with the fewest
    longest = max_length - 1 - (tree.depth if tree else 0)
    return Schedule(texts.tolist(), widths, tree, max(0, min(committed, longest)), chunk=chunk)


def with_rounds(engine: Engine, script: Schedule, graph: Graph) -> Schedule:
    """Return the schedule with draft windows. `verify` accepts all of the tree's first path in some, or half of it, or
    few.

    Along that path each draft becomes the target's choice of the round before.
    """
    if script.tree is None:
        return script
    list(_run_all(engine, script, [graph]))  # fills the caches
    path = [0]
    while children := script.tree.children[path[-1]]:
        path.append(children[0])
    size = script.tree.drafts
    drafts = [[row[script.rounds_at], *np.resize(row, size).tolist()] for row in script.texts]
    rounds = [tuple(map(tuple, drafts))]
    for depth, node in enumerate(path[1:], 1):
        (found,) = _run_all(engine, replace(script, widths=[], rounds=(rounds[-1],)), [graph])
        for row, tokens in enumerate(drafts):
            tokens[node] = int(found["path"][row, min(depth, int(found["n_path"][row]))])
        rounds.append(tuple(map(tuple, drafts)))
    return replace(script, rounds=(rounds[-1], rounds[len(rounds) // 2], rounds[0], rounds[-1]))


def windows(script: Schedule, graphs: Sequence[Graph]) -> Iterator[ScheduledWindow]:
    """Yield all windows of a round's graphs. In a `step`, with tree drafts, and with states that advance over accepted
    tokens, the text is given."""
    script, names, is_given = overlapped(script, graphs), {graph.name for graph in graphs}, all_given(graphs)
    for step, (width, fed, committed) in enumerate(script.windows()):
        texts = zip(script.texts, committed, strict=True)
        path = np.array([text[start : start + width + 1] for text, start in texts])
        given = fed if is_given else [min(n, 1) for n in fed]
        yield _window(graphs, script, step, path, given, fed, committed)
    if "draft" in names and len(names) == 1:
        return
    for step, tokens in enumerate(script.rounds):
        batch = len(tokens)
        path = np.concatenate([np.array(tokens), np.zeros((batch, 1), np.int64)], 1)
        counts = [1] * batch, [path.shape[1] - 1] * batch, [script.rounds_at] * batch
        before = tuple(_from_the_beginning(graphs, script)) if carries(graphs) else ()
        yield replace(_window(graphs, script, step, path, *counts), drafted=True, before=before, is_told=False)


def _from_the_beginning(graphs: Sequence[Graph], script: Schedule) -> Iterator[ScheduledWindow]:
    """Yield the text before a round of drafts again: states cannot go back."""
    batch, start = len(script.texts), 0
    while start < script.rounds_at:
        width = min(script.chunk, script.rounds_at - start)
        path = np.array([text[start : start + width + 1] for text in script.texts])
        yield _window(graphs, script, 0, path, [width] * batch, [width] * batch, [start] * batch)
        start += width


def overlapped(script: Schedule, graphs: Iterable[Graph]) -> Schedule:
    """Return the schedule as the runtime feeds a drafter that pairs features with the next token: if one graph makes
    the path and drafts, a window ends with the target's prediction, which the next window repeats."""
    is_fused = any(graph.name == "step" for graph in graphs)
    return replace(script, overlap=1) if is_fused and pairs_next(graphs) else script


def _window(
    graphs: Sequence[Graph],
    script: Schedule,
    step: int,
    path: Array,
    given: list[int],
    fed: list[int],
    committed: list[int],
) -> ScheduledWindow:
    width = path.shape[1] - 1
    widths = {BATCH: len(fed), "window": width, "logit_rows": width, "catch_up": width + 1, "history": 8}
    widths |= {"allowed": allowed_width(graphs, step), ADJUSTED: 8}
    values = {
        "window": path[:, :width],
        "path": path,
        "n_path": np.array(fed),
        "n_given": np.array(given),
        "n_total": np.array(fed),
        "length": np.array(committed),
    }
    values |= source_values(graphs, script.sources, script.features)
    inputs = (t for graph in graphs for t in graph.inputs if t.role in ("io", "link") and t.buffer not in values)
    for tensor in list(inputs):
        values[tensor.buffer] = make_input(tensor, tensor.concrete_shape(widths), step, path, script.tree or chain(1))
    is_told = (pairs_next(graphs) or script.told) and not script.overlap
    return ScheduledWindow(widths, values, fed, committed, drafted=False, is_told=is_told)


def drive(engine: Engine, script: Schedule, graphs: Sequence[Graph]) -> Outputs:
    """Run the schedule through the graphs of a round, `verify`, `draft`, both or `step`, with all optional outputs.

    The host moves `length`, not the acceptance.
    """
    text = replace(script, rounds=())
    outputs = [*_run_all(engine, text, graphs), committed_states(engine, graphs, script)]
    return outputs + list(_run_all(engine, replace(script, widths=[]), graphs))


def run_alone(engine: Engine, script: Schedule, graphs: Sequence[Graph], name: str) -> Outputs:
    """Run one graph over the windows of a round of `graphs`, text and drafts, and return its outputs."""
    (graph,) = (each for each in graphs if each.name == name)
    encode_sources(engine, script.sources, script.features)
    return [_run_window(engine, window, [graph]) for window in windows(script, graphs)]


def _run_all(engine: Engine, script: Schedule, graphs: Sequence[Graph]) -> Iterator[dict[str, Array]]:
    encode_sources(engine, script.sources, script.features)
    title, count = " and ".join(graph.name for graph in graphs), sum(1 for _ in windows(script, graphs))
    with progress_counter(f"running {title}", count, "windows") as advance:
        for window in windows(script, graphs):
            yield _run_window(engine, window, graphs)
            advance(1)


def _run_window(engine: Engine, window: ScheduledWindow, graphs: Sequence[Graph]) -> dict[str, Array]:
    _go_back(engine, window, graphs)
    made = {t.buffer for graph in graphs[:-1] for t in graph.outputs}  # one graph passes it to the next
    optional = {graph.name: tuple(t.name for t in graph.outputs if t.role == "optional") for graph in graphs}
    runs = [engine.bind(name, window.widths, its) for name, its in optional.items()]
    for tensor in (t for graph in graphs for t in graph.inputs if t.role in ("io", "link")):
        if tensor.buffer not in made:
            engine.host_view(tensor.buffer, tensor.concrete_shape(window.widths))[:] = window.input(tensor)
    found: dict[str, Array] = {}
    for run, graph in zip(runs, graphs, strict=True):
        run()
        found |= _read(engine, graph, window.widths)
        if window.is_told and graph is not graphs[-1]:
            found["path"] = _tell_next(engine, window)
    return found


def _go_back(engine: Engine, window: ScheduledWindow, graphs: Sequence[Graph]) -> None:
    """Run the windows before a round again. What outlives requests stays: the drafter has read them once."""
    sizes = {BATCH: len(window.fed)}
    states = {t.buffer: t.concrete_shape(sizes) for graph in graphs for t in graph.inputs if t.role == "state"}
    lasting = (name for name in states if name.startswith(PERSISTENT_PREFIX))
    kept = {name: engine.host_view(name, states[name]).copy() for name in lasting}
    for each in window.before:
        _run_window(engine, each, graphs)
    for name, values in kept.items():
        engine.write_state(name, values)


def _tell_next(engine: Engine, window: ScheduledWindow) -> Array:
    """Return the path with the text's next token instead of the target's prediction, as the runtime writes it."""
    told = window.values["path"]
    path = engine.host_view("path", told.shape)
    for row, fed in enumerate(window.fed):
        if fed:
            path[row, fed] = told[row, fed]
    return path.copy()


def _read(engine: Engine, graph: Graph, widths: Mapping[str, int]) -> dict[str, Array]:
    outputs = (t for t in graph.outputs if t.role != "state")
    return {t.name: engine.host_view(t.buffer, t.concrete_shape(dict(widths))).copy() for t in outputs}


def committed_states(engine: Engine, graphs: Sequence[Graph], script: Schedule) -> dict[str, Array]:
    """Return the used part of the states that these graphs update, after the schedule."""
    states = (
        (t, t.buffer.removeprefix(OUT_OF_PLACE_PREFIX)) for graph in graphs for t in graph.outputs if t.role == "state"
    )
    written = ((cache, cache.buffer) for graph in graphs for cache in graph.write_after_run.values())
    sizes = {BATCH: len(script.texts)}
    arrays = {name: engine.host_view(name, t.concrete_shape(sizes)) for t, name in (*states, *written)}
    return committed_part(arrays, overlapped(script, graphs))


def committed_part(arrays: Mapping[str, Array], script: Schedule) -> dict[str, Array]:
    """Return the committed part of every state, without rows that will be repeated. Persistent and recurrent states are
    whole."""
    found = {}
    for name, whole in arrays.items():
        for row, end in enumerate(script.ends):
            if name.startswith(PERSISTENT_PREFIX) or is_recurrent_state(name):
                found[name] = whole.copy()
                break
            used = end - script.overlap
            found[f"{name} row {row}"] = (whole[row, :, :used] if whole.ndim == 4 else whole[row, :used]).copy()
    return found
