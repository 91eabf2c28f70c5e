"""The loop: prefill, then rounds. It knows graphs, buffers and counts, and no drafter."""

from collections.abc import Iterator, Sequence
from time import perf_counter

from speccompile.bundle.manifest import Manifest
from speccompile.runtime.constraints import Masks
from speccompile.runtime.drafting import Drafting
from speccompile.runtime.engine import Engine
from speccompile.runtime.generation import Row
from speccompile.runtime.proposals import Proposals, Proposer
from speccompile.runtime.rounds import Forward, Rounds, aligned_parts
from speccompile.runtime.sampling import Sampler
from speccompile.runtime.stopwatch import Stopwatch, clock
from speccompile.tree import chain


class Loop:
    """Runs one batch at a time over one engine's buffers. What its graphs read and write is known by their names."""

    def __init__(
        self, engine: Engine, manifest: Manifest, *, on_device: bool = False, proposer: Proposer | None = None
    ) -> None:
        """on_device: the engine runs on a GPU. proposer: who drafts, where no graph does."""
        self.tokens = manifest.tokens
        self.can_draft = engine.has("step") or engine.has("draft") or proposer is not None
        self.seconds = {"prefill": 0.0, "verify": 0.0, "draft": 0.0}
        self.rounds = Rounds(engine, manifest)
        self._watch = Stopwatch(clock(on_device=on_device))
        proposals = None if proposer is None else Proposals(proposer, manifest)
        self.drafting = Drafting(
            self.rounds, manifest, self.seconds, self._watch, on_device=on_device, proposals=proposals
        )
        inputs = {tensor.name for graph in manifest.graphs for tensor in graph.inputs}
        self.masks = Masks(engine, manifest) if "allowed" in inputs else None
        self.sampler = Sampler(engine, manifest, inputs) if "uniforms" in inputs else None
        self._parents = engine.array("parents", (manifest.batch_size, self.tokens + 1)) if "parents" in inputs else None
        self._logprobs = False

    def generate(self, rows: Sequence[Row], speculative: bool, adaptive: bool = False) -> Iterator[None]:
        """Run until every row has ended; yields after the prefill and after every round, rows updated.

        adaptive: rounds draft as much as pays, wherever that changes no token.
        """
        start = perf_counter()
        self._watch.start()
        self._begin(rows, speculative, adaptive)
        self._feed(rows, [0] * len(rows))
        self.seconds.update(prefill=perf_counter() - start, verify=0.0, draft=0.0)
        yield from self._pause()
        while any(row.active for row in rows):
            unread = self.drafting.claim_unread()
            if unread is None:
                self._decode(rows)
            else:
                self._feed(rows, unread)
            yield from self._pause()

    def _pause(self) -> Iterator[None]:
        """The caller's turn."""
        self._watch.pause()
        yield
        self._watch.resume()

    def _begin(self, rows: Sequence[Row], speculative: bool, adaptive: bool) -> None:
        self._logprobs = any(row.logprobs is not None for row in rows)
        if self._parents is not None:
            self._parents[:] = chain(self.tokens).parents  # a tree, until there are drafts
        if self.sampler is not None:
            self.sampler.begin(rows, drafting=speculative)
        self.drafting.begin(rows, speculative=speculative, adaptive=adaptive)

    def _feed(self, rows: Sequence[Row], since: Sequence[int]) -> None:
        """Give the target every row's text from `since` on, in chunks, and take the token behind it.

        That is the prefill; later, what a drafter has missed that reads beside the target.
        """
        counts, texts = self.rounds, [row.text for row in rows]
        spans = [range(start, len(row)) if row.active else range(0) for start, row in zip(since, rows, strict=False)]
        counts.length[:] = 0
        chunks = list(aligned_parts(spans, counts.chunk, self.drafting.overlap))
        for parts in chunks:
            taking, width = rows if parts is chunks[-1] else (), max(map(len, parts))
            forward = self._forward(width, 1, taking)
            counts.n_given[:] = 0
            for index, part in enumerate(parts):
                counts.length[index] = part.start
                forward.window[index, : len(part)] = texts[index][part.start : part.stop]
                counts.n_given[index] = len(part)
            counts.n_total[:] = counts.n_given
            self._constrain(forward, taking, 1)
            self.drafting.fed(width, self._verify(forward, taking))
            if self.drafting.is_told:
                _tell_next(forward, parts, spans, texts)
            self._advance(forward, taking, width)

    def _decode(self, rows: Sequence[Row]) -> None:
        """One round: the pending token of every row, and its drafts."""
        active = [row for row in rows if row.active]
        for index, row in enumerate(rows):
            self.rounds.n_given[index] = row.active
        width = self.drafting.width(rows)
        forward = self._forward(width, width, rows)
        self.drafting.fill(forward.window)
        self._constrain(forward, rows, width)
        self.drafting.verified(width, self._verify(forward, rows), active)
        self._advance(forward, rows)

    def _verify(self, forward: Forward, rows: Sequence[Row]) -> float:
        """Run the target; `rows` take what was accepted, none in the middle of a text. Returns the seconds since the
        last lap: of a round, but for what its drafts took.

        A fused step has drafted by then: its time counts as verification.
        """
        start = perf_counter()
        forward.verify()
        self.seconds["verify"] += perf_counter() - start
        # as plain numbers: numpy's arithmetic on a few of them costs twenty times theirs
        given, total, end = self.rounds.n_given.tolist(), self.rounds.n_total.tolist(), self.rounds.n_path.tolist()
        for index, row in enumerate(rows):
            if row.active:
                tokens = forward.path[index, given[index] : end[index] + 1].tolist()
                logprobs = forward.logprobs(index, tokens, row.n_best) if row.logprobs is not None else None
                row.take(tokens, total[index] - given[index], logprobs)
        return self._watch.lap()

    def _advance(self, forward: Forward, rows: Sequence[Row], fed: int = 0) -> None:
        """Commit the path and make the next window. fed: tokens of a text that were given; `rows` as in `_verify`."""
        if rows and not any(row.active for row in rows):
            return
        n_path = self.rounds.n_path.tolist()
        lengths = [length + committed for length, committed in zip(self.rounds.length.tolist(), n_path, strict=True)]
        for index, row in enumerate(rows):
            if not row.active:
                lengths[index] = 0  # so that no other row's attention is made longer by an idle one
        self.drafting.advance(forward, n_path, rows, fed)
        self.rounds.length[:] = lengths

    def _forward(self, window: int, logit_rows: int, rows: Sequence[Row]) -> Forward:
        """The graphs at these widths, and the inputs of those of `rows` that sample."""
        history, allowed = 1, 1
        if self.masks is not None:
            allowed = self.masks.width(dict(enumerate(rows)))
        if self.sampler is not None:
            self.sampler.write(rows, logit_rows)
            history = self.sampler.history.width
        fused, logprobs = self.drafting.is_fused, self._logprobs
        return self.rounds.forward(window, logit_rows, history, fused=fused, logprobs=logprobs, allowed=allowed)

    def _constrain(self, forward: Forward, rows: Sequence[Row], logit_rows: int) -> None:
        """Say which tokens may follow, where the graphs ask for it."""
        if self.masks is not None:
            given, total = self.rounds.n_given.tolist(), self.rounds.n_total.tolist()
            self.masks.write(dict(enumerate(rows)), forward.window, given, total, logit_rows)


def _tell_next(
    forward: Forward, parts: Sequence[range], spans: Sequence[range], texts: Sequence[Sequence[int]]
) -> None:
    """Put the token behind every part of a text, which goes on, in the place of the target's guess."""
    for index, (part, span) in enumerate(zip(parts, spans, strict=True)):
        if part.stop < span.stop:
            forward.path[index, len(part)] = texts[index][part.stop]
