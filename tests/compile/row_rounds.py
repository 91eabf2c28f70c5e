"""Rounds of a bundle over some rows of its batch, driven buffer by buffer: what a row is given depends on the row and
on the round alone, whatever rows are beside it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from speccompile.bundle import open_bundle
from speccompile.bundle.buffers import buffers
from speccompile.compiler.prove.feeds import SETTINGS
from speccompile.contract import BATCH, NEXT_ROUND_INPUTS, PERSISTENT_PREFIX, Graph, Tensor
from speccompile.runtime.devices.engine import Array
from speccompile.runtime.devices.onnxruntime import OnnxRuntimeEngine
from tests import zoo

TEXT = (7, 3)
"""Widths in which every row's text is given."""
DECODED = 4
"""Rounds behind it."""
LANES = 16
"""Numbers of the widest vector."""
UNTOUCHED = 77
"""What stands in the lines of rows that are not run."""

_OFF = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}

Lines = dict[str, Array]
"""Buffer -> a row's line."""


@dataclass
class Played:
    """rounds: of each row, what every round gave it; windows: what it was given in each round of decoding, with the
    number of its tokens and their parents; states: its line of every state, behind all rounds; others: what is not
    as it was of the lines of other rows."""

    rounds: dict[int, list[Lines]] = field(default_factory=dict)
    windows: dict[int, list[Lines]] = field(default_factory=dict)
    states: dict[int, Lines] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


class Rows:
    """A bundle's engine, for runs over `rows`, the first of which plays the part of row `first`."""

    def __init__(self, folder: Path, rows: range, first: int) -> None:
        self.manifest = open_bundle(folder, verify=False).manifest
        (entry,) = self.manifest.engines
        batch = self.manifest.batch_size
        self.engine = OnnxRuntimeEngine(folder, entry, 1, batch_size=batch)
        self.rows, self.first, self.batch = rows, first, batch
        by_name = {graph.name: graph for graph in entry.graphs}
        self.graphs = [by_name["step"]] if "step" in by_name else list(by_name.values())
        self.tokens, self.length, self.touched = self.manifest.tokens, np.zeros(len(rows), np.int64), set[str]()

    def lines(self, tensor: Tensor, widths: dict[str, int]) -> Array:
        """Return the lines of a run; those of the batch that the run leaves are marked the first time."""
        scratch = tensor.role in ("link", "optional")
        sizes = widths | {BATCH: len(self.rows) if scratch else self.batch}
        array = self.engine.host_view(tensor.buffer, tensor.concrete_shape(sizes))
        is_by_row = tensor.shape and (tensor.is_batched or self.batch == 1) and not is_shared(tensor.buffer)
        if scratch or not is_by_row:
            return array
        key = f"{tensor.buffer} {array.shape}"
        if key not in self.touched:
            self.touched.add(key)
            outside = [row for row in range(self.batch) if row not in self.rows]
            array[outside] = UNTOUCHED
        return array[self.rows.start : self.rows.stop]

    def run(self, step: int, widths: dict[str, int], window: Array, counts: dict[str, Array], parents: Array) -> Lines:
        """Run one round. window int64 [n, W], counts and parents of the run's rows. Returns what it gave, [n, ..]."""
        given = {"window": window, **counts, "parents": parents}
        made = {tensor.buffer for graph in self.graphs[:-1] for tensor in graph.outputs if tensor.role != "state"}
        found: Lines = {}
        for graph in self.graphs:
            optional = [tensor.name for tensor in graph.outputs if tensor.role == "optional"]
            run = self.engine.bind(graph.name, widths, optional, rows=self.rows)
            for tensor in (each for each in graph.inputs if each.role in ("io", "link") and each.buffer not in made):
                lines = self.lines(tensor, widths)
                lines[:] = given[tensor.buffer] if tensor.buffer in given else self.value(tensor, step, lines.shape)
            for tensor in (each for each in (*graph.inputs, *graph.outputs) if each.role == "state"):
                self.lines(tensor, widths)
            run()
            outputs = [tensor for tensor in graph.outputs if tensor.role != "state"]
            found |= {tensor.name: self.lines(tensor, widths).copy() for tensor in outputs}
        return found

    def value(self, tensor: Tensor, step: int, shape: Sequence[int]) -> Array:
        """Return an input of the host's beside tokens and counts, row by row."""
        rows = []
        for row in range(self.first, self.first + len(self.rows)):
            random = np.random.Generator(np.random.Philox([step, row, len(tensor.buffer)]))
            if tensor.buffer in _OFF:
                rows.append(np.full(shape[1:], (_OFF | SETTINGS[(row + 1) % len(SETTINGS)])[tensor.buffer]))
            elif tensor.dtype == "int64":  # of history, and of drafts that nobody has drawn
                rows.append(np.broadcast_to(np.arange(3, 3 + shape[-1]), shape[1:]))
            else:
                rows.append(random.random(shape[1:], np.float32) / max(1, len(shape) - 1) ** 4)
        return np.array(rows)


