"""What the host gives graphs that sample: settings once a generation, uniforms and the history in every round."""

from collections.abc import Collection, Sequence

from speccompile.bundle.manifest import Manifest
from speccompile.runtime.engine import Array, Engine
from speccompile.runtime.generation import Row
from speccompile.runtime.options import GREEDY
from speccompile.runtime.random import Purpose, Uniforms

SETTINGS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
PER_DRAFT = {"accept_uniforms": Purpose.ACCEPT, "draft_uniforms": Purpose.DRAFT}


class Sampler:
    """Writes the inputs of sampling for one batch at a time. `inputs`: names of all inputs of the round's graphs."""

    def __init__(self, engine: Engine, manifest: Manifest, inputs: Collection[str]) -> None:
        self._engine, self._batch, self._tokens = engine, manifest.batch_size, manifest.tokens
        self._settings = {name: engine.array(name, (self._batch,)) for name in SETTINGS}
        shape = (self._batch, self._tokens)
        self._per_draft = [(engine.array(n, shape), purpose) for n, purpose in PER_DRAFT.items() if n in inputs]
        self._new_tokens: list[Array] = []
        self._streams: list[list[tuple[Array, Uniforms]]] = []
        self.history = History(engine, manifest)
        self.begin((), drafting=False)  # zeros would not be neutral

    def begin(self, rows: Sequence[Row], *, drafting: bool) -> None:
        """The settings of every row, and its random numbers from the first on. drafting: whether rounds have drafts."""
        samplings = [row.sampling for row in rows]
        idle = [GREEDY] * (self._batch - len(rows))
        for name, array in self._settings.items():
            array[:] = [getattr(sampling, name) for sampling in (*samplings, *idle)]
        # A round may reach behind the last token that there is room for.
        self._new_tokens = [
            Uniforms(each.seed, each.sequence, Purpose.NEW_TOKEN).draw(row.room + self._tokens + 1)
            for row, each in zip(rows, samplings, strict=True)
        ]
        per_draft = self._per_draft if drafting else []
        self._streams = [
            [(array[index], Uniforms(each.seed, each.sequence, purpose)) for array, purpose in per_draft]
            for index, each in enumerate(samplings)
        ]
        self.history.begin(rows)

    def write(self, rows: Sequence[Row], logit_rows: int) -> None:
        """The random numbers of the next round, and what has been said until now. Rows that have ended draw nothing."""
        uniforms = self._engine.array("uniforms", (self._batch, logit_rows))
        for index, row in enumerate(rows):
            if row.active:
                start = len(row.token_ids)
                uniforms[index] = self._new_tokens[index][start : start + logit_rows]
                for numbers, stream in self._streams[index]:
                    numbers[:] = stream.draw(self._tokens)
                self.history.add(index, row.token_ids)
        self.history.widen()


class History:
    """The tokens of every penalized row, each once; the rest of its line repeats one of them.

    `width` is 1 while no row has a penalty, else a power of two or the capacity: few different shapes.
    """

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self._engine, self._batch, self._most = engine, manifest.batch_size, manifest.max_length
        self._seen: dict[int, dict[int, None]] = {}
        self._lines = self._widened()

    @property
    def width(self) -> int:
        return int(self._lines.shape[1])

    def begin(self, rows: Sequence[Row]) -> None:
        """The prompts of the penalized rows."""
        penalized = {index: row for index, row in enumerate(rows) if row.sampling.repetition_penalty != 1}
        self._seen = {index: dict.fromkeys(row.prompt) for index, row in penalized.items()}
        self._read = dict.fromkeys(penalized, 0)
        self._lines = self._widened()

    def add(self, index: int, tokens: Sequence[int]) -> None:
        """Take the new tokens of a row; `tokens` are all that it ever got."""
        seen = self._seen.get(index)
        if seen is None:
            return
        for token in tokens[self._read[index] :]:
            if token not in seen:
                if len(seen) < self.width:
                    self._lines[index, len(seen)] = token
                seen[token] = None
        self._read[index] = len(tokens)

    def widen(self) -> None:
        """Make room for what no longer fits."""
        if any(len(seen) > self.width for seen in self._seen.values()):
            self._lines = self._widened()

    def _widened(self) -> Array:
        """Lines that hold what has been seen."""
        most = max(map(len, self._seen.values()), default=1)
        width = min(1 << (most - 1).bit_length(), self._most)
        lines = self._engine.array("history", (self._batch, width))
        for index, seen in self._seen.items():
            lines[index] = next(iter(seen))
            lines[index, : len(seen)] = list(seen)
        return lines
