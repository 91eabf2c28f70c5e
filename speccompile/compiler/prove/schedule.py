"""How a graph is driven for the proof: a script of windows, some wide, some narrow, some rows idle, then drafts.

No torch: the script runs through the runtime's own engines, whatever they are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from speccompile.compiler.prove.feeds import make_input
from speccompile.contract import (
    BATCH,
    COMPONENTS,
    OUT_OF_PLACE_PREFIX,
    PERSISTENT_PREFIX,
    Graph,
    Tensor,
    has_recurrent_states,
    is_recurrent_state,
    vocabulary_size,
)
from speccompile.progress import progress_counter
from speccompile.runtime.devices.engine import Array, Engine
from speccompile.tree import Tree, chain

DRAFTED = "next_"
"""What the names of outputs that hold drafts begin with: tokens before numbers."""

RARE = 7
"""Every so many tokens of a text stands one that a drafter lacks, if it lacks any."""

Outputs = list[dict[str, Array]]
"""What a graph gave for each window of a script; among them, behind the text, the used part of its states."""


@dataclass(frozen=True)
class Schedule:
    """A text a row, and the widths in which it is fed. Later rows sit out the first windows, as ragged prompts do.

    tree: how drafts follow each other. rounds: windows of decoding, each the tokens of a tree's nodes in every row,
    over the text's first `rounds_at` tokens; none until `with_rounds` has found drafts that are accepted. overlap: how
    many tokens of a window of the text are given once more in the next one (see `pairs` in the contract). chunk: the
    widest window of text.
    """

    texts: list[list[int]]
    widths: list[int]
    tree: Tree | None = None
    rounds_at: int = 0
    rounds: tuple[tuple[tuple[int, ...], ...], ...] = ()
    overlap: int = 0
    chunk: int = 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"tree": None if self.tree is None else list(self.tree.parents)}

    def windows(self) -> Iterator[tuple[int, list[int], list[int]]]:
        """Width, tokens fed to each row, none or all of the window in rows that were fed before, and tokens committed
        in each row before."""
        committed = [0] * len(self.texts)
        for step, width in enumerate(self.widths):
            again = [min(self.overlap, start) for start in committed]
            fed = [width + again[row] if step >= row % 2 else 0 for row in range(len(self.texts))]
            starts = [start - more for start, more in zip(committed, again, strict=True)]
            yield max(fed), fed, starts
            committed = [a + b for a, b in zip(starts, fed, strict=True)]

    @property
    def ends(self) -> list[int]:
        """Tokens committed in each row behind the text."""
        *_, (_, fed, committed) = self.windows()
        return [a + b for a, b in zip(committed, fed, strict=True)]


@dataclass(frozen=True)
class ScheduledWindow:
    """One run of a round's graphs. values: what the host writes, by buffer; fed: tokens of each row, committed: those
    before; drafted: whether all but one of them are drafts; before: what is run first, for the states alone; is_told:
    whether the token behind a window of text takes the place of the target's guess before the draft."""

    widths: dict[str, int]
    values: dict[str, Array]
    fed: list[int]
    committed: list[int]
    drafted: bool
    before: tuple["ScheduledWindow", ...] = ()
    is_told: bool = False

    def input(self, tensor: Tensor) -> Array:
        """What an input that is no state reads."""
        shape = tensor.concrete_shape(self.widths)
        if tensor.role == "index":
            return np.arange(shape[0], dtype=tensor.dtype)
        return self.values[tensor.buffer].astype(tensor.dtype).reshape(shape)


@dataclass(frozen=True)
class Recording:
    """What a graph that drafts, `draft` or `step`, gave for a script. level: of the proof, as its rows name it.

    all_graphs: of the round that was driven, where `draft` was driven behind `verify`. links: what one graph handed on
    to the next, of every run, where the outputs do not have it.
    """

    graph: Graph
    level: str
    script: Schedule
    outputs: Outputs
    all_graphs: tuple[Graph, ...] = ()
    links: tuple[dict[str, Array], ...] = ()

    def runs(self) -> Iterator[tuple[int, ScheduledWindow, dict[str, Array]]]:
        """Every run's place in `outputs`, its window as the drafter read it, and its outputs.

        The drafter of a `step` reads the path that the target made there: `fed` is then what was accepted.
        """
        for number, window in enumerate(windows(self.script, self.all_graphs or [self.graph])):
            place = number + window.drafted  # between the text and the drafts lie the states
            outputs = self.outputs[place]
            fed = [int(n) for n in outputs.get("n_path", window.fed)]
            values = window.values | {"path": outputs.get("path", window.values["path"])}
            yield place, replace(window, fed=fed, values=values), outputs


