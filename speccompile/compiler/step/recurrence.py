"""The hook for layers with a recurrent state: convolutions and linear recurrences of transformers' modeling code.

Decoder layers request their states from the cache, and hand rows to a few functions of their module, which are the same
in all architectures. While a model runs in a `CachedPass`, the pass answers that there are no states, and the functions
in `REPLACED` are patched in: they take the state from the pass, and store there the rows that advance it. So a state
is read before the window, and written once, after the accepted tokens.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import ACT2FN

from speccompile.compiler.step.inline_recurrences import PATCHES, patched_layers
from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.compiler.step.recurrent_state import RecurrentStates
from speccompile.errors import UnsupportedModelError


@contextmanager
def recurring(model: nn.Module, current: RecurrentStates) -> Iterator[None]:
    """Route the model's convolutions and recurrences through `current` inside a `with` block."""
    with ExitStack() as places:
        for module in {sys.modules[type(each).__module__] for each in model.modules()}:
            for name in REPLACED.keys() & vars(module).keys():
                places.enter_context(patched_attribute(module, name, _through(current, REPLACED[name])))
            if hasattr(module, "MiniMaxCache"):  # it requires a cache of its own class
                places.enter_context(patched_attribute(module, "MiniMaxCache", type(current)))
        for layer, each in patched_layers(model):
            places.enter_context(PATCHES[type(each).__name__](current, each, layer))
        yield


def _through(current: RecurrentStates, function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(current, *args, **kwargs)

    return called


def _rows(tensor: Tensor) -> Tensor:
    """Transpose [B, T, H, D] -> float32 [B, H, T, D]."""
    return tensor.transpose(1, 2).float()


def _convolution(
    current: RecurrentStates, hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None,
    activation: str | None = None, **more: object,
) -> Tensor:  # fmt: skip
    """Replace `causal_conv1d_fn`: hidden_states [B, C, T], which the layer registered as a state's rows; weight [C,
    K]."""
    rows = hidden_states.transpose(1, 2)[:, None]
    result = current.convolve(rows, weight)[:, 0]
    result = result if bias is None else result + bias
    result = result if activation is None else ACT2FN[activation](result)
    return result.transpose(1, 2).contiguous()


def _delta_rule(
    current: RecurrentStates, query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, *args: object,
    use_qk_l2norm_in_kernel: bool = False, **more: object,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Replace the gated delta rule: query, key [B, T, G, K], value [B, T, H, V], beta [B, T, H]; g, the logarithm of
    the decay, [B, T, H], or [B, T, H, K] for Kimi."""
    queries, keys, values = _rows(query), _rows(key), _rows(value)
    if use_qk_l2norm_in_kernel:
        queries, keys = _normalized(queries), _normalized(keys)
    decay = _rows(g) if g.dim() == 4 else _rows(g[..., None])
    result = current.recur(queries * queries.shape[-1] ** -0.5, [keys, values, decay, _rows(beta[..., None])])
    return result.transpose(1, 2).contiguous().to(query.dtype), _no_state(result)


def _normalized(rows: Tensor) -> Tensor:
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)


def _mamba2(
    current: RecurrentStates, hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, chunk_size: int,
    D: Tensor | None = None, dt_bias: Tensor | None = None, initial_states: Tensor | None = None,
    dt_softplus: bool = False, dt_limit: tuple[float, float] = (0.0, float("inf")), return_final_states: bool = False,
    z: Tensor | None = None, **more: object,
) -> Any:  # fmt: skip
    """Replace `mamba2_chunk_scan`: hidden_states [B, T, H, V], dt [B, T, H], A [H], B and C [B, T, G, K], D [H]."""
    step = _step_sizes(dt if dt_bias is None else dt + dt_bias, softplus=dt_softplus).clamp(*dt_limit)
    values = hidden_states.float() * step[..., None].float()
    decay = (A.float() * step.float())[..., None]
    result = current.recur(_rows(C), [_rows(B), _rows(values), _rows(decay)]).transpose(1, 2).contiguous()
    result = result if D is None else result + D[:, None] * hidden_states.float()
    if z is not None:
        raise UnsupportedModelError("its scan is given a gate, which no architecture of transformers 5.24 does")
    return (result, _no_state(result)) if return_final_states else result


def _mamba(
    current: RecurrentStates, hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None, delta_bias: Tensor | None = None, delta_softplus: bool = False,
    return_last_state: bool = False, **more: object,
) -> Any:  # fmt: skip
    """Replace `mamba_selective_scan`: hidden_states, dt, z [B, C, T], A [C, K], B and C [B, K, T], D [C]. Every channel
    is a head of one value; the key channels are its states."""
    step = _step_sizes(dt if delta_bias is None else dt + delta_bias[:, None], softplus=delta_softplus).float()
    decay = A[:, None, :] * step[..., None]  # [B, C, T, K]
    values = (hidden_states.float() * step)[..., None]
    keys, queries = (each.transpose(1, 2)[:, None].float() for each in (B, C))
    result = current.recur(queries, [keys, values, decay])[..., 0]
    result = result if D is None else result + hidden_states * D[:, None]
    result = result if z is None else result * functional.silu(z)
    return (result, _no_state(result)) if return_last_state else result


def _no_state(result: Tensor) -> Tensor:
    """Return an empty tensor as the state after a run: the pass does not read it."""
    return result.new_empty(0)


def _step_sizes(dt: Tensor, *, softplus: bool) -> Tensor:
    return functional.softplus(dt) if softplus else dt


REPLACED: dict[str, Callable[..., Any]] = {
    "causal_conv1d_fn": _convolution,
    "torch_chunk_gated_delta_rule": _delta_rule,
    "chunk_kimi_delta_attention": _delta_rule,
    "mamba2_chunk_scan": _mamba2,
    "mamba_selective_scan": _mamba,
}
"""Name in a modeling module -> its replacement, which receives the pass first. The variants for one token, such as
`causal_conv1d_update`, are never called: the pass returns no states."""
