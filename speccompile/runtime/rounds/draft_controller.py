"""Draft controller: fill the next window with drafts up to the draft length, or with the pending token alone.

While a sequence is not drafted for, its drafter lags. Before it drafts again, it reads the tokens that it has missed:
alone, from the tokens that the host has; or, if it is fused with the target or needs more than tokens, together with
the target, which reads the same tokens again and commits the same cache entries. A target with recurrent states or
rings cannot read a token twice: a drafter that needs it keeps reading while drafting is paused.

All slots share one window width, chosen for all of them together. A sequence whose drafts are sampled always takes all
drafts, because its tokens depend on their number; while there is one, the other slots take all drafts too.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from time import perf_counter

import numpy as np

from speccompile.bundle.manifest import Manifest
from speccompile.runtime.devices.engine import Array, Run
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.adaptive_length import AdaptiveDraftLength, DraftLengthPolicy
from speccompile.runtime.rounds.bound_graphs import BoundGraphs, RunInfo, VerifyPass, right_aligned_chunks
from speccompile.runtime.rounds.drafter_traits import DrafterTraits
from speccompile.runtime.rounds.host_drafts import HostDrafts
from speccompile.runtime.rounds.slots import Slot, slot_range
from speccompile.runtime.rounds.tree_acceptance import accepted_by_width, offered_widths
from speccompile.runtime.stopwatch import Stopwatch
from speccompile.tree import chain


class DraftController:
    """Decides the next window of every slot, and tracks what the drafter has read."""

    def __init__(
        self,
        rounds: BoundGraphs,
        manifest: Manifest,
        seconds: dict[str, float],
        watch: Stopwatch,
        *,
        on_device: bool,
        proposals: HostDrafts | None = None,
    ) -> None:
        """seconds: dict to which drafting adds its time. watch: the loop's. on_device: the engine runs on a GPU, where
        narrow windows cost as much as wide ones. proposals: host drafts, which replace the graph's where found."""
        self._rounds, self._seconds, self._watch, self._proposals = rounds, seconds, watch, proposals
        self.traits = traits = DrafterTraits.of(manifest, on_device=on_device)
        self.may_adapt = manifest.exact and traits.can_rest
        """True if the draft length adapts where that changes no token."""
        self._draws, self._full = manifest.sample, rounds.tokens + 1
        self._is_tree = manifest.tree == "dynamic" and not on_device
        self._can_truncate_window = manifest.tree == "chain" or self._is_tree or proposals is not None
        """True if a window may hold only the first of the drafts."""
        accepts = offered_widths(manifest.tree, self._full, manifest.depth, is_cpu=not on_device)
        self.widths = tuple(accepts)  # of windows, which the policy chooses from
        tree_depth = manifest.depth if self._is_tree else 0
        self.policy: DraftLengthPolicy = AdaptiveDraftLength(accepts, fused=traits.is_fused, tree_depth=tree_depth)
        self._drafted = rounds.engine.host_view("window", (rounds.batch, self._full))
        has_parents = any(tensor.name == "parents" for graph in manifest.graphs for tensor in graph.inputs)
        self._parents = rounds.engine.host_view("parents", (rounds.batch, self._full)) if has_parents else None
        self._proposed = np.zeros((rounds.batch, self._full), np.int64)
        """Windows that the host has written, one for every slot."""
        self._adaptive_width, self._is_adaptive, self._batch_size = 1, False, 0
        """Window width that the policy has chosen, whether the next window uses it, slots that it was told of last."""

    def admit(
        self, slot: Slot, row: SequenceState, reuse: int, *, speculative: bool, adaptive: bool, others: Sequence[Slot]
    ) -> None:
        """Admit a sequence whose first `reuse` tokens the slot's caches hold."""
        if self._parents is not None:
            self._parents[slot.index] = chain(self._full - 1).parents  # a tree, until there are drafts
        fixed = speculative and not (adaptive and self.allows_adaptive_length(row) and self.may_adapt)
        read = self.kept_length(slot, reuse)
        slot.admit(row, reuse, read, speculative=speculative, fixed=fixed)
        lags = speculative and read < reuse and not self.traits.catches_up_alone
        if lags and (self.window_limit([*others, slot]) > 1 or self.traits.target_moves_on):
            # The drafter reads the missed tokens at once, together with the target.
            slot.committed_length = slot.prefill_position = read

    def kept_length(self, slot: Slot, reuse: int) -> int:
        """Return how many of `reuse` tokens the drafter keeps: it paired the last with a successor that may differ."""
        return min(slot.drafter_length, max(0, reuse - self.traits.pairs)) if self.traits.has_own_cache else reuse

    def allows_adaptive_length(self, row: SequenceState) -> bool:
        """Return whether tokens are independent of the draft length. With sampled drafts, timing must not choose it."""
        return not self._draws or row.sampling.temperature == 0

    def window_limit(self, present: Sequence[Slot]) -> int:
        """Return the maximum number of tokens of the next window for these slots; 1 means no drafts."""
        drafting = [slot for slot in present if slot.speculative]
        self._is_adaptive = bool(drafting) and not [slot for slot in drafting if slot.fixed_draft_length]
        if not self._is_adaptive:
            return self._full if drafting else 1
        if news := [slot for slot in drafting if not slot.is_tracked]:
            prompt = max(len(slot.sequence.prompt) for slot in news)
            max_new_tokens = max(slot.sequence.max_new_tokens for slot in news)
            if len(news) == len(drafting):
                self._record_batch_size(drafting)
                self._adaptive_width = self.policy.begin(prompt, max_new_tokens)
            else:
                self.policy.join(prompt, max_new_tokens)
            for slot in news:
                slot.is_tracked = True
        return self._adaptive_width

    def width(self, decoding: Collection[Slot], wanted: int) -> int:
        """Return the width of the next window, which serves all slots in `decoding`."""
        if wanted == 1 or not decoding:
            return 1
        if self.traits.on_device:
            return self._full
        totals = self._rounds.n_total.tolist()
        longest = max((totals[slot.index] for slot in decoding if slot.has_drafts), default=1)
        return min(wanted, longest) if self._can_truncate_window or longest == 1 else self._full

    def write_window(self, window: Array, width: int, decoding: Iterable[Slot]) -> None:
        """Write the next windows of `decoding`, of at most `width` tokens, into a run's input int64 [B, W]."""
        totals = self._rounds.n_total
        for slot in decoding:
            index = slot.index
            if width == 1 or not slot.has_drafts:
                window[index, 0] = slot.sequence.token_ids[-1]
                totals[index] = 1
                continue
            if window.shape[1] != self._full:
                window[index, :width] = self._drafted[index, :width]
            totals[index] = min(totals[index], width)

    def runs_fused(self, begin: Mapping[Slot, int], wanted: int) -> bool:
        """Return whether the next run also drafts. begin: slot -> position of its first token."""
        drafts = self.traits.is_fused and wanted > 1
        return drafts and any(slot.speculative and self._has_read_all(slot, start) for slot, start in begin.items())

    def slots_to_reread(self, decoding: Sequence[Slot], present: Sequence[Slot]) -> list[Slot]:
        """Return the slots whose lagging drafter needs the target: the caller re-runs it over the missed tokens."""
        if self.traits.catches_up_alone or not self.traits.has_own_cache or self.window_limit(present) == 1:
            return []
        return [slot for slot in decoding if slot.speculative and slot.drafter_length < slot.committed_length]

    def record_verify(
        self, seconds: float, begin: Mapping[Slot, int], decoding: Collection[Slot], run: RunInfo
    ) -> None:
        """Record a target run that began at these positions: a round of `decoding`, or a part of a prefill."""
        if not self.traits.has_own_cache:
            for slot in begin:
                slot.drafter_length = slot.committed_length
        if not self._is_adaptive or not [slot for slot in begin if slot.speculative]:
            return
        if run.prefill_tokens:
            if self._adaptive_width > 1 and not self.traits.catches_up_alone and not decoding:
                self.policy.record_catch_up(run.prefill_tokens, seconds, seconds if run.is_reread else 0.0)
            return
        timed = None if run.is_first else seconds
        self._record_batch_size(decoding)
        if self._adaptive_width == 1:
            self.policy.record_autoregressive(timed)
        else:
            drafted = [slot for slot in decoding if slot.sequence.draft_lengths[-1]]
            # A host's tree has as many nodes as it found: its width may be none of those that are timed.
            width = run.width if run.width in self.widths else self._full
            self.policy.record_verify(width, timed, self._accepted(drafted, width, run), len(decoding) - len(drafted))

    def _accepted(self, drafted: Iterable[Slot], width: int, run: RunInfo) -> list[int]:
        """Return what the policy is told of the accepted drafts of these slots."""
        if not self._is_tree or run.nodes is None:
            return [slot.sequence.path_lengths[-1] - 1 for slot in drafted]
        widths = self.widths[1 : self.widths.index(width) + 1]
        nodes = [run.nodes[slot.index, 1 : slot.sequence.path_lengths[-1]].tolist() for slot in drafted]
        return [count for each in nodes for count in accepted_by_width(each, widths)]

    def _has_read_all(self, slot: Slot, start: int) -> bool:
        """Return whether the drafter lacks no token before position `start`."""
        return slot.drafter_length >= start or not self.traits.has_own_cache

    def prepare_next_windows(
        self, forward: VerifyPass, begin: Mapping[Slot, int], taking: Sequence[Slot], present: Sequence[Slot], fed: int
    ) -> None:
        """Make the next windows after a run that began at `begin` and read `fed` tokens of prompts. taking: slots that
        got a token; the others are in the middle of their prompt. Counts are still those of the run."""
        ready = [slot for slot, start in begin.items() if self._has_read_all(slot, start)]
        if forward.fused:
            self._record_read(ready, taking)
        wanted = self._next_window_limit(ready, taking, present, forward.fused)
        for slot in begin:
            slot.has_drafts, slot.lags_by_host_rounds = False, slot.lags_by_host_rounds and wanted > 1
        if not forward.fused and (wanted == 1 or self.traits.is_fused):
            if self.traits.reads_while_paused and any(slot.speculative for slot in begin):
                self._read(forward, begin, ready)
            return
        drafting = [slot for slot in taking if slot.speculative and slot.sequence.is_active]
        if forward.fused:
            forward.copy_next_inputs()
            for slot in drafting:
                slot.has_drafts = slot in ready
        # In the middle of a prompt no drafts are needed, only the drafter's states.
        elif taking or self.traits.has_own_cache or self.traits.has_persistent_state:
            self._draft(forward, begin, ready, drafting, wanted, fed)

    def _next_window_limit(
        self, ready: Collection[Slot], taking: Sequence[Slot], present: Sequence[Slot], fused: bool
    ) -> int:
        """Return the maximum width of the next window. Ask the policy once a round, unless only a prefill has ended."""
        if self._is_adaptive and self.policy.is_resting:
            return 1
        wanted = self.window_limit(present)
        if not self._is_adaptive or not any(slot.sequence.is_active for slot in taking):
            return wanted
        decoding = [slot for slot in present if slot.decodes]
        if any(slot not in taking for slot in decoding):
            return wanted
        misses = self.traits.is_fused and not fused and self.traits.has_own_cache
        lags = [s.committed_length - s.drafter_length for s in decoding if s.speculative and (misses or s not in ready)]
        self._record_batch_size(decoding)
        self._adaptive_width = self.policy.next_width(self._catch_up_tokens(lags))
        return self._adaptive_width

    def _record_batch_size(self, slots: Collection[Slot]) -> None:
        """Report the number of slots in a round to the policy, if it changes; 1 if every run covers the whole batch."""
        if (size := len(slots) if self._rounds.supports_batch_slices else 1) != self._batch_size:
            self._batch_size = size
            self.policy.record_batch_size(size)

    def _catch_up_tokens(self, lags: Sequence[int]) -> int:
        """Return the tokens of a catch-up: a sum where slots run in turn, a maximum where they run together."""
        return sum(lags) if self._rounds.supports_batch_slices else max(lags, default=0)

    def _record_read(self, slots: Iterable[Slot], taking: Collection[Slot]) -> None:
        """Record the run's tokens as read; in mid-prompt without the `overlap` that the next chunk repeats."""
        for slot in slots:
            slot.drafter_length = slot.prefill_position + (self.traits.overlap if slot in taking else 0)
            slot.lags_by_host_rounds = False

    def _read(self, forward: VerifyPass, begin: Iterable[Slot], ready: Collection[Slot]) -> None:
        """Run the drafter over the run's path, and ignore its drafts."""
        draft = forward.draft  # which is bound the first time
        start = perf_counter()
        self._run_draft(draft, forward, begin, ready)
        self._seconds["draft"] += perf_counter() - start

    def _draft(
        self,
        forward: VerifyPass,
        begin: Mapping[Slot, int],
        ready: Sequence[Slot],
        drafting: Sequence[Slot],
        wanted: int,
        fed: int,
    ) -> None:
        """Ask the host for drafts, and run the drafter's graph unless the host has drafted for all slots. A drafter
        that lags in some slots reads the missed tokens there alone."""
        late = [slot for slot in drafting if slot not in ready] if self.traits.catches_up_alone else []
        if self.traits.has_graph and not ready and not late:
            return  # the target runs first: see `slots_to_reread`
        drafting = [slot for slot in drafting if slot in ready or slot in late]
        runs = self.traits.has_graph and ready and (self._rounds.supports_batch_slices or not late)
        draft, had_drafted, start = forward.draft if runs else None, forward.has_drafted, perf_counter()
        found = {} if self._proposals is None else self._propose(self._proposals, drafting, wanted - 1)
        if not self.traits.has_graph or (not fed and self.traits.skips_host_rounds and found and all(found.values())):
            read = 0
            for slot in ready:
                slot.lags_by_host_rounds = self.traits.has_graph and self.traits.has_own_cache
        else:
            read = fed or self._catch_up_tokens(
                [slot.committed_length - slot.drafter_length for slot in late if not slot.lags_by_host_rounds]
            )
            if draft is not None:
                self._run_draft(draft, forward, begin, ready)
            self._catch_up_late(late, ready, forward.history)
            for slot in drafting:
                slot.has_drafts = True
        self._write_host_drafts(found)
        self._seconds["draft"] += perf_counter() - start
        seconds, is_first = self._watch.lap(), forward.has_drafted and not had_drafted
        if not self._is_adaptive or not any(slot.speculative for slot in begin):
            return
        if read:
            self.policy.record_catch_up(read, seconds, 0.0 if is_first else seconds)
        else:
            self.policy.record_draft(None if is_first else seconds)

    def _run_draft(self, draft: Run, forward: VerifyPass, begin: Iterable[Slot], ready: Collection[Slot]) -> None:
        """Run the drafter over the run's path in the slots that are ready. In the others it has missed earlier tokens,
        and must not read the run."""
        for slot in begin:
            if slot not in ready:
                self._rounds.n_path[slot.index] = 0
        draft()
        forward.has_drafted = True
        self._record_read(ready, ())

    def _catch_up_late(self, late: Sequence[Slot], ready: Iterable[Slot], history: int) -> None:
        """Let a drafter that lags in some slots read the missed tokens there alone, or beside the ready slots where
        every run covers the whole batch."""
        if self._rounds.supports_batch_slices:
            for slot in late:
                self._catch_up([slot], history)
        elif late:
            self._catch_up([slot for slot in (*ready, *late) if slot.sequence.is_active], history)

    def _propose(self, proposals: HostDrafts, slots: Iterable[Slot], most: int) -> dict[Slot, int]:
        """Ask for at most `most` drafts per slot. Return the number of drafts of each slot."""
        found = {}
        for slot in slots:
            parents = None if self._parents is None else self._parents[slot.index]
            found[slot] = proposals.write(slot.sequence.all_token_ids, self._proposed[slot.index], parents, most)
        return found

    def _write_host_drafts(self, found: Mapping[Slot, int]) -> None:
        """Make the host's drafts the window of every slot that has any, and of all slots if no graph drafts."""
        for slot, drafts in found.items():
            if drafts or not self.traits.has_graph:
                self._drafted[slot.index, : drafts + 1] = self._proposed[slot.index, : drafts + 1]
                self._rounds.n_total[slot.index] = 1 + drafts
                slot.has_drafts = True

    def _catch_up(self, slots: Sequence[Slot], history: int) -> None:
        """Run the drafter over the missed tokens of some slots, then over the last token, and draft. Each run also
        reads the token after its chunk, which in a prefill is the target's prediction."""
        rounds, texts = self._rounds, [slot.sequence.all_token_ids for slot in slots]
        rows = slot_range(slots) if rounds.supports_batch_slices else range(rounds.batch)
        missed = [range(slot.drafter_length, slot.committed_length) for slot in slots]
        for parts in right_aligned_chunks(missed, rounds.chunk):
            catch_up = rounds.catch_up(max(map(len, parts)), history, rows)
            rounds.n_path[rows.start : rows.stop] = 0
            for slot, text, part in zip(slots, texts, parts, strict=True):
                catch_up.path[slot.index, : len(part) + 1] = text[part.start : part.stop + 1]
                rounds.n_path[slot.index], rounds.length[slot.index] = len(part), part.start
            catch_up.run()
        for slot in slots:
            slot.drafter_length, slot.lags_by_host_rounds = slot.committed_length, False
