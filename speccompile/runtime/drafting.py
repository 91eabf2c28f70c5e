"""The window of the next round: drafts, as many as the pace asks for, or the pending token alone.

While nothing is drafted the drafter falls behind. Before it drafts again it reads what it has missed: alone, from the
text that the host has; or, where it is fused with the target or needs more of it than tokens, beside the target, which
is given the same tokens once more and commits the same rows. A target that carries states cannot be given a token
twice: what drafts beside it goes on reading while it rests.
"""

from collections.abc import Mapping, Sequence
from time import perf_counter

import numpy as np

from speccompile.bundle.manifest import Manifest
from speccompile.contract import KEPT, PARTS, carries
from speccompile.runtime.engine import Array
from speccompile.runtime.generation import Row
from speccompile.runtime.pace import Pace, Policy
from speccompile.runtime.proposals import Proposals
from speccompile.runtime.rounds import Forward, Rounds, aligned_parts
from speccompile.runtime.stopwatch import Stopwatch

TARGET = f"{PARTS[0]}."
"""What the names of the target's caches begin with."""


class Drafting:
    """window: the most tokens of the next window, 1 for no drafts."""

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
        self.overlap = int(pairs and self._fused)
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
        self._skipped = False
        """Whether it has missed nothing but rounds for which the host drafted."""
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
        self._pending = rounds.engine.array("window", (rounds.batch, 1))
        self._adaptive = self._feeds_again = False
        self.window = 1
        self._unread: list[int] | None = None
        """Where the drafter has to read on, in every row; None where it has missed nothing."""
        self._lag = 0
        """How much it has missed, in the row in which that is most."""

    def begin(self, rows: Sequence[Row], *, speculative: bool, adaptive: bool) -> None:
        """A batch begins. What is drawn depends on how many drafts there are, so the clock must not decide that."""
        is_certain = not self._draws or all(row.sampling.temperature == 0 for row in rows)
        self._adaptive = speculative and adaptive and is_certain and self._can_adapt
        self.window, self._unread = self._full if speculative else 1, None
        self._feeds_again = self._skipped = False
        if self._adaptive:
            self.window = self.pace.begin(max(len(row.prompt) for row in rows), max(row.room for row in rows))

    @property
    def is_fused(self) -> bool:
        """Whether the next run drafts as it verifies."""
        return self._fused and self.window > 1

    def claim_unread(self) -> list[int] | None:
        """Where the target has to be given every row's text again, so that the drafter reads it too; None where it has
        not, or reads alone, when it drafts again. The caller does it now."""
        if self.window == 1 or self._unread is None or self._reads_alone:
            return None
        unread, self._unread, self._feeds_again = self._unread, None, True
        return unread

    def fed(self, tokens: int, seconds: float) -> None:
        """The target was given so many tokens of a text."""
        if self._adaptive and self.window > 1 and not self._reads_alone:
            self.pace.caught_up(tokens, seconds, seconds if self._feeds_again else 0.0)

    def width(self, rows: Sequence[Row]) -> int:
        """How many tokens the next window has, in the row that has most."""
        if self.window == 1 or self._on_device:
            return self.window
        totals = self._rounds.n_total.tolist()
        longest = max(totals[index] for index, row in enumerate(rows) if row.active)
        return min(self.window, longest) if self._narrows or longest == 1 else self._full

    def fill(self, window: Array) -> None:
        """Put the next window, int64 [B, W], where a run of this width reads it."""
        width = window.shape[1]
        if self.window > 1 and width < self._full:
            window[:] = self._drafted[:, :width]
            np.minimum(self._rounds.n_total, width, out=self._rounds.n_total)

    def verified(self, width: int, seconds: float, rows: Sequence[Row]) -> None:
        """A round of decoding, in which `rows` took part, has been verified."""
        if not self._adaptive:
            return
        if self.window == 1:
            self.pace.single(seconds)
        else:
            accepted = [row.path_lengths[-1] - 1 for row in rows if row.draft_lengths[-1]]
            timed = width if width in self._timed else self._full  # trees of the host have as many nodes as it found
            self.pace.verified(timed, seconds, accepted, len(rows) - len(accepted))

    def advance(self, forward: Forward, n_path: Sequence[int], rows: Sequence[Row], fed: int) -> None:
        """Make the next window. `rows` took tokens of this run, none in the middle of a text; fed: tokens of the text.

        The lengths are still those before the run, and may be others afterwards.
        """
        if forward.fused:
            self._unread = None
        elif (self._fused and self._remembers) or self._unread is not None:
            self._fall_behind(n_path)
        if rows and self._adaptive:
            self.window = self.pace.choose(self._lag if self._unread is not None else 0)
        self._skipped = self._skipped and self.window > 1
        if forward.fused:
            forward.hand_over()
        elif self.window > 1 and not self._fused:
            if rows or self._remembers or self._learns:  # of what follows the middle of a text, nobody reads drafts
                self._draft(forward, n_path, rows, fed)
        elif self._adaptive and (self._keeps_up or (self._learns and not (self._fused or self._remembers))):
            self._read(forward)
        elif self._unread is None and self._remembers:
            self._fall_behind(n_path)
        # A `step` that is not behind reads the pending token alone, and drafts again.
        if self.window == 1 or (self._fused and not forward.fused):
            self._write_pending(forward, n_path)

    def _read(self, forward: Forward) -> None:
        """Nobody reads the drafts, but what learns nothing while it rests would never pay again, and what would have to
        be fed beside the target later must be so now."""
        draft = forward.draft  # which is bound the first time
        start = perf_counter()
        draft()
        self._seconds["draft"] += perf_counter() - start

    def _write_pending(self, forward: Forward, n_path: Sequence[int]) -> None:
        pending = self._pending if self.window == 1 else self._drafted
        for index, end in enumerate(n_path):
            pending[index, 0] = forward.path[index, end]
        self._rounds.n_total[:] = 1

    def _fall_behind(self, n_path: Sequence[int]) -> None:
        """The drafter does not read this run."""
        if self._unread is None:
            self._unread, self._lag = self._rounds.length.tolist(), 0
        self._lag += max(n_path)

    def _draft(self, forward: Forward, n_path: Sequence[int], rows: Sequence[Row], fed: int) -> None:
        """Ask the host, and run the drafter's own graph, where the host has not drafted for all rows; over what it has
        missed, where it has missed anything."""
        if self._unread is not None and not self._reads_alone:
            return  # the target comes first: see `claim_unread`
        draft, read = forward.draft if self._has_graph and self._unread is None else None, 0
        start = perf_counter()
        found = {} if self._proposals is None else self._propose(self._proposals, rows)
        if not self._has_graph or (not fed and self._skips and found and all(found.values())):
            self._skip(n_path)
        elif draft is not None:
            draft()
            read = fed
        else:
            read = 0 if self._skipped else self._lag
            self._catch_up(rows, forward.history)
        self._put(found)
        self._seconds["draft"] += perf_counter() - start
        seconds = self._watch.lap()
        if self._adaptive and read:
            self.pace.caught_up(read, seconds, seconds)
        elif self._adaptive:
            self.pace.drafted(seconds)

    def _propose(self, proposals: Proposals, rows: Sequence[Row]) -> dict[int, int]:
        """Ask for the drafts of every active row. Returns how many each has."""
        found = {}
        for index, row in enumerate(rows):
            if row.active:
                parents = None if self._parents is None else self._parents[index]
                found[index] = proposals.write(row.text, self._proposed[index], parents, self.window - 1)
        return found

    def _skip(self, n_path: Sequence[int]) -> None:
        """The next window has no drafts but the host's. Where a graph drafts, it does not read this run."""
        self._rounds.n_total[:] = 1
        if self._has_graph and self._remembers and self._unread is None:
            self._fall_behind(n_path)
            self._skipped = True

    def _put(self, found: Mapping[int, int]) -> None:
        """Make the host's drafts the window of every row that has any, and of all where no graph has written one."""
        for index, drafts in found.items():
            if drafts or not self._has_graph:
                self._drafted[index, : drafts + 1] = self._proposed[index, : drafts + 1]
                self._rounds.n_total[index] = 1 + drafts

    def _catch_up(self, rows: Sequence[Row], history: int) -> None:
        """The drafter reads what it has missed of every row's committed tokens, then the pending one, and drafts.

        Each run reads the token behind its part as well, as it does in a prefill, where the target has proposed it.
        """
        rounds, texts, starts = self._rounds, [row.text for row in rows], self._unread or ()
        pairs = zip(starts, rows, strict=False)
        missed = [range(start, len(row) - 1) if row.active else range(0) for start, row in pairs]
        rounds.n_path[:] = rounds.length[:] = 0
        for parts in aligned_parts(missed, rounds.chunk):
            catch_up = rounds.catch_up(max(map(len, parts)), history)
            for index, (text, part) in enumerate(zip(texts, parts, strict=True)):
                catch_up.path[index, : len(part) + 1] = text[part.start : part.stop + 1]
                rounds.n_path[index], rounds.length[index] = len(part), part.start
            catch_up.run()
        self._unread = None