def is_shared(buffer: str) -> bool:
    """Return whether it is a table of all rows together."""
    return buffer.startswith(PERSISTENT_PREFIX) and not buffer.endswith("window")


def play(folder: Path, rows: range, first: int | None = None, windows: dict[int, list[Lines]] | None = None) -> Played:
    """Return every row's text, then rounds of decoding over the drafts, or over `windows` of an earlier play."""
    run, played = Rows(folder, rows, rows.start if first is None else first), Played()
    parts = range(run.first, run.first + len(rows))
    texts = {row: np.random.default_rng(row).integers(3, zoo.VOCABULARY, sum(TEXT)) for row in parts}
    played.rounds, played.windows = {row: [] for row in parts}, {row: [] for row in parts}
    found: Lines = {}
    for step in range(len(TEXT) + DECODED):
        is_text, n = step < len(TEXT), len(rows)
        width = TEXT[step] if is_text else run.tokens + 1
        if is_text:
            start = sum(TEXT[:step])
            window = np.array([texts[row][start : start + width] for row in parts])
            total, parents = np.full(n, width), np.tile(np.arange(-1, run.tokens), (n, 1))
        else:
            decoded = [_next(run, found, at, row, windows, step - len(TEXT)) for at, row in enumerate(parts)]
            for row, each in zip(parts, decoded, strict=True):
                played.windows[row].append(each)
            window, total, parents = (np.array([each[k] for each in decoded]) for k in ("window", "n_total", "parents"))
        catch_up = width + 1 if is_text else run.manifest.catch_up
        widths = {"window": width, "logit_rows": 1 if is_text else width, "catch_up": catch_up, "history": 4}
        counts = {"n_given": np.full(n, width if is_text else 1), "n_total": total, "length": run.length}
        found = run.run(step, widths, window, counts, parents)
        run.length = run.length + found["n_path"]
        for at, row in enumerate(parts):
            played.rounds[row].append({name: lines[at] for name, lines in found.items()})
    _read_states(run, played, parts)
    return played


def _next(
    run: Rows, found: Lines, at: int, row: int, windows: dict[int, list[Lines]] | None, step: int
) -> dict[str, Array]:
    """Return a row's next window: that of `windows`, what the last round has drafted, or the pending token and its
    text."""
    if windows is not None:
        return windows[row][step]
    parents = found.get("next_parents", np.tile(np.arange(-1, run.tokens), (len(run.rows), 1)))[at]
    if "next_window" in found:
        return {"window": found["next_window"][at], "n_total": found["next_total"][at], "parents": parents}
    pending = found["path"][at, found["n_path"][at]]
    drafts = np.random.default_rng([row, step]).integers(3, zoo.VOCABULARY, run.tokens)
    return {"window": np.array([pending, *drafts]), "n_total": np.array(1 + run.tokens), "parents": parents}


def _read_states(run: Rows, played: Played, parts: range) -> None:
    states = {tensor.buffer: tensor for graph in run.graphs for tensor in graph.outputs if tensor.role == "state"}
    played.states = {row: {} for row in parts}
    for name, tensor in states.items():
        if not is_shared(name):
            for at, row in enumerate(parts):
                played.states[row][name] = run.lines(tensor, {})[at].copy()
    for (name, shape), array in run.engine._arrays.items():
        if f"{name} {shape}" in run.touched:
            outside = [row for row in range(run.batch) if row not in run.rows]
            if not (array[outside] == UNTOUCHED).all():
                played.others.append(name)


def differing(one: Played, other: Played, row: int, *, verified_alone: bool) -> list[str]:
    """Return what of a row is not the same, bit for bit. verified_alone: without what is drafted."""
    drafted = {*NEXT_ROUND_INPUTS, *(PERSISTENT_PREFIX + name for name in ("window",))} if verified_alone else set()
    pairs = [*zip(one.rounds[row], other.rounds[row], strict=True), (one.states[row], other.states[row])]
    found = []
    for step, (ours, theirs) in enumerate(pairs):
        assert ours.keys() == theirs.keys()
        found += [f"{step}: {k}" for k in ours.keys() - drafted if not _is_same(k, ours[k], theirs[k])]
    return found


def _is_same(name: str, ours: Array, theirs: Array) -> bool:
    """Compare bit for bit, but for next_probs of tiny drafters: unless a row is whole vectors, ONNX Runtime's
    Exp and sums depend on its address."""
    if name == "next_probs" and ours.shape[-1] % LANES:
        return np.allclose(ours, theirs, rtol=1e-6, atol=1e-7)
    return ours.tobytes() == theirs.tobytes()


def shares_a_table(graphs: Sequence[Graph]) -> bool:
    """Return whether rows draft from what other rows have said."""
    return any(is_shared(buffer.name) for buffer in buffers(graphs))
