"""How often the target without some halves says what the whole target wrote: SWIFT's matchness (Xia et al. 2024).

By teacher forcing, all at once: every block of the text begins where a round might, behind keys and values that the
whole target left, and reads what was written. So what is right at depth d, all before it being right, is what a chain
would have accepted there. In float32, whatever the engine computes in: a draft loses what the target loses.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from speccompile.bundle.build_cache import BuildCache
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.modules import cache_shape, load_decoder
from speccompile.compiler.models.sublayers import check_sublayers
from speccompile.compiler.step.decoder import Decoder
from speccompile.errors import UnsupportedModelError
from speccompile.plan.plan import LayersPlan
from speccompile.progress import LOGGER, log_step
from speccompile.recipe import Plan

MOST_TOKENS = 4096
"""Of text: its keys and values are held, in an 8 B model of 32 layers and 8 key heads 1 GiB of them."""
BATCH = 16
"""Blocks of one run."""
FEWEST = 32
"""Blocks of a judgement, however little time there is."""


@dataclass(frozen=True)
class TargetText:
    """Tokens, of which the target wrote all behind the first `prompt`."""

    prompt: int
    tokens: list[int]


class LayerAgreement:
    """Made, it has run the whole target over the text once. has_halves: whether each layer's can be skipped apart.

    blocks: how many places of the text a judgement looks at. seconds: how long one took, with all layers.
    """

    def __init__(self, plan: Plan, texts: Sequence[TargetText], depth: int, seconds: float, threads: int) -> None:
        """depth: of the drafts, less where every text is shorter. seconds: that a judgement may take, by which some of
        the text is left out. threads: of torch, while it runs the target."""
        target = load_decoder(plan.target, "target", cache_shape(plan), CachedSteps(BuildCache()))
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
        """How many beginnings of rounds a judgement looks at."""
        return len(self._chosen)

    def __call__(self, layers: LayersPlan) -> tuple[float, ...]:
        """The share of blocks in which these layers are right at depth 1, at depths 1 and 2, .."""
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
        """Of as many texts as fit: the tokens int64 [1, n], and what the whole target leaves in its caches."""
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
        """(text, place of the bonus token) of every round that might begin in what the target wrote."""
        return [
            (number, start)
            for number, (text, _, _) in enumerate(self._texts)
            for start in range(text.prompt, len(text.tokens) - self.depth)
        ]

    def _thinned(self, seconds: float) -> list[tuple[int, int]]:
        """Evenly, so that a judgement with all layers takes about so long."""
        every, whole = self._chosen, LayersPlan(*[tuple(range(self.layers))] * 2)
        self._chosen = every[:: max(1, len(every) // FEWEST)]
        self(whole)  # the first run of a process takes longer
        start = perf_counter()
        self(whole)
        fitting = seconds / (perf_counter() - start) * len(self._chosen)
        return every[:: max(1, round(len(every) / max(fitting, FEWEST)))]

    @torch.no_grad()
    def _right(self, number: int, starts: Tensor) -> Tensor:
        """bool [B, depth]: which tokens behind each start int64 [B] are what these layers say, those before given."""
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
