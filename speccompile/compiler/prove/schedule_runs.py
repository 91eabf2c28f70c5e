"""Runs of a schedule through the runtime's own engines, on any backend. No torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from speccompile.compiler.prove.schedule import Schedule, ScheduledWindow, overlapped, windows
from speccompile.compiler.prove.source_feeds import encode_sources
from speccompile.contract import BATCH, OUT_OF_PLACE_PREFIX, PERSISTENT_PREFIX, Graph, is_recurrent_state
from speccompile.progress import progress_counter
from speccompile.runtime.devices.engine import Array, Engine

Outputs = list[dict[str, Array]]
"""Outputs of a graph for each window of a schedule; after the text, also the used part of its states."""


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


def with_rounds(engine: Engine, script: Schedule, graph: Graph) -> Schedule:
    """Return the schedule with draft windows. `verify` accepts all of the tree's first path in some, or half of it, or
    few.

    Along that path each draft becomes the target's choice of the round before. `run_text` fills the caches before.
    """
    if script.tree is None:
        return script
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


def run_schedule(engine: Engine, script: Schedule, graphs: Sequence[Graph]) -> Outputs:
    """Run the schedule through the graphs of a round, `verify`, `draft`, both or `step`, with all optional outputs.

    The host moves `length`, not the acceptance.
    """
    return run_text(engine, script, graphs) + run_rounds(engine, script, graphs)


def run_text(engine: Engine, script: Schedule, graphs: Sequence[Graph]) -> Outputs:
    """Run the text of the schedule, and return the outputs of its windows and the states."""
    return [*_run_all(engine, replace(script, rounds=()), graphs), committed_states(engine, graphs, script)]


def run_rounds(engine: Engine, script: Schedule, graphs: Sequence[Graph]) -> Outputs:
    """Run the draft windows of the schedule over the caches that its text has filled."""
    return list(_run_all(engine, replace(script, widths=[]), graphs))


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
