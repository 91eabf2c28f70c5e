"""Graphs of a round, bound to their buffers once for every combination of widths, and the host's views of the
buffers."""

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
"""Maximum number of bound runs. A batch has a slice for every pair of slots, and the last chunk of a prompt has any
width. The most recently used runs stay bound, which decoding uses again and again."""


class CatchUp(NamedTuple):
    """Run of the drafter alone. path int64 [B, W + 1]: the tokens that it reads."""

    run: Run
    path: Array


class RunInfo(NamedTuple):
    """One run of the target. width: of the decoding window; prefill_tokens: most prompt tokens of a slot, 0 in a round;
    is_reread: committed tokens that a drafter missed run again; is_first: no run had these sizes before; nodes: of
    trees int64 [B, R], the node before each new token of a slot."""

    width: int
    prefill_tokens: int
    is_reread: bool
    is_first: bool
    nodes: Array | None = None


class BoundGraphs:
    """Counts of a bundle's round, and the runs of its graphs that have been bound."""

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self.engine, self.batch, self.tokens = engine, manifest.batch_size, manifest.tokens
        self.chunk, self.decoding_catch_up = manifest.prefill_chunk, manifest.catch_up
        self.graphs = {graph.name: graph for graph in manifest.graphs}
        self.supports_batch_slices: bool = engine.supports_batch_slices
        """True if a run may cover a slice of the batch slots."""
        counts = (self.batch,)
        self.length, self.n_path = engine.host_view("length", counts), engine.host_view("n_path", counts)
        self.n_given, self.n_total = engine.host_view("n_given", counts), engine.host_view("n_total", counts)
        self._forwards: dict[tuple[int, int, int, bool, bool, bool, range, int, int, int], VerifyPass] = {}
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
        media: int = 1,
        adjusted: int = 1,
    ) -> "VerifyPass":
        """Return the target's pass at these widths. fused: the pass of the `step` graph, which also drafts; rows: its
        batch slots, by default all; fed: the pass is part of a prefill, all of whose tokens the drafter reads."""
        rows = range(self.batch) if rows is None else rows
        key = (window, logit_rows, history, fused, logprobs, fed, rows, allowed, media, adjusted)
        return _recent(self._forwards, key, lambda: VerifyPass(self, *key))

    def catch_up(self, tokens: int, history: int, rows: range) -> CatchUp:
        """Return the drafter's run over `tokens` committed tokens and the next one. Widths are powers of two, so that
        few widths serve all numbers of tokens."""
        width = min(1 << (tokens - 1).bit_length(), self.chunk)
        key = (width, history, rows)
        return _recent(self._catch_ups, key, lambda: self._catch_up(*key))

    def _catch_up(self, width: int, history: int, rows: range) -> CatchUp:
        widths = {"window": width, "catch_up": width + 1, "history": history}
        path = self.engine.host_view("path", (self.batch, width + 1))
        return CatchUp(self.engine.bind("draft", widths, rows=rows), path)


def _recent(bound: dict[Key, Bound], key: Key, make: Callable[[], Bound]) -> Bound:
    """Return the binding of `key`, made if absent. Beyond `MAX_BINDINGS`, drop the least recently used binding."""
    found = bound.pop(key) if key in bound else make()
    bound[key] = found
    if len(bound) > MAX_BINDINGS:
        del bound[next(iter(bound))]
    return found


class VerifyPass:
    """Target pass over a window: its run, its host arrays, and the draft run that reads its path. Arrays have a line
    for every batch slot."""

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
        media: int,
        adjusted: int,
    ) -> None:
        catch_up = rounds.decoding_catch_up if logit_rows > 1 and not fed else window + 1
        widths = {"window": window, "logit_rows": logit_rows, "catch_up": catch_up, "history": history}
        widths |= {"allowed": allowed, "media": media, "adjusted": adjusted}
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
        self.nodes = engine.host_view("nodes", shapes["nodes"]) if "nodes" in shapes else None
        # An optional output belongs to one run: it has lines only for the batch slots of that run.
        self.logits = engine.host_view("logits", (len(rows), *shapes["logits"][1:])) if logprobs else None
        """float32 [rows, logit_rows, V]; None if the run was bound without logits."""
        self.has_run = self.has_drafted = False
        """True once `verify` and `draft` have run at these sizes: first runs allocate memory and take longer."""

    @cached_property
    def draft(self) -> Run:
        """Run of the drafter over the path of this pass. It writes the window of the next round."""
        return self._engine.bind("draft", self._widths, rows=self.rows)

    def copy_next_inputs(self) -> None:
        """Copy the drafts of a `step` run into the window of the next round."""
        for drafted, destination in self._copies:
            destination[:] = drafted

    def logprobs(self, index: int, tokens: Sequence[int], n_best: int) -> Logprobs:
        """Return the log-probabilities of a slot's new tokens of this round, and of the best tokens at their
        positions."""
        return find_logprobs(VerifyPass.token_logits(self, index, len(tokens)), tokens, n_best)

    def token_logits(self, index: int, count: int) -> Array:
        """Return float32 [count, V]: the logits before each of a slot's new tokens of this round."""
        assert self.logits is not None, "the round was bound without logits"
        logits: Array = self.logits[index - self.rows.start]
        return logits[self.nodes[index, :count] if self.nodes is not None else slice(count)]


Stop = Callable[[int, int], int]
"""Start of a chunk and where it would end -> where it ends, at most `size` tokens after its start."""


def right_aligned_chunks(
    spans: Sequence[range], size: int, overlap: int = 0, stops: Sequence[Stop] | None = None
) -> Iterator[list[range]]:
    """Yield one chunk of every span at a time, of at most `size` tokens. Shorter spans begin later, so that all end
    together.

    A chunk begins with the last `overlap` tokens of the chunk before it. The chunk of a span that has not begun is
    empty and lies at the start of the span. stops: of each span, by default anywhere.
    """
    chunks = [
        list(_chunks(span, size, overlap, stop))
        for span, stop in zip(spans, stops or [lambda _, stop: stop] * len(spans), strict=True)
    ]
    for left in range(max(map(len, chunks), default=0), 0, -1):
        yield [own[-left] if len(own) >= left else span[:0] for span, own in zip(spans, chunks, strict=True)]


def _chunks(span: range, size: int, overlap: int, stop_at: Stop) -> Iterator[range]:
    start = span.start
    while span:
        stop = stop_at(start + overlap, min(start + size, span.stop))
        yield range(start, stop)
        if stop >= span.stop:
            return
        start = stop - overlap
