"""The loop: rows come and go, read their texts, and decode in rounds. It knows graphs, buffers and counts, and no
drafter."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from time import perf_counter

from speccompile.bundle.manifest import Manifest
from speccompile.contract import PARTS, Graph, carries
from speccompile.runtime.devices.engine import Engine
from speccompile.runtime.generation import Row
from speccompile.runtime.rounds.drafting import Drafting
from speccompile.runtime.rounds.lines import Lines
from speccompile.runtime.rounds.masks import Masks
from speccompile.runtime.rounds.proposals import Proposals, Proposer
from speccompile.runtime.rounds.rounds import Forward, Rounds, aligned_parts
from speccompile.runtime.rounds.sampling import Sampler
from speccompile.runtime.rounds.slots import Committed, Slot, alike, lines_of
from speccompile.runtime.stopwatch import Stopwatch, clock


class Loop:
    """Runs the rows of a batch over one engine's buffers. What its graphs read and write is known by their names.

    A row is admitted to a slot, its text is read by `prefill`, then every `decode` gives it tokens until it ends. Where
    the engine has ranges, rows read alone, or beside texts as long as theirs; elsewhere every run is over all rows, and
    one in which a text is read is a round of the rows that decode as well.
    """

    def __init__(
        self,
        engine: Engine,
        manifest: Manifest,
        *,
        on_device: bool = False,
        proposer: Proposer | None = None,
        graphs: Sequence[Graph] = (),
    ) -> None:
        """on_device: the engine runs on a GPU. proposer: who drafts, where no graph does. graphs: as the engine has
        them, where they differ from the manifest's."""
        self.tokens, self._depth = manifest.tokens, manifest.depth
        self.can_draft = engine.has("step") or engine.has("draft") or proposer is not None
        self.can_reuse = not any(carries(manifest.graphs, part) for part in PARTS)
        """Whether a row may go on from the tokens that another has left; not where they are summed up in states."""
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
        self._lines = Lines(engine, graphs or manifest.graphs, manifest.batch_size)
        self._slots = [Slot(index) for index in range(manifest.batch_size)]

    def start(self) -> None:
        """Time counts from now on, on this thread: before the first row is admitted, and after a rest."""
        self._watch.start()

    def admit(self, slot: int, row: Row, *, speculative: bool, adaptive: bool, reuse: int = 0) -> int:
        """A row begins in a slot that is free. It is active: it has room for a token.

        adaptive: rounds draft as much as pays, wherever that changes no token. reuse: how many tokens of its text the
        slot's caches hold, less than all of them. Returns how many of these are not given again.
        """
        own = self._slots[slot]
        assert own.occupant is None, f"slot {slot} is taken"
        assert 0 <= reuse <= own.length, f"slot {slot} holds {own.length} tokens, not {reuse}"
        assert reuse < len(row), "the last token of a text is always read"
        assert self.can_reuse or not reuse, "what states have read cannot be taken back"
        self.drafting.admit(own, row, reuse, speculative=speculative, adaptive=adaptive, others=self._present())
        row.jump = self._jump(row, speculative)
        if self.sampler is not None:
            self.sampler.admit(slot, row, drafting=speculative)
        return own.given

    def _jump(self, row: Row, speculative: bool) -> int:
        """How many tokens without an alternative are worth a run of their own: as many as a round may accept. None
        where every token's logits are asked for, or where what is drawn depends on the number of rounds."""
        if row.logprobs is not None or (speculative and not self.drafting.is_certain(row)):
            return 0
        return max(1, self._depth) if speculative else 1

    def prefill(self, slot: int, most: int | None = None) -> int:
        """Give the target the next chunk of a row's text, at most so many tokens; behind the last of them the row gets
        its first token. Returns how many were given."""
        own, overlap = self._slots[slot], self.drafting.overlap
        assert not own.is_read, f"the text of slot {slot} has been read"
        size = self.rounds.chunk if most is None else max(min(most, self.rounds.chunk), 1 + overlap)
        part = range(len(own.row))[own.given : own.given + size]
        beside = [] if self.rounds.has_ranges else [slot for slot in self._decoding() if not slot.has_jumped]
        self._run({own: part}, beside)
        return len(part)

    def is_read(self, slot: int) -> bool:
        """Whether a row's text has been read: it decodes."""
        return self._slots[slot].is_read

    def decode(self) -> None:
        """One round over all rows that decode. Those whose drafter has to read beside the target what it has missed
        read it now, and those read their texts on that took tokens which had no alternative."""
        decoding = self._decoding()
        behind = self.drafting.claim_behind(decoding, self._present())
        reading = [slot for slot in decoding if slot in behind or slot.has_jumped]
        for slot in decoding:
            slot.given = slot.read if slot in behind else slot.length
        if not self.rounds.has_ranges and reading:
            reading = decoding  # drafts of others would not outlive it
        rest = [slot for slot in decoding if slot not in reading]
        if rest:
            self._run({}, rest)
        for group in [[slot] for slot in reading] if self.rounds.has_ranges else [reading]:
            self._feed(group, again=any(slot in behind for slot in group))

    def release(self, slot: int) -> Committed:
        """A row leaves its slot, ended or not. Returns what the slot's caches hold until somebody else is admitted."""
        if self.sampler is not None:
            self.sampler.release(slot)
        return self._slots[slot].release()

    def copy(self, source: int, slot: int) -> None:
        """Make what a free slot's caches hold the same as what those of another hold, whose row may go on."""
        own, other = self._slots[slot], self._slots[source]
        assert own.occupant is None, f"slot {slot} is taken"
        own.length, own.read = other.length, other.read
        self._lines.copy(source, slot)

    def generate(self, rows: Sequence[Row], speculative: bool, adaptive: bool = False) -> Iterator[None]:
        """Run until every row has ended; yields after the prefill and after every round, rows updated.

        adaptive: as for `admit`; where it could change a token of one row, all draft as one.
        """
        adaptive = adaptive and all(map(self.drafting.is_certain, rows))
        start = perf_counter()
        self.start()
        slots = [slot for slot, row in zip(self._slots, rows, strict=False) if row.active]
        try:
            for slot in slots:
                self.admit(slot.index, rows[slot.index], speculative=speculative, adaptive=adaptive)
            for group in alike(slots) if self.rounds.has_ranges else [slots]:
                self._feed(group)
            self.seconds.update(prefill=perf_counter() - start, verify=0.0, draft=0.0)
            yield from self._pause(slots)
            while any(row.active for row in rows):
                self.decode()
                yield from self._pause(slots)
        finally:
            self._empty(slots)

    def _pause(self, slots: Sequence[Slot]) -> Iterator[None]:
        """The caller's turn."""
        self._watch.pause()
        yield
        self._watch.resume()
        self._empty(slot for slot in slots if slot.occupant is not None and not slot.occupant.active)

    def _empty(self, slots: Iterator[Slot] | Sequence[Slot]) -> None:
        """Their rows leave, and nobody will want what they have left."""
        for slot in slots:
            if slot.occupant is not None:
                self.release(slot.index)
            slot.length = 0  # so that no other row's attention is made longer

    def _present(self) -> list[Slot]:
        """Those with a row that has not ended."""
        return [slot for slot in self._slots if slot.occupant is not None and slot.occupant.active]

    def _decoding(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.decodes]

    def _feed(self, slots: Sequence[Slot], *, again: bool = False) -> None:
        """Give the target all that it has not been given of some rows' texts, in chunks that end together, and take the
        tokens behind them; again: or what a drafter has missed that reads beside the target."""
        spans = [range(len(slot.row))[slot.given :] for slot in slots]
        for parts in aligned_parts(spans, self.rounds.chunk, self.drafting.overlap):
            self._run({slot: part for slot, part in zip(slots, parts, strict=True) if part}, again=again)

    def _run(self, parts: Mapping[Slot, range], decoding: Collection[Slot] = (), *, again: bool = False) -> None:
        """One run of the target: over a part of some rows' texts, and of those that decode over the last token and what
        was drafted behind it. Rows take the tokens behind what ends their text; then there are drafts for the next."""
        present, slots = self._present(), [*parts, *decoding]
        taking = [*(slot for slot, part in parts.items() if part.stop == len(slot.row)), *decoding]
        begin = {slot: parts[slot].start if slot in parts else slot.length for slot in slots}
        wanted = self.drafting.wanted(present)
        width = self.drafting.width(decoding, wanted)
        fed = max(map(len, parts.values()), default=0)
        forward = self._forward(
            max(width, fed), width, slots, taking, fused=self.drafting.drafts(begin, wanted), fed=fed
        )
        self._give(forward, parts, decoding)
        self.drafting.fill(forward.window, width, decoding)
        self._constrain(forward, taking, width)
        seconds = self._verify(forward, taking)
        self._commit(forward, parts, begin)
        self.drafting.verified(seconds, begin, decoding, width=width, fed=fed, again=again)
        if not taking or any(slot.row.active for slot in taking) or len(slots) > len(taking):
            self.drafting.advance(forward, begin, taking, self._present(), fed)

    def _give(self, forward: Forward, parts: Mapping[Slot, range], decoding: Collection[Slot]) -> None:
        """Write what is certain, and the counts. What takes no part is left alone behind what it holds."""
        counts, lines = self.rounds, slice(forward.rows.start, forward.rows.stop)
        counts.length[lines] = [slot.length for slot in self._slots[lines]]
        counts.n_given[lines] = [slot in decoding for slot in self._slots[lines]]
        for slot, part in parts.items():
            counts.length[slot.index] = part.start
            counts.n_given[slot.index] = counts.n_total[slot.index] = len(part)
            forward.window[slot.index, : len(part)] = slot.row.text[part.start : part.stop]

    def _verify(self, forward: Forward, taking: Sequence[Slot]) -> float:
        """Run the target; the rows of `taking` take what was accepted. Returns the seconds since the last lap: of a
        round, but for what its drafts took.

        A fused step has drafted by then: its time counts as verification.
        """
        start = perf_counter()
        forward.verify()
        self.seconds["verify"] += perf_counter() - start
        # as plain numbers: numpy's arithmetic on a few of them costs twenty times theirs
        given, total, end = self.rounds.n_given.tolist(), self.rounds.n_total.tolist(), self.rounds.n_path.tolist()
        for slot in taking:
            index, row = slot.index, slot.row
            tokens = forward.path[index, given[index] : end[index] + 1].tolist()
            logprobs = forward.logprobs(index, tokens, row.n_best) if row.logprobs is not None else None
            row.take(tokens, total[index] - given[index], logprobs)
            slot.is_read = True
        return self._watch.lap()

    def _commit(self, forward: Forward, parts: Mapping[Slot, range], begin: Mapping[Slot, int]) -> None:
        """The path of every row is in the target's caches now. In the middle of a text, whose next token is known, put
        it in the place of the target's guess for a drafter that is told."""
        n_path = self.rounds.n_path.tolist()
        for slot, start in begin.items():
            end = start + n_path[slot.index]
            slot.length, slot.given = max(slot.length, end), end - self.drafting.overlap
            if slot in parts and end < len(slot.row) and self.drafting.is_told:
                forward.path[slot.index, len(parts[slot])] = slot.row.text[end]

    def _forward(
        self, window: int, logit_rows: int, slots: Sequence[Slot], taking: Sequence[Slot], *, fused: bool, fed: int
    ) -> Forward:
        """The graphs at these widths over these slots, and the inputs of those that sample."""
        rows = lines_of(slots) if self.rounds.has_ranges else range(len(self._slots))
        history, allowed, logprobs = 1, 1, any(slot.row.logprobs is not None for slot in taking)
        if self.masks is not None:
            allowed = self.masks.width({slot.index: slot.row for slot in taking})
        if self.sampler is not None:
            history = self.sampler.write(rows, {slot.index: slot.row for slot in taking}, logit_rows)
        return self.rounds.forward(
            window, logit_rows, history, fused=fused, logprobs=logprobs, allowed=allowed, rows=rows, fed=bool(fed)
        )

    def _constrain(self, forward: Forward, taking: Sequence[Slot], logit_rows: int) -> None:
        """Say which tokens may follow, where the graphs ask for it."""
        if self.masks is not None:
            given, total = self.rounds.n_given.tolist(), self.rounds.n_total.tolist()
            self.masks.write({slot.index: slot.row for slot in taking}, forward.window, given, total, logit_rows)