def make_script(
    vocabulary_size: int,
    batch: int,
    max_length: int,
    chunk: int,
    longest_window: int,
    tree: Tree | None = None,
    common: int | None = None,
    *,
    repeats: bool = False,
) -> Schedule:
    """Random tokens; prefill, single tokens and drafts in turn, past any attention window that is not too long.

    common: where a drafter lacks the tokens from there on. Some stand in every text: the proof must meet them. repeats:
    the second half of every text repeats the first, so that what looks up in it finds long matches.
    """
    wanted = min(max_length, max(40, longest_window + 24 if longest_window <= 512 else 0))
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
        half = texts.shape[1] // 2
        texts[:, half : 2 * half] = texts[:, :half]
    committed = sum(widths) - (widths[0] if batch > 1 else 0)  # in the rows that have the least
    longest = max_length - 1 - (tree.depth if tree else 0)
    return Schedule(texts.tolist(), widths, tree, max(0, min(committed, longest)), chunk=chunk)


def with_rounds(engine: Engine, script: Schedule, graph: Graph) -> Schedule:
    """The script with windows of drafts, of which `verify` accepts all of the tree's first path, half of it, and few.

    Along that path each draft becomes what the target chose there the round before.
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
    """Everything that is fed to the graphs of a round. In a `step`, where drafts are a tree, and where states move on
    by what is accepted, the text is given."""
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
        before = tuple(_from_the_beginning(graphs, script)) if _carries(graphs) else ()
        yield replace(_window(graphs, script, step, path, *counts), drafted=True, before=before, is_told=False)


def _from_the_beginning(graphs: Sequence[Graph], script: Schedule) -> Iterator[ScheduledWindow]:
    """The text before a round of drafts, given once more: states have moved on, and cannot go back."""
    batch, start = len(script.texts), 0
    while start < script.rounds_at:
        width = min(script.chunk, script.rounds_at - start)
        path = np.array([text[start : start + width + 1] for text in script.texts])
        yield _window(graphs, script, 0, path, [width] * batch, [width] * batch, [start] * batch)
        start += width


def all_given(graphs: Sequence[Graph]) -> bool:
    """Whether every token of the text is given to these graphs, so that only the last one's logits are computed."""
    return {graph.name for graph in graphs} != {"verify"} or _has_tree(graphs) or _carries(graphs)


def overlapped(script: Schedule, graphs: Iterable[Graph]) -> Schedule:
    """The script as the runtime feeds it to a drafter that pairs features with the next token: where one graph makes
    the path and drafts, the last row of a window holds the target's guess, and is given once more."""
    is_fused = any(graph.name == "step" for graph in graphs)
    return replace(script, overlap=1) if is_fused and _pairs(graphs) else script


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
    widths["allowed"] = allowed_width(graphs, step)
    values = {
        "window": path[:, :width],
        "path": path,
        "n_path": np.array(fed),
        "n_given": np.array(given),
        "n_total": np.array(fed),
        "length": np.array(committed),
    }
    inputs = (t for graph in graphs for t in graph.inputs if t.role in ("io", "link") and t.buffer not in values)
    for tensor in list(inputs):
        values[tensor.buffer] = make_input(tensor, tensor.concrete_shape(widths), step, path, script.tree or chain(1))
    is_told = _pairs(graphs) and not script.overlap
    return ScheduledWindow(widths, values, fed, committed, drafted=False, is_told=is_told)


def allowed_width(graphs: Iterable[Graph], step: int) -> int:
    """How wide a window's `allowed` is: all tokens in every other one, else 1, which is everything."""
    return vocabulary_size(graphs) if step % 2 else 1


