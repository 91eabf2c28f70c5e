"""Latent attention (MLA): keys and values of all heads derive from one compressed row, which the cache holds.

transformers implements it alike in all models: `update` receives the compressed row [B, 1, R, rank] and the rotary
columns that all heads share [B, 1, R, turned], and the method `expand_kv` makes keys and values of both with the
linear layer `kv_b_proj`. That is linear in the row, so it moves to the other side of both products (DeepSeek-V2,
arXiv 2405.04434, section 2.1.2): queries are projected to the row's width, and no row is ever expanded.
"""

import torch
from torch import Tensor, nn


def is_latent(module: nn.Module, rows: Tensor, turned: Tensor) -> bool:
    """Return whether an attention layer of transformers expands these cached tensors as the module docstring
    describes."""
    project = getattr(module, "kv_b_proj", None)
    return (
        hasattr(module, "expand_kv")
        and isinstance(project, nn.Linear)
        and project.bias is None
        and rows.shape[1] == turned.shape[1] == 1
        and rows.shape[3] == project.in_features
    )


def absorb_query(module: nn.Module, query: Tensor) -> tuple[Tensor, Tensor]:
    """Return a query [B, N, T, own + turned] in the space of cached rows, [B, N, T, rank + turned], and the weight [N,
    rank, E] that turns the attention's result into values. `kv_b_proj` holds, for each head, the columns of its keys,
    then those of its values."""
    heads, own = query.shape[1], module.qk_nope_head_dim
    weight = module.kv_b_proj.weight.view(heads, own + module.v_head_dim, -1)
    first, turned = query.split([own, query.shape[3] - own], 3)
    return torch.cat([first @ weight[:, :own], turned], 3), weight[:, own:].transpose(1, 2)
