"""Attention with a bias for each distance between query and key, T5's: a table that layers share or have of their own.

A model computes the bias by the length of its input, which means nothing in a pass. Here it is found by the positions
of the pass, for committed and in-step rows alike. `ops.attend` knows one bias for all heads: so every head attends by
itself, as a line of a batch, and to in-step rows alone, of which the committed ones come first.
"""

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from speccompile.compiler.step import ops

_BUCKETS = "distance_buckets"
"""Name of the constant of a module with a table."""


class RelativeBias:
    """Mixin of a pass: the bias of the layer that computed it last, until the positions change."""

    relative: Tensor | None = None
    length: Tensor

    def attend_by_distance(
        self, module: nn.Module, query: Tensor, own: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor], scale: float
    ) -> Tensor:
        """Attend: query [B, N, T, D] to committed rows [B, N, S, D] and in-step rows [B, N, R, D] -> [B, N, T, D].
        module: the attention, which has a table or uses that of a layer before it."""
        assert self.relative is not None, "the first layer has a table"
        batch, heads, tokens, width = query.shape
        keys, values = (torch.cat(pair, 2).flatten(0, 1)[:, None] for pair in zip(caches, own, strict=True))
        nothing = keys.new_zeros((keys.shape[0], 1, 1, width))
        none = torch.zeros(keys.shape[0], dtype=torch.int64, device=query.device)
        places = torch.zeros(keys.shape[0], tokens, dtype=torch.int64, device=query.device)
        bias = self.relative.flatten(0, 1)[:, None].to(query.dtype)
        found = ops.attend(
            query.flatten(0, 1)[:, None], keys, values, nothing, nothing, none, places, bias, scale, 0.0, 0
        )
        return found.reshape(batch, heads, tokens, width)

    def keep_relative(self, module: nn.Module, rows: int) -> None:
        """Compute the bias of an attention with a table, for it and the layers after it, over caches of `rows` rows."""
        if module.has_relative_attention_bias:
            self.relative = self._bias(module, rows)

    def _bias(self: Any, module: nn.Module, rows: int) -> Tensor:
        """Return float32 [B, N, T, S + R]: the bias of all rows, hidden ones included."""
        columns = torch.arange(rows, device=self.positions.device)
        places = torch.cat([columns.expand(self.positions.shape[0], -1), self.row_positions], 1)
        committed = columns < self.length[:, None, None]
        seen = torch.cat([committed.expand(-1, self.positions.shape[1], -1), self.visible], 2)
        table = distance_table(module)
        distances = (self.positions[:, :, None] - places[:, None, :]).clamp(0, table.shape[0] - 1)
        return torch.where(seen[:, None], table[distances].permute(0, 3, 1, 2), ops.HIDDEN)


def prepare_distances(model: nn.Module) -> None:
    """Give every module with a table for a decoder the rows of it for keys 0, 1, .. tokens before the query, as a
    constant: all that lie further away have the last one's."""
    for module in model.modules():
        if getattr(module, "has_relative_attention_bias", False) and module.is_decoder:
            distances = torch.arange(int(module.relative_attention_max_distance) + 1)
            find, given = module._relative_position_bucket, dict[str, object]()
            if "num_buckets" in signature(find).parameters:  # T5's; UMT5's reads them itself
                given = {"bidirectional": False, "num_buckets": module.relative_attention_num_buckets}
                given["max_distance"] = module.relative_attention_max_distance
            buckets = find(-distances, **given)
            module.register_buffer(_BUCKETS, buckets, persistent=False)


def distance_table(module: nn.Module) -> Tensor:
    """Return float32 [P, N]: the bias of each head for a key that lies 0, 1, .. tokens before the query."""
    table: Tensor = module.relative_attention_bias(getattr(module, _BUCKETS))
    return table