def _pairs(graphs: Iterable[Graph]) -> bool:
    return any(tensor.name == "pairs" for graph in graphs for tensor in graph.inputs)


def _has_tree(graphs: Iterable[Graph]) -> bool:
    return any(tensor.name == "nodes" for graph in graphs for tensor in graph.outputs)


def _carries(graphs: Sequence[Graph]) -> bool:
    return any(has_recurrent_states(graphs, part) for part in COMPONENTS)


def drive(engine: Engine, script: Schedule, graphs: Sequence[Graph]) -> Outputs:
    """Feed the script to the graphs of a round, `verify`, `draft`, both or `step`, asking for every optional output.

    The host moves `length`, not the acceptance.
    """
    text = replace(script, rounds=())
    outputs = [*_run_all(engine, text, graphs), committed_states(engine, graphs, script)]
    return outputs + list(_run_all(engine, replace(script, widths=[]), graphs))


def run_alone(engine: Engine, script: Schedule, graphs: Sequence[Graph], name: str) -> Outputs:
    """What one graph gives for the windows in which a round of `graphs` is driven, text and drafts."""
    (graph,) = (each for each in graphs if each.name == name)
    return [_run_window(engine, window, [graph]) for window in windows(script, graphs)]


def _run_all(engine: Engine, script: Schedule, graphs: Sequence[Graph]) -> Iterator[dict[str, Array]]:
    title, count = " and ".join(graph.name for graph in graphs), sum(1 for _ in windows(script, graphs))
    with progress_counter(f"running {title}", count, "windows") as advance:
        for window in windows(script, graphs):
            yield _run_window(engine, window, graphs)
            advance(1)


def _run_window(engine: Engine, window: ScheduledWindow, graphs: Sequence[Graph]) -> dict[str, Array]:
    for each in window.before:
        _run_window(engine, each, graphs)
    made = {t.buffer for graph in graphs[:-1] for t in graph.outputs}  # one graph gives it to the next
    runs = [engine.bind(graph.name, window.widths, _optional(graph)) for graph in graphs]
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


def _tell_next(engine: Engine, window: ScheduledWindow) -> Array:
    """The path with the text's next token in the place of the target's guess, as the runtime writes it."""
    told = window.values["path"]
    path = engine.host_view("path", told.shape)
    for row, fed in enumerate(window.fed):
        if fed:
            path[row, fed] = told[row, fed]
    return path.copy()


def _optional(graph: Graph) -> tuple[str, ...]:
    return tuple(tensor.name for tensor in graph.outputs if tensor.role == "optional")


def _read(engine: Engine, graph: Graph, widths: Mapping[str, int]) -> dict[str, Array]:
    outputs = (t for t in graph.outputs if t.role != "state")
    return {t.name: engine.host_view(t.buffer, t.concrete_shape(dict(widths))).copy() for t in outputs}


def committed_states(engine: Engine, graphs: Sequence[Graph], script: Schedule) -> dict[str, Array]:
    """The used part of the states that these graphs update, when the script has been fed."""
    states = (
        (t, t.buffer.removeprefix(OUT_OF_PLACE_PREFIX)) for graph in graphs for t in graph.outputs if t.role == "state"
    )
    sizes = {BATCH: len(script.texts)}
    arrays = {name: engine.host_view(name, t.concrete_shape(sizes)) for t, name in states}
    return committed_part(arrays, overlapped(script, graphs))


def committed_part(arrays: Mapping[str, Array], script: Schedule) -> dict[str, Array]:
    """The committed part of every state, without rows that will be given once more: what lies behind is never read.
    What is kept for longer, or carried, is whole."""
    found = {}
    for name, whole in arrays.items():
        for row, end in enumerate(script.ends):
            if name.startswith(PERSISTENT_PREFIX) or is_recurrent_state(name):
                found[name] = whole.copy()
                break
            used = end - script.overlap
            found[f"{name} row {row}"] = (whole[row, :, :used] if whole.ndim == 4 else whole[row, :used]).copy()
    return found
