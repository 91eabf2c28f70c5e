"""transformers' own attention, over keys and values with the values that quantized caches hold."""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

from speccompile.contract import FLOAT_CACHE, FP8_CACHE, INT4_VALUES

_EAGER, _ROUNDED, _ROUNDED_VALUES = "eager", "speccompile_rounded", "speccompile_rounded_values"
_FP8 = "speccompile_fp8"
_ATTRIBUTE = "speccompile_cache"
_ATTENTIONS = {FLOAT_CACHE: _EAGER, INT4_VALUES: _ROUNDED_VALUES, FP8_CACHE: _FP8}


def round_caches(model: nn.Module, dtype: str) -> nn.Module:
    """Let a model attend, after each `attend_eagerly`, over keys and values as caches of this dtype hold them. Return
    the model. dtype: one of `contract.CACHE_DTYPES`."""
    setattr(model, _ATTRIBUTE, dtype)
    return model


def attend_eagerly(model: nn.Module) -> None:
    """Set transformers' eager attention, with rounded keys and values if `round_caches` says so."""
    dtype = getattr(model, _ATTRIBUTE, FLOAT_CACHE)
    model.set_attn_implementation(_ATTENTIONS.get(dtype, _ROUNDED))


def rounded(rows: Tensor, bits: int = 8) -> Tensor:
    """Return keys or values [B, G, T, D] with int8 steps: a 127th of a row's largest magnitude, halves to even; of 4
    bits with 15 steps from a row's least to its largest number."""
    if bits == 4:
        least = rows.min(dim=-1, keepdim=True).values
        step = (rows.max(dim=-1, keepdim=True).values - least) / 15
        return ((rows - least) / step).round().nan_to_num(0.0) * step + least
    step = rows.abs().max(dim=-1, keepdim=True).values / 127
    found: Tensor = ((rows / step).round() * step).nan_to_num(0.0)  # 0 / 0 in a row of zeros
    return found


def _attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Attend by the eager function of the model's own file."""
    own = sys.modules[type(module).__module__].eager_attention_forward
    if module.config._attn_implementation == _FP8:
        keys, values = (each.clamp(-448, 448).to(torch.float8_e4m3fn).to(each.dtype) for each in (key, value))
        return own(module, query, keys, values, *args, **kwargs)
    bits = 4 if module.config._attn_implementation == _ROUNDED_VALUES else 8
    return own(module, query, rounded(key), rounded(value, bits), *args, **kwargs)


for _name in (_ROUNDED, _ROUNDED_VALUES, _FP8):
    AttentionInterface.register(_name, _attention)
    AttentionMaskInterface.register(_name, ALL_MASK_ATTENTION_FUNCTIONS[_EAGER])
