"""The target over trained mask rows after the bonus token, one draft each (PaSS, Monea et al. 2023; BiTA, Lin et al.
2024). It reads the target's caches, as `target_layers` does, and commits nothing: its rows are recomputed in every
round."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.draft import Accepted, State
from speccompile.compiler.step.draft.masked import ParallelDraftRound
from speccompile.compiler.step.draft.network import DraftNetwork, DraftRound
from speccompile.compiler.step.draft.target_layers import borrowed_states


class MaskReader(DraftNetwork):
    """The whole target, with trained embeddings for mask rows, and prefix rows that only mask rows see."""

    has_cache = False

    def __init__(self, decoder: Decoder, masks: Tensor, prefix: Sequence[Tensor] = ()) -> None:
        """masks float32 [L, H]: embeddings of the mask rows; prefix float32 [G, P, D]: keys and values of P rows before
        the text, those of the first layer, of the second, .., none by default."""
        super().__init__()
        self.decoder, self.size = decoder, decoder.model.config.vocab_size
        self.register_buffer("masks", masks.detach(), persistent=False)
        self.n_prefix = len(prefix)
        for index, rows in enumerate(prefix):
            self.register_buffer(f"prefix_{index}", rows.detach(), persistent=False)

    def states(self) -> list[State]:
        return []

    def target_caches(self) -> list[State]:
        return borrowed_states(self.decoder)

    def begin(self, accepted: Accepted, states: list[Tensor]) -> DraftRound:
        return MaskReading(self, accepted, states)

    @property
    def prefix(self) -> list[Tensor]:
        """Return the prefix as passed to the constructor."""
        return [getattr(self, f"prefix_{index}") for index in range(self.n_prefix)]


def put_prefix(current: CachedPass, prefix: Sequence[Tensor], batch: int) -> int:
    """Append a prefix, as of `MaskReader`, to the rows of a pass, in every layer. Return its number of rows."""
    rows = [each.expand(batch, -1, -1, -1) for each in prefix]
    for layer, keys, values in zip(current.layers, rows[::2], rows[1::2], strict=False):
        layer.update(keys, values)
    return int(rows[0].shape[2]) if rows else 0


class MaskReading(ParallelDraftRound, DraftRound):
    """One round. Its constructor reads the bonus token and all mask rows."""

    def __init__(self, reader: MaskReader, accepted: Accepted, caches: list[Tensor]) -> None:
        decoder, end, masks = reader.decoder, accepted.length + accepted.n_path, reader.masks
        self.bonus = accepted.path.gather(1, accepted.n_path[:, None])
        batch, width = self.bonus.shape[0], 1 + masks.shape[0]
        current = decoder.begin(caches, end)
        places = torch.arange(width, device=end.device)
        positions = row_positions = decoder.clamp(end[:, None] + places)
        visible = places <= places[:, None]
        before = put_prefix(current, reader.prefix, batch)
        if before:
            row_positions = torch.cat([positions[:, :1].expand(-1, before), positions], 1)
            visible = torch.cat([(places > 0)[:, None].expand(-1, before), visible], 1)
        current.set_positions(positions, row_positions, visible.expand(batch, -1, -1))
        tokens = self.bonus.expand(-1, width)  # the mask rows' embeddings are replaced
        with embedded(decoder.model, masks, 1):
            self.depths = decoder.run(current, tokens)
        self.logits = self.depths[:, :1]

    def commit(self) -> list[Tensor]:
        """Return no states: nothing is committed."""
        return []


@contextmanager
def embedded(model: nn.Module, masks: Tensor, known: int) -> Iterator[None]:
    """Replace the embeddings by `masks` [L, H], except for the first `known` tokens, inside a `with` block."""

    def replaced(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return torch.cat([output[:, :known], masks.to(output.dtype).expand(output.shape[0], -1, -1)], 1)

    with model.get_input_embeddings().register_forward_hook(replaced):
        yield
