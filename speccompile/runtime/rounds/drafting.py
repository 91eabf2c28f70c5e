"""The window of the next round: drafts, as many as the pace asks for, or the pending token alone.

While nothing is drafted in a row the drafter falls behind there. Before it drafts again it reads what it has missed:
alone, from the text that the host has; or, where it is fused with the target or needs more of it than tokens, beside
the target, which is given the same tokens once more and commits the same rows. A target that carries states cannot be
given a token twice: what drafts beside it goes on reading while it rests.

All rows have one window, as wide as the pace says for all of them together. A row whose drafts are drawn always wants
all of them, since its tokens depend on how many there are; while there is one, the others draft as much.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from time import perf_counter

import numpy as np

from speccompile.bundle.manifest import Manifest
from speccompile.contract import KEPT, PARTS, carries
from speccompile.runtime.devices.engine import Array
from speccompile.runtime.generation import Row
from speccompile.runtime.rounds.pace import Pace, Policy
from speccompile.runtime.rounds.proposals import Proposals
from speccompile.runtime.rounds.rounds import Forward, Rounds, aligned_parts
from speccompile.runtime.rounds.slots import Slot, lines_of
from speccompile.runtime.stopwatch import Stopwatch
from speccompile.tree import chain

TARGET = f"{PARTS[0]}."
"""What the names of the target's caches begin with."""


