"""A pass over whole texts without caches, through which gradients flow: drafters attend here in training.

The modules are those that are compiled. Their rows see each other as `set_positions` says, including rows that a round
would read from a cache. Differentiable torch replaces the neutral ops of a round.
"""

import torch
from torch import Tensor
from torch.nn import functional
from transformers.cache_utils import Cache

from speccompile.compiler.step import ops
from speccompile.compiler.step.attention import AttentionCall, CachedPass, InStepKV, window_reference
from speccompile.compiler.step.cross_attention import CrossRows


class TrainingPass(CachedPass):
    """A pass of in-step rows alone. Layers append their rows in one run after the other, as in a round's pass."""

    def __init__(self, windows: list[int]) -> None:
        """windows: attention window of every layer, as in `CachedPass`."""
        Cache.__init__(self, layers=[InStepKV() for _ in windows])
        self.windows, self.skipped, self.named = windows, frozenset(), {}
        CrossRows.__init__(self, self.named, None)
        self.visible: Tensor | None = None
        self.biases: dict[int, Tensor] = {}
        self.n_own = 0

    def set_positions(
        self, positions: Tensor, row_positions: Tensor, visible: Tensor, count: Tensor | None = None, n_own: int = 0
    ) -> None:
        """Set what the next run sees, as `CachedPass.set_positions`. n_own: the last `n_own` runs of T rows are such
        that query t sees row t of each run; `visible` and `row_positions` cover the rows before them. Scores then have
        one column for a run, not T."""
        super().set_positions(positions, row_positions, visible, count)
        self.n_own = n_own

    def attend(self, query: Tensor, call: AttentionCall) -> Tensor:
        """Attend: [B, N, T, D] -> [B, N, T, E], as `ops.attend` with nothing committed."""
        rows = self.layers[call.source]
        keys, values = rows.keys, rows.values
        if call.shift:
            values = values.roll(call.shift, 1)
        if call.is_latent:
            keys, values = torch.cat([keys, values], 3), keys
        groups = query.shape[1] // keys.shape[1]
        keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
        bias = self.bias(self.windows[call.layer]).to(query.dtype)
        if not self.n_own and call.softcap == 0 and call.sinks is None:
            return functional.scaled_dot_product_attention(query, keys, values, attn_mask=bias, scale=call.scale)
        size = query.shape[2]
        plain = keys.shape[2] - self.n_own * size
        runs = range(plain, keys.shape[2], size)
        own = [(query * keys[:, :, run : run + size]).sum(-1, keepdim=True) for run in runs]
        scores = torch.cat([query @ keys[:, :, :plain].transpose(-1, -2), *own], 3) * call.scale
        bias = torch.cat([bias, self._own_bias(self.windows[call.layer]).to(query.dtype)], 3)
        weights = ops.shares(scores, bias, call.softcap, call.sinks)
        context = weights[..., :plain] @ values[:, :, :plain]
        for index, run in enumerate(runs):
            context = context + weights[..., plain + index, None] * values[:, :, run : run + size]
        return context

    def _own_bias(self, window: int) -> Tensor:
        """Return the bias [B, 1, T, n_own] of own rows, as `bias`: the last run holds the queries' own rows, each run
        before it rows one position earlier."""
        behind = torch.arange(self.n_own - 1, -1, -1, device=self.positions.device)
        reached = window_reference(self.positions, window)[:, :, None] - (self.positions[:, :, None] - behind)
        seen = reached < abs(window) if window else torch.ones_like(reached, dtype=torch.bool)
        return torch.where(seen, 0.0, ops.HIDDEN)[:, None]
