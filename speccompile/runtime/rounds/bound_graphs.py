"""The graphs of a round bound to their buffers, once for every set of widths, and the arrays that the host sees."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

from speccompile.bundle.manifest import Manifest
from speccompile.contract import BATCH, NEXT_ROUND_INPUTS
from speccompile.runtime.devices.engine import Array, Engine, Run
from speccompile.runtime.logprobs import Logprobs, find_logprobs

Key = TypeVar("Key", bound=Hashable)
Bound = TypeVar("Bound")


MAX_BINDINGS = 256
"""Runs that stay bound. A batch of rows has as many ranges as pairs of them, and prompts end with parts of any width:
bound are those that were used last, which decoding uses again and again."""


class CatchUp(NamedTuple):
    """A run of the drafter alone. path int64 [B, W + 1]: what it reads."""

    run: Run
    path: Array


class BoundGraphs:
    """A bundle's counts, and what of its graphs has been bound."""

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self.engine, self.batch, self.tokens = engine, manifest.batch_size, manifest.tokens
        self.chunk, self.decoding_catch_up = manifest.prefill_chunk, manifest.catch_up
        self.graphs = {graph.name: graph for graph in manifest.graphs}
        self.supports_batch_slices: bool = engine.supports_batch_slices
        """Whether a run may be over some rows alone."""
        counts = (self.batch,)
        self.length, self.n_path = engine.host_view("length", counts), engine.host_view("n_path", counts)
        self.n_given, self.n_total = engine.host_view("n_given", counts), engine.host_view("n_total", counts)
        self._forwards: dict[tuple[int, int, int, bool, bool, bool, range, int], VerifyPass] = {}
        self._catch_ups: dict[tuple[int, int, range], CatchUp] = {}

    def forward(
        self,
        window: int,
        logit_rows: int,
        history: int,
        *,
        fused: bool,
        logprobs: bool,
        rows: range | None = None,
        fed: bool = False,
        allowed: int = 1,
    ) -> "VerifyPass":
        """A run of the target at these widths. fused: of the `step` graph, which drafts as well; rows: of the batch, by
        default all; fed: whether it is given a text, all of which the drafter reads."""
        key = (window, logit_rows, history, fused, logprobs, fed, range(self.batch) if rows is None else rows, allowed)
        return _recent(self._forwards, key, lambda: VerifyPass(self, *key))

    def catch_up(self, tokens: int, history: int, rows: range) -> CatchUp:
        """A run of the drafter over so many committed tokens and the next. Few widths serve all numbers of them."""
        width = min(1 << (tokens - 1).bit_length(), self.chunk)
        key = (width, history, rows)
        return _recent(self._catch_ups, key, lambda: self._catch_up(*key))

    def _catch_up(self, width: int, history: int, rows: range) -> CatchUp:
        widths = {"window": width, "catch_up": width + 1, "history": history}
        path = self.engine.host_view("path", (self.batch, width + 1))
        return CatchUp(self.engine.bind("draft", widths, rows=rows), path)


def _recent(bound: dict[Key, Bound], key: Key, make: Callable[[], Bound]) -> Bound:
    """What is bound under a key, made where nothing is; the one that was not used for longest goes for it."""
    found = bound.pop(key) if key in bound else make()
    bound[key] = found
    if len(bound) > MAX_BINDINGS:
        del bound[next(iter(bound))]
    return found


class VerifyPass:
    """The target over a window, the arrays around it, and the draft that reads its path. Arrays have a line for every
    row of the batch."""

    def __init__(
        self,
        rounds: BoundGraphs,
        window: int,
        logit_rows: int,
        history: int,
        fused: bool,
        logprobs: bool,
        fed: bool,
        rows: range,
        allowed: int,
    ) -> None:
        catch_up = rounds.decoding_catch_up if logit_rows > 1 and not fed else window + 1
        widths = {"window": window, "logit_rows": logit_rows, "catch_up": catch_up, "history": history}
        widths["allowed"] = allowed
        engine, graph = rounds.engine, rounds.graphs["step" if fused else "verify"]
        self._engine, self._widths, self.history, self.fused, self.rows = engine, widths, history, fused, rows
        self.verify: Run = engine.bind(graph.name, widths, ("logits",) if logprobs else (), rows)
        self.window = engine.host_view("window", (rounds.batch, window))
        self.path = engine.host_view("path", (rounds.batch, window + 1))
        shapes = {tensor.name: tensor.concrete_shape(widths | {BATCH: rounds.batch}) for tensor in graph.outputs}
        lines = slice(rows.start, rows.stop)
        self._copies = [
            (
                engine.host_view(name, shapes[name])[lines],
                engine.host_view(NEXT_ROUND_INPUTS[name], shapes[name])[lines],
            )
            for name in NEXT_ROUND_INPUTS
            if name in shapes
        ]
        self._nodes = engine.host_view("nodes", shapes["nodes"]) if "nodes" in shapes else None
        # An optional output is of one run: it has the lines of its rows alone.
        self.logits = engine.host_view("logits", (len(rows), *shapes["logits"][1:])) if logprobs else None
        """float32 [rows, logit_rows, V], where the run was bound with them."""

    @cached_property
    def draft(self) -> Run:
        """The drafter over the path of this run: it writes the window of the next round."""
        return self._engine.bind("draft", self._widths, rows=self.rows)

    def copy_next_inputs(self) -> None:
        """Make what a `step` has drafted the window of the next round."""
        for drafted, destination in self._copies:
            destination[:] = drafted

    def logprobs(self, index: int, tokens: Sequence[int], n_best: int) -> Logprobs:
        """Log-probabilities of a row's new tokens of this round, and of the best ones at their places."""
        assert self.logits is not None, "the round was bound without logits"
        logits = self.logits[index - self.rows.start]
        places = self._nodes[index, : len(tokens)] if self._nodes is not None else slice(len(tokens))
        return find_logprobs(logits[places], tokens, n_best)


def right_aligned_chunks(spans: Sequence[range], size: int, overlap: int = 0) -> Iterator[list[range]]:
    """Spans in parts of at most `size`, one part of each at a time. Shorter ones begin later, so that all end together.

    A part begins with the last `overlap` of the part before it. The part of a span that has not begun is empty, at its
    start.
    """
    stride = size - overlap
    counts = [max(-(-(len(span) - overlap) // stride), min(len(span), 1)) for span in spans]
    for left in range(max(counts, default=0), 0, -1):
        starts = [max(0, count - left) * stride for count in counts]
        yield [
            span[start : start + size] if count >= left else span[:0]
            for span, start, count in zip(spans, starts, counts, strict=True)
        ]
