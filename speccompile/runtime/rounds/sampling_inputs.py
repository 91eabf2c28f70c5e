"""What the host gives graphs that sample: settings once a row, uniforms and the history in every round."""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from speccompile.bundle.manifest import Manifest
from speccompile.runtime.devices.engine import Array, Engine
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.options import GREEDY, SamplingParams
from speccompile.runtime.rounds.random import Purpose, Uniforms

SETTINGS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
PER_DRAFT = {"accept_uniforms": Purpose.ACCEPT, "draft_uniforms": Purpose.DRAFT}


class SamplingInputs:
    """Writes the inputs of sampling. `inputs`: names of all inputs of the round's graphs."""

    def __init__(self, engine: Engine, manifest: Manifest, inputs: Collection[str]) -> None:
        self._engine, self._batch, self._tokens = engine, manifest.batch_size, manifest.tokens
        self._settings = {name: engine.host_view(name, (self._batch,)) for name in SETTINGS}
        shape = (self._batch, self._tokens)
        self._per_draft = [(engine.host_view(n, shape), purpose) for n, purpose in PER_DRAFT.items() if n in inputs]
        self._new_tokens: dict[int, Array] = {}
        self._streams: dict[int, list[tuple[Array, Uniforms]]] = {}
        self.history = PenaltyHistory(engine, manifest)
        for slot in range(self._batch):
            self._set(slot, GREEDY)  # zeros would not be neutral

    def admit(self, slot: int, row: SequenceState, *, drafting: bool) -> None:
        """The settings of a row, and its random numbers from the first on. drafting: whether its rounds have drafts."""
        each = row.sampling
        self._set(slot, each)
        # A round may reach behind the last token that there is room for.
        numbers = Uniforms(each.seed, each.sequence, Purpose.NEW_TOKEN)
        self._new_tokens[slot] = numbers.draw(row.max_new_tokens + self._tokens + 1)
        self._streams[slot] = [
            (array[slot], Uniforms(each.seed, each.sequence, purpose))
            for array, purpose in (self._per_draft if drafting else [])
        ]
        if each.repetition_penalty != 1:
            self.history.admit(slot, row.all_token_ids)

    def release(self, slot: int) -> None:
        """A row has left."""
        self._set(slot, GREEDY)
        self.history.release(slot)

    def write(self, rows: range, taking: Mapping[int, SequenceState], logit_rows: int) -> int:
        """The random numbers of the next run over some rows, for those that take a token from it: the others draw
        nothing. And what has been said until now: returns the width of the history."""
        uniforms = self._engine.host_view("uniforms", (self._batch, logit_rows))
        for slot, row in taking.items():
            start = len(row.token_ids)
            uniforms[slot] = self._new_tokens[slot][start : start + logit_rows]
            for numbers, stream in self._streams[slot]:
                numbers[:] = stream.draw(self._tokens)
            self.history.add(slot, row)
        return self.history.write(rows)

    def _set(self, slot: int, sampling: SamplingParams) -> None:
        for name, array in self._settings.items():
            array[slot] = getattr(sampling, name)


class PenaltyHistory:
    """The tokens of every penalized row, each once; the rest of its line repeats one of them.

    A run over rows of which none has a penalty reads lines of one token, others lines of a power of two or of the
    capacity: few different shapes.
    """

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self._engine, self._batch, self._most = engine, manifest.batch_size, manifest.max_length
        self._seen: dict[int, dict[int, None]] = {}
        self._lengths: dict[int, int] = {}
        """Of every penalized row, how much of its text has been seen."""
        self._written: dict[tuple[int, int], int] = {}
        """Of every penalized row and width, how many tokens its line holds."""

    def admit(self, slot: int, text: Collection[int]) -> None:
        """A penalized row begins with a text."""
        self.release(slot)
        self._seen[slot], self._lengths[slot] = dict.fromkeys(text), len(text)

    def release(self, slot: int) -> None:
        self._seen.pop(slot, None)
        self._written = {key: count for key, count in self._written.items() if key[0] != slot}

    def add(self, slot: int, row: SequenceState) -> None:
        """Take a row's new tokens."""
        if slot in self._seen:
            self._seen[slot].update(dict.fromkeys(row.token_ids[self._lengths[slot] - len(row.prompt) :]))
            self._lengths[slot] = len(row)

    def write(self, rows: Iterable[int]) -> int:
        """The lines of some rows, at the width that is returned."""
        penalized = [slot for slot in rows if slot in self._seen]
        most = max((len(self._seen[slot]) for slot in penalized), default=1)
        width = min(1 << (most - 1).bit_length(), self._most)
        lines = self._engine.host_view("history", (self._batch, width))
        for slot in penalized:
            seen, written = self._seen[slot], self._written.get((slot, width), 0)
            if not written:
                lines[slot] = next(iter(seen))
            if written < len(seen):
                lines[slot, written : len(seen)] = list(islice(seen, written, None))
                self._written[slot, width] = len(seen)
        return width
