"""Decode loop: admit sequences to batch slots, prefill them, and decode in rounds. It knows graphs, buffers and counts,
but no drafting method."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter

from speccompile.bundle.manifest import Manifest
from speccompile.contract import COMPONENTS, Graph
from speccompile.runtime.audio.mel import Features
from speccompile.runtime.audio.rules import scoring
from speccompile.runtime.devices.engine import Engine
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.bound_graphs import BoundGraphs, RunInfo, VerifyPass, right_aligned_chunks
from speccompile.runtime.rounds.draft_controller import DraftController
from speccompile.runtime.rounds.held_texts import HeldTexts
from speccompile.runtime.rounds.host_drafts import HostDrafts, Proposer
from speccompile.runtime.rounds.media_inputs import MediaInputs, chunk_stop, media_parts
from speccompile.runtime.rounds.resume import resume_slot
from speccompile.runtime.rounds.sampling_inputs import SamplingInputs
from speccompile.runtime.rounds.slot_state import SlotStates
from speccompile.runtime.rounds.slots import Committed, Slot, SlotContent, check_path, group_by_length, slot_range
from speccompile.runtime.rounds.source_encoder import SourceEncoder
from speccompile.runtime.rounds.token_masks import TokenMasks
from speccompile.runtime.stopwatch import Stopwatch, clock


class DecodeLoop(HeldTexts):
    """Runs the batch slots over one engine's buffers. It knows the inputs and outputs of graphs by their names.

    A sequence is admitted to a slot, `prefill` reads its prompt, then every `decode` gives it tokens until it ends. If
    the engine supports batch slices, slots are prefilled alone, or together with prompts of equal length. Otherwise
    every run covers the whole batch, and a run that prefills is also a round of the decoding slots.
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
        """on_device: the engine runs on a GPU. proposer: source of host drafts. graphs: the engine's graphs, if they
        differ from the manifest's."""
        HeldTexts.__init__(self, manifest)
        self.tokens, self._depth = manifest.tokens, manifest.depth
        self.can_draft = engine.has("step") or engine.has("draft") or proposer is not None
        self.seconds = {"prefill": 0.0, "verify": 0.0, "draft": 0.0}
        self.rounds = BoundGraphs(engine, manifest)
        self._watch = Stopwatch(clock(on_device=on_device))
        proposals = None if proposer is None else HostDrafts(proposer, manifest)
        self.drafting = DraftController(
            self.rounds, manifest, self.seconds, self._watch, on_device=on_device, proposals=proposals
        )
        inputs = {tensor.name for graph in manifest.graphs for tensor in graph.inputs}
        self.masks = TokenMasks(engine, manifest) if "allowed" in inputs else None
        batch = (manifest.batch_size,)
        self._adapters = engine.host_view("adapter", batch) if "adapter" in inputs else None
        self.sources = None if manifest.source is None else SourceEncoder(engine, manifest)
        self.sampler = SamplingInputs(engine, manifest, inputs) if "uniforms" in inputs else None
        self._media = None
        if "media" in inputs:
            self._media = MediaInputs(engine, manifest.graphs, manifest.batch_size, manifest.prefill_chunk)
        self.states = SlotStates(engine, graphs or manifest.graphs, manifest.batch_size)
        self.reused: dict[int, int] = {}
        """Slot -> number of prompt tokens that its sequence, of the latest call of `generate`, did not read."""

    def encode_source(self, slot: int, source: Sequence[int] | Features) -> None:
        """Encode a source in a slot without a sequence, for runs of the target alone."""
        assert self.sources is not None, "the target has an encoder"
        self.sources.encode(slot, source)

    def start(self) -> None:
        """Start the clock on this thread: before the first admission, and after an idle period."""
        self._watch.start()

    def admit(self, slot: int, row: SequenceState, *, speculative: bool, adaptive: bool, reuse: int = 0) -> int:
        """Admit an active sequence, which may still add a token, to a free slot.

        adaptive: adapt the draft length wherever that changes no token. reuse: number of its first tokens that the
        slot's caches hold, less than all of them. Return how many of these the target does not read again: all or,
        where rings have lost rows that the next token needs, none.
        """
        own = self._slots[slot]
        reuse = reuse if row.media is None else row.media.reusable(reuse)
        assert own.sequence_or_none is None, f"slot {slot} is taken"
        assert 0 <= reuse <= own.committed_length, f"slot {slot} holds {own.committed_length} tokens, not {reuse}"
        assert reuse < len(row), "the last token of a text is always read"
        if COMPONENTS[0] in self._recurrent:
            assert reuse in (0, own.committed_length), "what states have read cannot be taken back"
        self.left = self.resume = None
        if self.sources is not None:
            assert row.source is not None, "an answer of a target with an encoder has a source"
            assert not reuse or self.sources.held[slot] == row.source_key, "what was read depends on the source"
            self.sources.encode(slot, row.source, row.source_key)
        alone = not speculative or self.drafting.traits.catches_up_alone
        if not self.rings.holds(own.written, reuse if alone else self.drafting.kept_length(own, reuse)):
            reuse = 0
        self.drafting.admit(own, row, reuse, speculative=speculative, adaptive=adaptive, others=self._active_slots())
        if own.prefill_position == 0:
            own.written = 0
        row.min_forced_tokens = self._min_forced_tokens(row, speculative)
        if self.sampler is not None:
            self.sampler.admit(slot, row, drafting=speculative)
        return own.prefill_position

    def _min_forced_tokens(self, row: SequenceState, speculative: bool) -> int:
        """Return the minimum number of forced tokens that pay for a prefill run (jump-forward decoding): what a round
        can accept at most. Return 0 with logprobs, and where sampling depends on the number of rounds."""
        if row.logprobs is not None or (speculative and not self.drafting.allows_adaptive_length(row)):
            return 0
        return max(1, self._depth) if speculative else 1

    def prefill(self, slot: int, most: int | None = None) -> int:
        """Prefill the next chunk of a slot's prompt, of at most `most` tokens. After the last chunk the sequence gets
        its first token. Return the number of tokens read."""
        own, overlap = self._slots[slot], self.drafting.traits.overlap
        assert not own.is_prefilled, f"the text of slot {slot} has been read"
        size = self.rounds.chunk if most is None else max(min(most, self.rounds.chunk), 1 + overlap)
        start = own.prefill_position
        part = range(start, chunk_stop(own, start + overlap, min(start + size, len(own.sequence))))
        beside = (
            []
            if self.rounds.supports_batch_slices
            else [slot for slot in self._decoding() if not slot.has_forced_tokens]
        )
        self._run({own: part}, beside)
        return len(part)

    def is_prefilled(self, slot: int) -> bool:
        """Return whether the prefill of a slot is complete, so that it decodes."""
        return self._slots[slot].is_prefilled

    def decode(self) -> None:
        """Run one round over all decoding slots. Where a lagging drafter needs the target to catch up, the target reads
        the missed tokens again; slots with forced tokens prefill these."""
        decoding = self._decoding()
        behind = self.drafting.slots_to_reread(decoding, self._active_slots())
        reading = [slot for slot in decoding if slot in behind or slot.has_forced_tokens]
        for slot in decoding:
            slot.prefill_position = slot.drafter_length if slot in behind else slot.committed_length
        if not self.rounds.supports_batch_slices and reading:
            reading = decoding  # the drafts of other slots would be lost
        rest = [slot for slot in decoding if slot not in reading]
        if rest:
            self._run({}, rest)
        for group in [[slot] for slot in reading] if self.rounds.supports_batch_slices else [reading]:
            self._prefill_slots(group, again=any(slot in behind for slot in group))

    def release(self, slot: int) -> Committed:
        """Release a slot, whether its sequence has ended or not. Return what its caches hold until the next
        admission."""
        if self.sampler is not None:
            self.sampler.release(slot)
        own = self._slots[slot]
        adapter = own.sequence.adapter
        positions = own.committed_length, own.drafter_length
        committed = own.release()
        key = "" if self.sources is None else self.sources.held[slot]
        self.left = SlotContent(*committed, *positions, slot, adapter, own.written, key)
        return committed

    def resumable(self, content: SlotContent, row: SequenceState, *, speculative: bool) -> int:
        """Return how many tokens of what a free slot holds an admitted sequence goes on from: see `resume_slot`."""
        own = self._slots[content.slot]
        return resume_slot(own, row, content, self.drafting, self._recurrent, speculative=speculative)

    def copy(self, source: int, slot: int) -> None:
        """Copy the caches of slot `source` to a free slot. The sequence in `source` may go on."""
        own, other = self._slots[slot], self._slots[source]
        assert own.sequence_or_none is None, f"slot {slot} is taken"
        own.committed_length, own.drafter_length = other.committed_length, other.drafter_length
        own.written = other.written
        self.states.copy(source, slot)
        if self.sources is not None:
            self.sources.copy(source, slot)

    def generate(self, rows: Sequence[SequenceState], speculative: bool, adaptive: bool = False) -> Iterator[None]:
        """Run until every sequence has ended. Yield after the prefill and after every round, with the sequences
        updated.

        adaptive: as for `admit`; if it could change a token of one sequence, all sequences take all drafts.
        """
        adaptive = adaptive and all(map(self.drafting.allows_adaptive_length, rows))
        start = perf_counter()
        self.start()
        slots = [slot for slot, row in zip(self._slots, rows, strict=False) if row.is_active]
        reuse, is_whole = self._resumed(rows, speculative), False
        try:
            for slot in slots:
                own = slot.index, rows[slot.index]
                kept = reuse.get(slot.index, 0)
                self.reused[slot.index] = self.admit(*own, speculative=speculative, adaptive=adaptive, reuse=kept)
            for group in group_by_length(slots) if self.rounds.supports_batch_slices else [slots]:
                self._prefill_slots(group)
            self.seconds.update(prefill=perf_counter() - start, verify=0.0, draft=0.0)
            yield from self._yield_to_caller(slots)
            while any(row.is_active for row in rows):
                self.decode()
                yield from self._yield_to_caller(slots)
            is_whole = True
        except GeneratorExit:  # between rounds
            is_whole = True
            raise
        finally:
            self._discard_slots(slots)
            if len(rows) > 1 or not is_whole:
                self.left = None

    def _resumed(self, rows: Sequence[SequenceState], speculative: bool) -> dict[int, int]:
        """Return slot -> number of tokens with which its sequence goes on from `starts`, or the only one from `resume`,
        which the slots hold now."""
        alone = {} if self.resume is None else {0: self.resume}
        contents = alone if len(rows) == 1 else self.starts
        self.starts, self.resume, self.left, self.reused = {}, None, None, {}
        return {
            slot: resume_slot(
                self._slots[slot], rows[slot], content, self.drafting, self._recurrent, speculative=speculative
            )
            for slot, content in contents.items()
            if rows[slot].is_active
        }

    def _yield_to_caller(self, slots: Sequence[Slot]) -> Iterator[None]:
        """Yield with the clock paused. Then discard the slots whose sequences have ended."""
        self._watch.pause()
        yield
        self._watch.resume()
        self._discard_slots(
            slot for slot in slots if slot.sequence_or_none is not None and not slot.sequence_or_none.is_active
        )

    def _discard_slots(self, slots: Iterator[Slot] | Sequence[Slot]) -> None:
        """Release the slots, and forget what their caches hold."""
        for slot in slots:
            if slot.sequence_or_none is not None:
                self.release(slot.index)
            slot.committed_length = 0  # so that it lengthens no other slot's attention

    def _prefill_slots(self, slots: Sequence[Slot], *, again: bool = False) -> None:
        """Prefill the remaining tokens of some slots, in chunks that end together, and take the tokens that follow.
        again: the target reads tokens again that a drafter has missed."""
        spans = [range(len(slot.sequence))[slot.prefill_position :] for slot in slots]
        stops = [partial(chunk_stop, slot) for slot in slots]
        for parts in right_aligned_chunks(spans, self.rounds.chunk, self.drafting.traits.overlap, stops):
            self._run({slot: part for slot, part in zip(slots, parts, strict=True) if part}, again=again)

    def _run(self, parts: Mapping[Slot, range], decoding: Collection[Slot] = (), *, again: bool = False) -> None:
        """Run the target once: over a chunk of some prompts, and in the decoding slots over the last token and its
        drafts. Sequences at the end of their prompt and decoding ones take new tokens. Then make the drafts of the next
        round."""
        present, slots = self._active_slots(), [*parts, *decoding]
        taking = [*(slot for slot, part in parts.items() if part.stop == len(slot.sequence)), *decoding]
        begin = {slot: parts[slot].start if slot in parts else slot.committed_length for slot in slots}
        wanted = self.drafting.window_limit(present)
        width = self.drafting.width(decoding, wanted)
        fed = max(map(len, parts.values()), default=0)
        media = {} if self._media is None else media_parts(parts, decoding)
        shown = 1 if self._media is None else self._media.count(media.values())
        forward = self._forward(
            max(width, fed), width, slots, taking, fused=self.drafting.runs_fused(begin, wanted), fed=fed, media=shown
        )
        if self._media is not None:
            self._media.write(forward.window.shape[1], forward.rows, media, shown)
        self._write_inputs(forward, parts, decoding)
        self.drafting.write_window(forward.window, width, decoding)
        self._constrain(forward, taking, width)
        seconds, is_first, forward.has_run = self._verify(forward, slots, taking), not forward.has_run, True
        if self.rings:
            self.note_written(forward.rows, self.rounds.length.tolist(), forward.window.shape[1])
        self._commit(forward, parts, begin)
        self.drafting.record_verify(seconds, begin, decoding, RunInfo(width, fed, again, is_first, forward.nodes))
        if not taking or any(slot.sequence.is_active for slot in taking) or len(slots) > len(taking):
            self.drafting.prepare_next_windows(forward, begin, taking, self._active_slots(), fed)

    def _write_inputs(self, forward: VerifyPass, parts: Mapping[Slot, range], decoding: Collection[Slot]) -> None:
        """Write the certain tokens and the counts. In a slot without a part in the run, only entries after the
        committed tokens may change."""
        counts, lines = self.rounds, slice(forward.rows.start, forward.rows.stop)
        counts.length[lines] = [slot.committed_length for slot in self._slots[lines]]
        counts.n_given[lines] = [slot in decoding for slot in self._slots[lines]]
        if self._adapters is not None:
            self._adapters[lines] = [slot.adapter_slot for slot in self._slots[lines]]
        for slot, part in parts.items():
            counts.length[slot.index] = part.start
            counts.n_given[slot.index] = counts.n_total[slot.index] = len(part)
            forward.window[slot.index, : len(part)] = slot.sequence.all_token_ids[part.start : part.stop]

    def _verify(self, forward: VerifyPass, slots: Sequence[Slot], taking: Sequence[Slot]) -> float:
        """Run the target, and append the accepted tokens to the sequences in `taking`. Return the seconds since the
        last lap: those of a round without its drafting. slots: those of the run; the others of them go on as given.

        A fused step also drafts: all its time counts as verification.
        """
        start = perf_counter()
        forward.verify()
        self.seconds["verify"] += perf_counter() - start
        # Python integers: numpy's arithmetic on a few numbers takes twenty times as long
        given, total, end = self.rounds.n_given.tolist(), self.rounds.n_total.tolist(), self.rounds.n_path.tolist()
        for slot in slots:
            index = slot.index
            most = min(forward.window.shape[1], given[index] + self._depth) if slot in taking else given[index]
            check_path(given[index], end[index], most)
        for slot in taking:
            index, row = slot.index, slot.sequence
            tokens = forward.path[index, given[index] : end[index] + 1].tolist()
            logprobs = forward.logprobs(index, tokens, row.n_best) if row.logprobs is not None else None
            if (rules := scoring(row)) is not None:
                rules.read_logits(forward.token_logits(index, len(tokens)), tokens)
            row.append_tokens(tokens, total[index] - given[index], logprobs)
            slot.is_prefilled = True
        return self._watch.lap()

    def _commit(self, forward: VerifyPass, parts: Mapping[Slot, range], begin: Mapping[Slot, int]) -> None:
        """Advance every slot by its path, which the target's caches hold now. In the middle of a prompt, replace the
        target's predicted next token by the true one for a drafter that needs it (`is_told`)."""
        n_path, traits = self.rounds.n_path.tolist(), self.drafting.traits
        for slot, start in begin.items():
            end = start + n_path[slot.index]
            slot.committed_length, slot.prefill_position = max(slot.committed_length, end), end - traits.overlap
            if slot in parts and end < len(slot.sequence) and traits.is_told:
                forward.path[slot.index, len(parts[slot])] = slot.sequence.all_token_ids[end]

    def _forward(
        self, window: int, logit_rows: int, slots: Sequence[Slot], taking: Sequence[Slot], *, fused: bool, fed: int,
        media: int,
    ) -> VerifyPass:  # fmt: skip
        """Return the pass at these widths over these slots, with the inputs for sampling written."""
        rows = slot_range(slots) if self.rounds.supports_batch_slices else range(len(self._slots))
        history, allowed, adjusted, texts = 1, 1, 1, [slot.sequence for slot in taking]
        logprobs = any(row.logprobs is not None or scoring(row) is not None for row in texts)
        if self.masks is not None:
            allowed = self.masks.width({slot.index: slot.sequence for slot in taking})
        if self.sampler is not None:
            history = self.sampler.write(rows, {slot.index: slot.sequence for slot in taking}, logit_rows)
            adjusted = self.sampler.adjusted_width([slot.index for slot in taking], logit_rows)
        return self.rounds.forward(
            window, logit_rows, history, fused=fused, logprobs=logprobs, allowed=allowed, rows=rows, fed=bool(fed),
            media=media, adjusted=adjusted,
        )  # fmt: skip

    def _constrain(self, forward: VerifyPass, taking: Sequence[Slot], logit_rows: int) -> None:
        """Write the mask of allowed tokens and the adjustments of logits, if the graphs take them."""
        given, total = self.rounds.n_given.tolist(), self.rounds.n_total.tolist()
        if self.masks is not None:
            self.masks.write({slot.index: slot.sequence for slot in taking}, forward.window, given, total, logit_rows)
        if self.sampler is not None:
            self.sampler.adjust([slot.index for slot in taking], forward.window, given, total, logit_rows)
