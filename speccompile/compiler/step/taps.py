"""Taps: hidden states of the target that a drafter reads, taken by hooks on the traced model.

`layers.3.input`, `layers.3.output`: the residual stream that enters or leaves a layer. `norm.output`: the output of
the final norm, which the head reads; of a decoder behind an encoder, which may have none or scale it, what its head
reads.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from speccompile.compiler.step.layers import (
    check_layers,
    find_layers,
    find_norm,
    has_encoder,
    hidden_input,
    hidden_output,
)
from speccompile.errors import UnsupportedModelError

_LAYER = re.compile(r"layers\.(\d+)\.(input|output)")
_NORM = "norm.output"
_DIMENSIONS = 3
"""Number of dimensions of a tapped tensor: [B, T, H]."""


class Taps:
    """Tapped tensors of one run of a model. Raise UnsupportedModelError for a name that is no tap."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        self.model, self.names = model, tuple(names)
        self.values: dict[str, Tensor] = {}
        for name in names:
            match = _LAYER.fullmatch(name)
            if match is None and name != _NORM:
                raise UnsupportedModelError(
                    f"received the tap {name!r} of {type(model).__name__}, expected layers.<number>.input, "
                    f"layers.<number>.output or {_NORM}"
                )
            check_layers(model, [int(match[1])] if match else [])

    @contextmanager
    def open(self) -> Iterator[None]:
        """Fill the taps during the model's run inside a `with` block."""
        with ExitStack() as hooks:
            for name in self.names:
                match = _LAYER.fullmatch(name)
                if match:
                    module, is_input = find_layers(self.model)[int(match[1])], match[2] == "input"
                else:
                    is_input = has_encoder(self.model)
                    module = self.model.get_output_embeddings() if is_input else find_norm(self.model)
                hooks.enter_context(self._tap(name, module, is_input=is_input))
            yield

    def _tap(self, name: str, module: nn.Module, *, is_input: bool) -> Any:
        def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any = None) -> None:
            hidden = hidden_input(args, kwargs) if is_input else hidden_output(output)
            if hidden.dim() != _DIMENSIONS:
                raise UnsupportedModelError(
                    f"received the tap {name!r} of {type(self.model).__name__}, where {hidden.shape[0]} streams go "
                    "through its layers beside each other, expected one",
                    hint=f"use a drafter that reads {_NORM}, or nothing, of the target",
                )
            self.values[name] = hidden

        if is_input:  # before the hook of `Decoder`, which leaves the head few rows
            return module.register_forward_pre_hook(keep, with_kwargs=True, prepend=True)
        return module.register_forward_hook(keep, with_kwargs=True)

    def features(self) -> Tensor:
        """Return float32 [B, T, F]: the taps of the last run, concatenated in the order of their names."""
        return torch.cat([self.values[name].to(torch.float32) for name in self.names], 2)
