"""Share of tokens that the target predicts alike without some sublayers: SWIFT's matchness (Xia et al. 2024).

Teacher forcing, all at once: every block of the text begins where a round might, after the whole target's keys and
values, and reads the target's text. So a prediction at depth d that is right, with all before it right, is a draft that
a chain would have accepted there. In float32, for every compute dtype: a draft loses the same precision as the target.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from speccompile.bundle.cache import BUILDS, FolderCache
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.modules import load_decoder
from speccompile.compiler.models.load import ModelFiles
from speccompile.compiler.models.sublayers import check_sublayers
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.errors import UnsupportedModelError
from speccompile.plan.layers import LayersPlan
from speccompile.progress import LOGGER, log_step

MOST_TOKENS = 4096
"""Maximum number of tokens of text: their keys and values stay in memory, 1 GiB for an 8 B model of 32 layers and 8 key
heads."""
BATCH = 16
"""Blocks of one run."""
FEWEST = 32
"""Minimum number of blocks of an evaluation, however short the time."""


@dataclass(frozen=True)
class TargetText:
    """Tokens of a text. The target wrote all tokens after the first `prompt`."""

    prompt: int
    tokens: list[int]


class LayerAgreement:
    """Evaluates sublayers. The constructor runs the whole target over the text once. has_halves: attention and MLP of a
    layer can be skipped separately.

    blocks: number of positions in the text that an evaluation uses.
    """

    def __init__(
        self, model: ModelFiles, shape: CacheShape, texts: Sequence[TargetText], depth: int, seconds: float,
        threads: int,
    ) -> None:  # fmt: skip
        """model: the target; shape: of its caches. depth: of the drafts, less if every text is shorter. seconds: time
        of one evaluation, by which the text is thinned. threads: of torch, while it runs the target."""
        target = load_decoder(model, "target", shape, CachedSteps(FolderCache.named(BUILDS)))
        if target.is_recurrent:
            raise UnsupportedModelError(
                f"{type(target.model).__name__} keeps states, of which a text leaves none for each of its tokens: "
                "which of its layers to draft with cannot be searched",
                hint="name the layers, for example `layers: [0, 2]`",
            )
        self._decoder = Decoder(target.model, target.layers, target.shape)
        self.layers, self._cached = len(target.layers), list(target.cache_shapes())
        self.has_halves = self._find_halves()
        self.depth = min(depth, max(len(text.tokens) - text.prompt for text in texts) - 1)
        self._threads = threads
        self._texts = self._read(texts)
        self._chosen = self._blocks()
        self._chosen = self._thinned(seconds)

    @property
    def blocks(self) -> int:
        """Return the number of round beginnings that an evaluation uses."""
        return len(self._chosen)

    def __call__(self, layers: LayersPlan) -> tuple[float, ...]:
        """Return the share of blocks in which these layers are right at depth 1, at depths 1 and 2, .."""
        every = set(range(self.layers))
        self._decoder.skipped = frozenset(every - set(layers.attention))
        self._decoder.skipped_mlps = frozenset(every - set(layers.mlp))
        parts = []
        with _torch_threads(self._threads):
            for number in sorted({text for text, _ in self._chosen}):
                starts = torch.tensor([start for text, start in self._chosen if text == number])
                parts += [self._right(number, some) for some in starts.split(BATCH)]
        return tuple(torch.cat(parts).cumprod(1).double().mean(0).tolist())

    def _find_halves(self) -> bool:
        try:
            check_sublayers(self._decoder.model, range(self.layers))
        except UnsupportedModelError as error:
            LOGGER.info("whole layers are left out, not halves: %s", error)
            return False
        return True

    def _read(self, texts: Sequence[TargetText]) -> list[tuple[TargetText, Tensor, list[Tensor]]]:
        """Return the texts that fit: each with its tokens int64 [1, n] and the whole target's cache rows."""
        found: list[tuple[TargetText, Tensor, list[Tensor]]] = []
        with log_step("reading what the target wrote"), _torch_threads(self._threads):
            for text in texts:
                read = sum(tokens.shape[1] for _, tokens, _ in found)
                if len(text.tokens) - text.prompt > self.depth and (
                    not found or read + len(text.tokens) <= MOST_TOKENS
                ):
                    tokens = torch.tensor([text.tokens])
                    found.append((text, tokens, self._rows(tokens)))
        return found

    @torch.no_grad()
    def _rows(self, tokens: Tensor) -> list[Tensor]:
        current = self._decoder.begin(self._decoder.empty(1), torch.tensor([0]))
        width = tokens.shape[1]
        positions = torch.arange(width)[None]
        current.set_positions(positions, positions, torch.ones(1, width, width, dtype=torch.bool).tril())
        self._decoder.run(current, tokens, torch.tensor([[width - 1]]))
        return current.rows()

    def _blocks(self) -> list[tuple[int, int]]:
        """Return (text, position of the bonus token) of every round that might begin in the target's text."""
        return [
            (number, start)
            for number, (text, _, _) in enumerate(self._texts)
            for start in range(text.prompt, len(text.tokens) - self.depth)
        ]

    def _thinned(self, seconds: float) -> list[tuple[int, int]]:
        """Thin the blocks evenly, so that an evaluation with all layers takes about `seconds`."""
        every, whole = self._chosen, LayersPlan(*[tuple(range(self.layers))] * 2)
        self._chosen = every[:: max(1, len(every) // FEWEST)]
        self(whole)  # the first run of a process takes longer
        start = perf_counter()
        self(whole)
        fitting = seconds / (perf_counter() - start) * len(self._chosen)
        return every[:: max(1, round(len(every) / max(fitting, FEWEST)))]

    @torch.no_grad()
    def _right(self, number: int, starts: Tensor) -> Tensor:
        """Return bool [B, depth]: which tokens after each start int64 [B] these layers predict, given the tokens
        before."""
        _, tokens, rows = self._texts[number]
        batch, kept = len(starts), self._decoder.cache_shapes()
        caches = [rows[self._cached.index(name)].expand(batch, -1, -1, -1) for name in kept]
        current = self._decoder.begin(caches, starts)
        positions = starts[:, None] + torch.arange(self.depth)
        current.set_positions(positions, positions, torch.ones(batch, self.depth, self.depth, dtype=torch.bool).tril())
        said = self._decoder.run(current, tokens[0][positions]).argmax(-1)
        return said == tokens[0][positions + 1]


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