class Drafting:
    """What the slots' next windows are, and what the drafter has read of each."""

    def __init__(
        self,
        rounds: Rounds,
        manifest: Manifest,
        seconds: dict[str, float],
        watch: Stopwatch,
        *,
        on_device: bool,
        proposals: Proposals | None = None,
    ) -> None:
        """seconds: where the time of drafting is added up. watch: of the loop. on_device: the engine runs on a GPU,
        where a narrow window costs what a wide one does. proposals: what drafts where no graph does, or in its place
        wherever it has drafts."""
        self._rounds, self._seconds, self._watch, self._proposals = rounds, seconds, watch, proposals
        self._on_device, self._draws = on_device, manifest.sample
        self._full, self._is_chain, self._fused = rounds.tokens + 1, manifest.tree == "chain", "step" in rounds.graphs
        drafting = rounds.graphs.get("step", rounds.graphs.get("draft"))
        inputs, made = (drafting.inputs, drafting.outputs) if drafting else ((), ())
        states = [tensor.buffer for tensor in made if tensor.role == "state"]
        self._remembers = any(not name.startswith((TARGET, KEPT)) for name in states)
        """Whether it has states of its own: what reads the target's caches and features alone never falls behind."""
        self._learns = any(name.startswith(KEPT) for name in states)
        self._reads_alone = not self._fused and all(tensor.name != "features" for tensor in inputs)
        pairs = any(tensor.name == "pairs" for graph in manifest.graphs for tensor in graph.inputs)
        self._pairs, self.overlap = int(pairs), int(pairs and self._fused)
        """How many tokens of a chunk of the text begin the next one. Behind a chunk the target's own guess stands in
        the place of the next token, and a drafter that pairs features with the next token would keep a wrong row."""
        self.is_told = pairs and not self._fused
        """Whether, in the middle of a text, the next token is written in the place of that guess before it drafts."""
        moves_on = carries(manifest.graphs, PARTS[0])
        self._keeps_up = moves_on and self._remembers and not self._fused and not self._reads_alone
        """Whether it reads while it rests: the target could not be given what it would miss."""
        # On a GPU a fused bundle would need the target's weights twice for rounds without drafts.
        can_rest = not (self._fused and (on_device or (moves_on and self._remembers)))
        self._can_adapt = manifest.exact and can_rest
        self._has_graph = drafting is not None
        self._skips = not self._learns and (self._reads_alone or not self._remembers)
        """Whether the drafter need not run where the host drafts: it reads what it missed later, or never has to."""
        self._narrows = self._is_chain or proposals is not None
        """Whether the first of the drafts are as good a window as all of them."""
        accepts = {1: 0, self._full: manifest.depth}
        if self._is_chain and not on_device:
            accepts = {width: width - 1 for width in range(1, self._full + 1)}
        self._timed = frozenset(accepts)
        self.pace: Policy = Pace(accepts, fused=self._fused)
        self._drafted = rounds.engine.array("window", (rounds.batch, self._full))
        has_parents = any(tensor.name == "parents" for graph in manifest.graphs for tensor in graph.inputs)
        self._parents = rounds.engine.array("parents", (rounds.batch, self._full)) if has_parents else None
        self._proposed = np.zeros((rounds.batch, self._full), np.int64)
        """Of every row, the window that the host has written."""
        self._asked, self._is_paced = 1, False
        """The window that the pace has asked for, and whether that is the one that is wanted."""

    def admit(
        self, slot: Slot, row: Row, reuse: int, *, speculative: bool, adaptive: bool, others: Sequence[Slot]
    ) -> None:
        """A row begins behind its first `reuse` tokens, which the slot's caches hold."""
        if self._parents is not None:
            self._parents[slot.index] = chain(self._full - 1).parents  # a tree, until there are drafts
        fixed = speculative and not (adaptive and self.is_certain(row) and self._can_adapt)
        # Of the last token's pair, the token behind it may be another now.
        read = min(slot.read, max(0, reuse - self._pairs)) if self._remembers else reuse
        slot.admit(row, reuse, read, speculative=speculative, fixed=fixed)
        if speculative and read < reuse and not self._reads_alone and self.wanted([*others, slot]) > 1:
            slot.length = slot.given = read  # what the drafter missed it reads at once, beside the target

    def is_certain(self, row: Row) -> bool:
        """Whether a row's tokens do not depend on how many drafts there are. Of one whose drafts are drawn they do, so
        the clock must not decide that."""
        return not self._draws or row.sampling.temperature == 0

    def wanted(self, present: Sequence[Slot]) -> int:
        """The most tokens of the next window, while there are these rows; 1 for no drafts."""
        drafting = [slot for slot in present if slot.speculative]
        self._is_paced = bool(drafting) and not any(slot.fixed for slot in drafting)
        if not self._is_paced:
            return self._full if drafting else 1
        news = [slot for slot in drafting if not slot.paced]
        if news:
            prompt, room = (max(each) for each in zip(*((len(s.row.prompt), s.row.room) for s in news), strict=True))
            if len(news) == len(drafting):
                self._load(drafting)
                self._asked = self.pace.begin(prompt, room)
            else:
                self.pace.join(prompt, room)
            for slot in news:
                slot.paced = True
        return self._asked

    def width(self, decoding: Collection[Slot], wanted: int) -> int:
        """How many tokens the next window of some rows has, in the row that has most."""
        if wanted == 1 or not decoding:
            return 1
        if self._on_device:
            return self._full
        totals = self._rounds.n_total.tolist()
        longest = max((totals[slot.index] for slot in decoding if slot.has_drafts), default=1)
        return min(wanted, longest) if self._narrows or longest == 1 else self._full

    def fill(self, window: Array, width: int, decoding: Iterable[Slot]) -> None:
        """Put the next windows of some rows, of so many tokens, into int64 [B, W], where a run reads them."""
        totals = self._rounds.n_total
        for slot in decoding:
            index = slot.index
            if width == 1 or not slot.has_drafts:
                window[index, 0] = slot.row.token_ids[-1]
                totals[index] = 1
                continue
            if window.shape[1] != self._full:
                window[index, :width] = self._drafted[index, :width]
            totals[index] = min(totals[index], width)

    def drafts(self, begin: Mapping[Slot, int], wanted: int) -> bool:
        """Whether the next run, over slots from these tokens on, drafts as it verifies."""
        ready = any(slot.speculative and self._is_ready(slot, start) for slot, start in begin.items())
        return ready and self._fused and wanted > 1

    def claim_behind(self, decoding: Sequence[Slot], present: Sequence[Slot]) -> list[Slot]:
        """Rows whose drafter has to read beside the target what it has missed. The caller gives the target that part of
        the text again, now."""
        if self._reads_alone or not self._remembers or self.wanted(present) == 1:
            return []
        return [slot for slot in decoding if slot.speculative and slot.read < slot.length]

    def verified(
        self,
        seconds: float,
        begin: Mapping[Slot, int],
        decoding: Collection[Slot],
        *,
        width: int,
        fed: int,
        again: bool,
    ) -> None:
        """A run has been verified that began at these tokens: a round of `decoding`, and so many tokens of a text."""
        if not self._remembers:
            for slot in begin:
                slot.read = slot.length
        if not self._is_paced or not any(slot.speculative for slot in begin):
            return
        if fed:
            if self._asked > 1 and not self._reads_alone and not decoding:
                self.pace.caught_up(fed, seconds, seconds if again else 0.0)
            return
        self._load(decoding)
        if self._asked == 1:
            self.pace.single(seconds)
        else:
            paths = [slot.row for slot in decoding]
            accepted = [row.path_lengths[-1] - 1 for row in paths if row.draft_lengths[-1]]
            timed = width if width in self._timed else self._full  # trees of the host have as many nodes as it found
            self.pace.verified(timed, seconds, accepted, len(paths) - len(accepted))

    def _is_ready(self, slot: Slot, start: int) -> bool:
        """Whether the drafter has missed nothing before a run that begins at this token."""
        return slot.read >= start or not self._remembers

    def advance(
        self, forward: Forward, begin: Mapping[Slot, int], taking: Sequence[Slot], present: Sequence[Slot], fed: int
    ) -> None:
        """Make the next windows behind a run over slots from these tokens on, so many of them of a text. `taking` took
        tokens of it, the others are in the middle of a text. The counts are still those of the run, and may be others
        afterwards."""
        ready = [slot for slot, start in begin.items() if self._is_ready(slot, start)]
        if forward.fused:
            self._have_read(ready, taking)
        wanted = self._choose(begin, ready, taking, present, forward.fused)
        for slot in begin:
            slot.has_drafts, slot.skipped = False, slot.skipped and wanted > 1
        drafting = [slot for slot in taking if slot.speculative and slot.row.active]
        if forward.fused:
            forward.hand_over()
            for slot in drafting:
                slot.has_drafts = slot in ready
        elif wanted > 1 and not self._fused:
            if taking or self._remembers or self._learns:  # of what follows the middle of a text, nobody reads drafts
                self._draft(forward, begin, ready, drafting, wanted, fed)
        elif self._rests_reading(begin):
            self._read(forward, begin, ready)

    def _choose(
        self,
        begin: Collection[Slot],
        ready: Collection[Slot],
        taking: Sequence[Slot],
        present: Sequence[Slot],
        fused: bool,
    ) -> int:
        """What is wanted of the next window. The pace is asked once a round: not for a row whose text has been read
        while others decode."""
        wanted, decoding = self.wanted(present), [slot for slot in present if slot.decodes]
        if not self._is_paced or not any(slot.row.active for slot in taking):
            return wanted
        if any(slot not in taking for slot in decoding):
            return wanted
        misses = self._fused and not fused and self._remembers
        lags = [s.length - s.read for s in decoding if s.speculative and (misses or s not in ready)]
        self._load(decoding)
        self._asked = self.pace.choose(self._together(lags))
        return self._asked

    def _load(self, slots: Collection[Slot]) -> None:
        """Tell the pace how many rows share a round, where it costs the less, the fewer there are."""
        self.pace.load(len(slots) if self._rounds.has_ranges else 1)

    def _together(self, lags: Sequence[int]) -> int:
        """What the drafter reads of rows that miss so much: one after the other, or side by side."""
        return sum(lags) if self._rounds.has_ranges else max(lags, default=0)

    def _have_read(self, slots: Iterable[Slot], taking: Collection[Slot]) -> None:
        """The drafter has read what the run has committed of some rows; but for the last token, in the middle of a text
        that it is not told how to go on with."""
        for slot in slots:
            slot.read, slot.skipped = slot.given + (self.overlap if slot in taking else 0), False

    def _rests_reading(self, slots: Iterable[Slot]) -> bool:
        """Whether the drafter reads though nobody wants drafts: what learns nothing while it rests would never pay
        again, and what would have to be fed beside the target later must be so now."""
        reads = self._keeps_up or (self._learns and not (self._fused or self._remembers))
        return reads and any(slot.speculative for slot in slots)

    def _read(self, forward: Forward, begin: Iterable[Slot], ready: Collection[Slot]) -> None:
        """The drafter reads a run, and its drafts are left alone."""
        draft = forward.draft  # which is bound the first time
        start = perf_counter()
        self._leave_out(slot for slot in begin if slot not in ready)
        draft()
        self._have_read(ready, ())
        self._seconds["draft"] += perf_counter() - start

    def _draft(
        self,
        forward: Forward,
        begin: Mapping[Slot, int],
        ready: Sequence[Slot],
        drafting: Sequence[Slot],
        wanted: int,
        fed: int,
    ) -> None:
        """Ask the host, and run the drafter's own graph, where the host has not drafted for all rows; alone over what
        it has missed of a row, where it has missed anything."""
        late = [slot for slot in drafting if slot not in ready] if self._reads_alone else []
        if self._has_graph and not ready and not late:
            return  # the target comes first: see `claim_behind`
        drafting = [slot for slot in drafting if slot in ready or slot in late]
        has_ranges, read = self._rounds.has_ranges, fed
        draft = forward.draft if self._has_graph and ready and (has_ranges or not late) else None
        start = perf_counter()
        found = {} if self._proposals is None else self._propose(self._proposals, drafting, wanted - 1)
        if not self._has_graph or (not fed and self._skips and found and all(found.values())):
            read = 0
            for slot in ready:
                slot.skipped = self._has_graph and self._remembers
        else:
            read = fed or self._together([slot.length - slot.read for slot in late if not slot.skipped])
            if draft is not None:
                self._leave_out(slot for slot in begin if slot not in ready)
                draft()
                self._have_read(ready, ())
            whole = [slot for slot in (*ready, *late) if slot.row.active]  # they read side by side
            for group in [[slot] for slot in late] if has_ranges else [whole] if late else []:
                self._catch_up(group, forward.history)
            for slot in drafting:
                slot.has_drafts = True
        self._put(found)
        self._seconds["draft"] += perf_counter() - start
        seconds = self._watch.lap()
        if not self._is_paced or not any(slot.speculative for slot in begin):
            return
        if read:
            self.pace.caught_up(read, seconds, seconds)
        else:
            self.pace.drafted(seconds)

    def _leave_out(self, slots: Iterable[Slot]) -> None:
        """The drafter must not read the run in some rows, because it has missed what came before."""
        for slot in slots:
            self._rounds.n_path[slot.index] = 0

    def _propose(self, proposals: Proposals, slots: Iterable[Slot], most: int) -> dict[Slot, int]:
        """Ask for the drafts of some rows, at most so many. Returns how many each has."""
        found = {}
        for slot in slots:
            parents = None if self._parents is None else self._parents[slot.index]
            found[slot] = proposals.write(slot.row.text, self._proposed[slot.index], parents, most)
        return found

    def _put(self, found: Mapping[Slot, int]) -> None:
        """Make the host's drafts the window of every row that has any, and of all where no graph has written one."""
        for slot, drafts in found.items():
            if drafts or not self._has_graph:
                self._drafted[slot.index, : drafts + 1] = self._proposed[slot.index, : drafts + 1]
                self._rounds.n_total[slot.index] = 1 + drafts
                slot.has_drafts = True

    def _catch_up(self, slots: Sequence[Slot], history: int) -> None:
        """The drafter reads what it has missed of some rows' committed tokens, then the last one, and drafts.

        Each run reads the token behind its part as well, as it does in a prefill, where the target has proposed it.
        """
        rounds, texts = self._rounds, [slot.row.text for slot in slots]
        rows = lines_of(slots) if rounds.has_ranges else range(rounds.batch)
        missed = [range(slot.read, slot.length) for slot in slots]
        for parts in aligned_parts(missed, rounds.chunk):
            catch_up = rounds.catch_up(max(map(len, parts)), history, rows)
            rounds.n_path[rows.start : rows.stop] = 0
            for slot, text, part in zip(slots, texts, parts, strict=True):
                catch_up.path[slot.index, : len(part) + 1] = text[part.start : part.stop + 1]
                rounds.n_path[slot.index], rounds.length[slot.index] = len(part), part.start
            catch_up.run()
        for slot in slots:
            slot.read, slot.skipped = slot.length, False
