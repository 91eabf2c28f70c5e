"""The neutral op `speccompile::adjust`, with its meaning in eager torch, as in `ops`."""

import torch
from torch import Tensor


@torch.library.custom_op("speccompile::adjust", mutates_args=())
def adjust(logits: Tensor, tokens: Tensor, values: Tensor) -> Tensor:
    """Return logits float32 [B, R, V] with values float32 [B, R, K] added at the tokens int64 [B, R, K].

    A token that a row has twice has equal values there, one of which is added. An op, because the trace would hold that
    the rows of the logits and those of the tokens are as many.
    """
    return logits.scatter(2, tokens, logits.gather(2, tokens) + values)


@adjust.register_fake
def _(logits: Tensor, tokens: Tensor, values: Tensor) -> Tensor:
    return torch.empty_like(logits)
