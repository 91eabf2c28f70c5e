"""transformers' own attention, over keys and values with the values that quantized caches hold."""

import sys
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

from speccompile.contract import FLOAT_CACHE

_EAGER, _ROUNDED = "eager", "speccompile_rounded"
_ATTRIBUTE = "speccompile_cache"


def round_caches(model: nn.Module, dtype: str) -> nn.Module:
    """Let a model attend, after each `attend_eagerly`, over keys and values as caches of this dtype hold them. Return
    the model. dtype: one of `contract.CACHE_DTYPES`."""
    setattr(model, _ATTRIBUTE, dtype)
    return model


def attend_eagerly(model: nn.Module) -> None:
    """Set transformers' eager attention, with rounded keys and values if `round_caches` says so."""
    dtype = getattr(model, _ATTRIBUTE, FLOAT_CACHE)
    model.set_attn_implementation(_EAGER if dtype == FLOAT_CACHE else _ROUNDED)


def rounded(rows: Tensor) -> Tensor:
    """Return keys or values [B, G, T, D] with int8 steps: a 127th of a row's largest magnitude, halves to even."""
    step = rows.abs().max(dim=-1, keepdim=True).values / 127
    found: Tensor = ((rows / step).round() * step).nan_to_num(0.0)  # 0 / 0 in a row of zeros
    return found


def _attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Attend by the eager function of the model's own file."""
    own = sys.modules[type(module).__module__].eager_attention_forward
    return own(module, query, rounded(key), rounded(value), *args, **kwargs)


AttentionInterface.register(_ROUNDED, _attention)
AttentionMaskInterface.register(_ROUNDED, ALL_MASK_ATTENTION_FUNCTIONS[_EAGER])
