"""How a graph is driven for the proof: a script of windows, some wide, some narrow, some rows idle.

No torch: the script runs through the runtime's own engines, whatever they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from speccompile.contract import Graph
from speccompile.runtime.engine import Array, Engine

Outputs = list[dict[str, Array]]
"""What a graph gave for each window of a script, and the used part of its states at the end."""


@dataclass(frozen=True)
class Script:
    """A text a row, and the widths in which it is fed. Later rows sit out the first windows, as ragged prompts do."""

    texts: list[list[int]]
    widths: list[int]

    def windows(self) -> Iterator[tuple[int, list[int], list[int]]]:
        """Width, tokens fed to each row (0 or width), and tokens committed in each row before."""
        committed = [0] * len(self.texts)
        for step, width in enumerate(self.widths):
            fed = [width if step >= row % 2 else 0 for row in range(len(self.texts))]
            yield width, fed, list(committed)
            committed = [a + b for a, b in zip(committed, fed, strict=True)]


def make_script(vocabulary_size: int, batch: int, max_length: int, chunk: int, longest_window: int) -> Script:
    """Random tokens; prefill, single tokens and drafts in turn, past any attention window that is not too long."""
    wanted = min(max_length, max(40, longest_window + 24 if longest_window <= 512 else 0))
    widths: list[int] = []
    for width in (min(chunk, 17), 1, 5, 1, 2):
        widths += [width] if sum(widths) + width <= wanted else []
    while sum(widths) < wanted:
        widths.append(min(chunk, 24, wanted - sum(widths)))
    random = np.random.default_rng(0)
    texts = random.integers(0, vocabulary_size, (batch, sum(widths) + 1)).tolist()
    return Script(texts, widths)


def drive(engine: Engine, script: Script, graph: Graph) -> Outputs:
    """Feed the script to `verify`, `draft` or `step`, as the loop would."""
    if graph.name == "step":
        return drive_round(engine, script, [graph])
    return (drive_verify if graph.name == "verify" else drive_draft)(engine, script, graph)


def drive_verify(engine: Engine, script: Script, graph: Graph) -> Outputs:
    """Feed the script to `verify`, asking for the logits of every row. The host moves `length`, not the acceptance."""
    return [*_windows(engine, script, [graph], all_given=False), used_states(engine, [graph], script)]


def drive_round(engine: Engine, script: Script, graphs: Sequence[Graph]) -> Outputs:
    """Feed the script to the graphs of whole rounds: `step`, or `verify` and `draft`. Every token is given."""
    return [*_windows(engine, script, graphs, all_given=True), used_states(engine, graphs, script)]


def drive_drafted(engine: Engine, script: Script, graphs: Sequence[Graph]) -> Outputs:
    """After `drive_round`, from empty caches again: two rounds that are given one token and drafts behind it.

    The first draft is the text's, then the target's own: given, accepted and fed tokens are then different numbers.
    """
    width, zeros = 4, [0] * len(script.texts)
    windows = [text[:width] for text in script.texts]
    refused = _run(engine, graphs, windows, [1] * len(windows), [width] * len(windows), zeros)
    for row, window in enumerate(windows):
        window[1] = int(refused["path"][row, 1])
    return [refused, _run(engine, graphs, windows, [1] * len(windows), [width] * len(windows), zeros)]


def _windows(engine: Engine, script: Script, graphs: Sequence[Graph], *, all_given: bool) -> Iterator[dict[str, Array]]:
    for width, fed, committed in script.windows():
        texts = zip(script.texts, committed, strict=True)
        window = [text[start : start + width] for text, start in texts]
        given = fed if all_given else [min(n, 1) for n in fed]
        yield _run(engine, graphs, window, given, fed, committed)


def _run(
    engine: Engine,
    graphs: Sequence[Graph],
    window: list[list[int]],
    n_given: list[int],
    n_total: list[int],
    length: list[int],
) -> dict[str, Array]:
    """One round over a window of tokens [B, width]: what its graphs give."""
    batch, width = len(window), len(window[0])
    widths = {"window": width, "logit_rows": width, "catch_up": width + 1}
    runs = [engine.bind(graph.name, widths, _optional(graph)) for graph in graphs]
    engine.array("window", (batch, width))[:] = window
    for name, values in (("n_given", n_given), ("n_total", n_total), ("length", length)):
        engine.array(name, (batch,))[:] = values
    found: dict[str, Array] = {}
    for run, graph in zip(runs, graphs, strict=True):
        run()
        found |= _read(engine, graph, widths)
    return found


def _optional(graph: Graph) -> tuple[str, ...]:
    return tuple(tensor.name for tensor in graph.outputs if tensor.role == "optional")


def drive_draft(engine: Engine, script: Script, graph: Graph) -> Outputs:
    """Feed the script to `draft`: each window's tokens are the accepted path, the token behind them the bonus."""
    shape, outputs = (len(script.texts),), []
    n_path, length = engine.array("n_path", shape), engine.array("length", shape)
    for width, fed, committed in script.windows():
        widths = {"window": width, "catch_up": width + 1}
        run = engine.bind("draft", widths)
        path = engine.array("path", (len(fed), width + 1))
        for row, (text, start) in enumerate(zip(script.texts, committed, strict=True)):
            path[row] = text[start : start + width + 1]
        n_path[:], length[:] = fed, committed
        run()
        outputs.append(_read(engine, graph, widths))
    return [*outputs, used_states(engine, [graph], script)]


def _read(engine: Engine, graph: Graph, widths: Mapping[str, int]) -> dict[str, Array]:
    outputs = (t for t in graph.outputs if t.role != "state")
    return {t.name: engine.array(t.buffer, t.concrete_shape(dict(widths))).copy() for t in outputs}


def used_states(engine: Engine, graphs: Sequence[Graph], script: Script) -> dict[str, Array]:
    """The used part of the states that these graphs update, when the script has been fed."""
    states = (t for graph in graphs for t in graph.outputs if t.role == "state")
    return used({t.buffer: engine.array(t.buffer, t.concrete_shape({})) for t in states}, script)


def used(arrays: Mapping[str, Array], script: Script) -> dict[str, Array]:
    """The committed part of every state: what lies behind it is never read."""
    found = {}
    for name, whole in arrays.items():
        for row in range(len(script.texts)):
            used = sum(fed[row] for _, fed, _ in script.windows())
            found[f"{name} row {row}"] = (whole[row, :, :used] if whole.ndim == 4 else whole[row, :used]).copy()
    return found
