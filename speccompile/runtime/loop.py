"""The loop: prefill, then rounds. It knows graphs, buffers and counts, and no drafter."""

from collections.abc import Iterator, Sequence
from time import perf_counter

from speccompile.bundle.manifest import Manifest
from speccompile.contract import COPIED
from speccompile.runtime.engine import Engine, Run
from speccompile.runtime.generation import Row
from speccompile.runtime.logprobs import chosen_logprobs
from speccompile.runtime.sampling import Sampler
from speccompile.tree import chain


class Loop:
    """Runs one batch at a time over one engine's buffers. What its graphs read and write is known by their names."""

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self.engine, self.batch = engine, manifest.batch_size
        self.chunk, self.tokens, self.catch_up = manifest.prefill_chunk, manifest.tokens, manifest.catch_up
        self.graphs = {graph.name: graph for graph in manifest.graphs}
        self.fused = engine.has("step")
        self.can_draft = self.fused or engine.has("draft")
        counts = (self.batch,)
        self.length, self.n_path = engine.array("length", counts), engine.array("n_path", counts)
        self.n_given, self.n_total = engine.array("n_given", counts), engine.array("n_total", counts)
        inputs = {tensor.name for graph in manifest.graphs for tensor in graph.inputs}
        self.sampler = Sampler(engine, manifest, inputs) if "uniforms" in inputs else None
        self._parents = engine.array("parents", (self.batch, self.tokens + 1)) if "parents" in inputs else None
        self._speculative = self._logprobs = False
        self._rounds: dict[tuple[int, int, int, bool, bool], _Round] = {}
        self.seconds = {"prefill": 0.0, "verify": 0.0, "draft": 0.0}

    def generate(self, rows: Sequence[Row], speculative: bool) -> Iterator[None]:
        """Run until every row has ended; yields after the prefill and after every round, rows updated."""
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        start = perf_counter()
        self._begin(rows, speculative)
        self._prefill(rows)
        self.seconds = {"prefill": perf_counter() - start, "verify": 0.0, "draft": 0.0}
        yield
        width = self.tokens + 1 if speculative else 1
        forward: _Round | None = None
        while any(row.active for row in rows):
            for index, row in enumerate(rows):
                self.n_given[index] = row.active
            if forward is None or self.sampler is not None:  # what sampling reads is new in every round
                forward = self._round(width, width, rows)
            self._run(forward, rows)
            yield

    def _begin(self, rows: Sequence[Row], speculative: bool) -> None:
        self._speculative, self._logprobs = speculative, any(row.logprobs is not None for row in rows)
        self.length[:] = 0
        if self._parents is not None:
            self._parents[:] = chain(self.tokens).parents  # a tree, until there are drafts
        if self.sampler is not None:
            self.sampler.begin(rows, drafting=speculative)

    def _prefill(self, rows: Sequence[Row]) -> None:
        """All prompts in chunks. Shorter prompts begin later, so that all end together."""
        chunks = [[row.prompt[i : i + self.chunk] for i in range(0, len(row.prompt), self.chunk)] for row in rows]
        n_chunks = max(len(parts) for parts in chunks)
        for index in range(n_chunks):
            parts = [part[index - n_chunks] if index - n_chunks >= -len(part) else [] for part in chunks]
            taking = rows if index == n_chunks - 1 else ()
            forward = self._round(max(map(len, parts)), 1, taking)
            self.n_given[:] = 0
            for b, part in enumerate(parts):
                forward.window[b, : len(part)] = part
                self.n_given[b] = len(part)
            self.n_total[:] = self.n_given
            self._run(forward, taking)

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
                tokens = forward.path[index, given[index] : n_path[index] + 1].tolist()
                row.take(tokens, forward.logprobs(index, tokens) if row.logprobs is not None else ())
        if rows and not any(row.active for row in rows):
            return
        self._draft(forward, n_path)
        for index, committed in enumerate(n_path):
            self.length[index] += committed
        for index, row in enumerate(rows):
            if not row.active:
                self.length[index] = 0  # so that no other row's attention is made longer by an idle one

    def _draft(self, forward: "_Round", n_path: list[int]) -> None:
        """The window of the next round: with drafts, or the bonus token alone."""
        if forward.draft is not None:
            start = perf_counter()
            forward.draft()
            self.seconds["draft"] += perf_counter() - start
        elif forward.copies:
            for drafted, destination in forward.copies:
                destination[:] = drafted
        else:
            for index, end in enumerate(n_path):
                forward.next_window[index, 0] = forward.path[index, end]
                self.n_total[index] = 1

    def _round(self, window: int, logit_rows: int, rows: Sequence[Row]) -> "_Round":
        """The round's graphs, bound at these widths once, and the inputs of those of `rows` that sample."""
        history = 1
        if self.sampler is not None:
            self.sampler.write(rows, logit_rows)
            history = self.sampler.history.width
        key = (window, logit_rows, history, self._speculative, self._logprobs)
        if key not in self._rounds:
            catch_up = self.catch_up if logit_rows > 1 else window + 1
            widths = {"window": window, "logit_rows": logit_rows, "catch_up": catch_up, "history": history}
            self._rounds[key] = _Round(self, widths, self._speculative, self._logprobs)
        return self._rounds[key]


class _Round:
    """One round at fixed widths: its graphs, and the arrays that the host reads and writes."""

    def __init__(self, loop: Loop, widths: dict[str, int], speculative: bool, logprobs: bool) -> None:
        engine, batch, window = loop.engine, loop.batch, widths["window"]
        fused = speculative and loop.fused
        first = loop.graphs["step" if fused else "verify"]
        self.verify: Run = engine.bind(first.name, widths, ("logits",) if logprobs else ())
        self.draft: Run | None = engine.bind("draft", widths) if speculative and not fused else None
        self.window = engine.array("window", (batch, window))
        self.path = engine.array("path", (batch, window + 1))
        self.next_window = engine.array("window", (batch, loop.tokens + 1 if speculative else 1))
        shapes = {tensor.name: tensor.concrete_shape(widths) for tensor in first.outputs}
        drafted = [name for name in COPIED if name in shapes]
        self.copies = [(engine.array(name, shapes[name]), engine.array(COPIED[name], shapes[name])) for name in drafted]
        self._nodes = engine.array("nodes", shapes["nodes"]) if "nodes" in shapes else None
        self._logits = engine.array("logits", shapes["logits"]) if logprobs else None

    def logprobs(self, index: int, tokens: Sequence[int]) -> list[float]:
        """Log-probabilities of a row's new tokens of this round."""
        assert self._logits is not None, "the round was bound without logits"
        logits = self._logits[index]
        places = self._nodes[index, : len(tokens)] if self._nodes is not None else slice(len(tokens))
        return chosen_logprobs(logits[places], tokens)
