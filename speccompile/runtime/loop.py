"""The loop: prefill, then rounds. It knows graphs, buffers and counts, and no drafter."""

from collections.abc import Iterator, Sequence
from time import perf_counter

from speccompile.bundle.manifest import Manifest
from speccompile.runtime.engine import Array, Engine, Run
from speccompile.runtime.generation import Row


class Loop:
    """Runs one batch at a time over one engine's buffers."""

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self.engine, self.batch = engine, manifest.batch_size
        self.chunk, self.tokens, self.catch_up = manifest.prefill_chunk, manifest.tokens, manifest.catch_up
        self.fused = engine.has("step")
        self.can_draft = self.fused or engine.has("draft")
        counts = (self.batch,)
        self.length, self.n_path = engine.array("length", counts), engine.array("n_path", counts)
        self.n_given, self.n_total = engine.array("n_given", counts), engine.array("n_total", counts)
        self._rounds: dict[tuple[int, int, bool], _Round] = {}
        self.seconds = {"prefill": 0.0, "verify": 0.0, "draft": 0.0}

    def generate(self, rows: Sequence[Row], speculative: bool) -> Iterator[None]:
        """Run until every row has ended; yields after the prefill and after every round, rows updated."""
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        start = perf_counter()
        self._prefill(rows, speculative)
        self.seconds = {"prefill": perf_counter() - start, "verify": 0.0, "draft": 0.0}
        yield
        width = self.tokens + 1 if speculative else 1
        decode = self._round(width, width, speculative)
        while any(row.active for row in rows):
            for index, row in enumerate(rows):
                self.n_given[index] = row.active
            self._run(decode, rows)
            yield

    def _prefill(self, rows: Sequence[Row], speculative: bool) -> None:
        """All prompts in chunks. Shorter prompts begin later, so that all end together."""
        self.length[:] = 0
        chunks = [[row.prompt[i : i + self.chunk] for i in range(0, len(row.prompt), self.chunk)] for row in rows]
        n_chunks = max(len(parts) for parts in chunks)
        for index in range(n_chunks):
            parts = [part[index - n_chunks] if index - n_chunks >= -len(part) else [] for part in chunks]
            forward = self._round(max(map(len, parts)), 1, speculative)
            self.n_given[:] = 0
            for b, part in enumerate(parts):
                forward.window[b, : len(part)] = part
                self.n_given[b] = len(part)
            self.n_total[:] = self.n_given
            self._run(forward, rows if index == n_chunks - 1 else ())

    def _run(self, forward: "_Round", rows: Sequence[Row]) -> None:
        """One round: verify, read what was accepted, draft. `rows` take the tokens; none do in a prefill's middle.

        A fused step has drafted by the time its path is read. Its time counts as verification.
        """
        start = perf_counter()
        forward.verify()
        self.seconds["verify"] += perf_counter() - start
        # as plain numbers: numpy's arithmetic on a few of them costs twenty times theirs
        given, n_path = self.n_given.tolist(), self.n_path.tolist()
        for index, row in enumerate(rows):
            if row.active:
                row.take(forward.path[index, given[index] : n_path[index] + 1].tolist())
        if rows and not any(row.active for row in rows):
            return
        if forward.draft is not None:
            start = perf_counter()
            forward.draft()
            self.seconds["draft"] += perf_counter() - start
        elif forward.drafted is not None:
            forward.next_window[:], self.n_total[:] = forward.drafted
        else:
            for index, end in enumerate(n_path):
                forward.next_window[index, 0] = forward.path[index, end]
                self.n_total[index] = 1
        for index, committed in enumerate(n_path):
            self.length[index] += committed
        for index, row in enumerate(rows):
            if not row.active:
                self.length[index] = 0  # so that no other row's attention is made longer by an idle one

    def _round(self, window: int, logit_rows: int, speculative: bool) -> "_Round":
        """The round's graphs bound at these widths, once."""
        key = (window, logit_rows, speculative)
        if key not in self._rounds:
            catch_up = self.catch_up if logit_rows > 1 else window + 1
            widths = {"window": window, "logit_rows": logit_rows, "catch_up": catch_up}
            self._rounds[key] = _Round(self, widths, speculative)
        return self._rounds[key]


class _Round:
    """One round at fixed widths: its graphs, and the arrays that the host reads and writes."""

    def __init__(self, loop: Loop, widths: dict[str, int], speculative: bool) -> None:
        engine, batch, window = loop.engine, loop.batch, widths["window"]
        fused = speculative and loop.fused
        self.verify: Run = engine.bind("step" if fused else "verify", widths)
        self.draft: Run | None = engine.bind("draft", widths) if speculative and not fused else None
        self.window = engine.array("window", (batch, window))
        self.path = engine.array("path", (batch, window + 1))
        self.next_window = engine.array("window", (batch, loop.tokens + 1 if speculative else 1))
        self.drafted: tuple[Array, Array] | None = None
        if fused:
            drafts = engine.array("next_window", (batch, loop.tokens + 1))
            self.drafted = drafts, engine.array("next_total", (batch,))
