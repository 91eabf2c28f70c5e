"""Positions for models without `position_ids`, which count the rows of their cache instead.

Their position embeddings do take `position_ids` (Bart, Whisper and similar): a hook on the embedding passes them.
M2M100's count the tokens that are no padding instead: a hook reads their table at the positions.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_COUNTED = "cache_length"
_GIVEN = "position_ids"


@contextmanager
def at_positions(model: nn.Module, positions: Tensor) -> Iterator[None]:
    """Run a model at `positions` int64 [B, T] inside a `with` block, if it takes no positions itself."""

    def give(table: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, kwargs | {_GIVEN: positions}

    def shape(table: nn.Module, args: tuple[Any, ...], found: Tensor) -> Tensor:
        return found.reshape(*positions.shape, found.shape[-1])  # some models add a dimension before the positions

    with ExitStack() as hooks:
        for table in _tables(model):
            hooks.enter_context(table.register_forward_pre_hook(give, with_kwargs=True))
            hooks.enter_context(table.register_forward_hook(shape))
        for table in _counting_tables(model):
            hooks.enter_context(table.register_forward_hook(_read_at(positions), with_kwargs=True))
        yield


def _read_at(positions: Tensor) -> Callable[..., Tensor]:
    """Return a hook that replaces the rows of a table whose positions begin after that of padding, which has its own
    row."""

    def read(table: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], found: Tensor) -> Tensor:
        tokens: Tensor = args[0]
        padding: int = table.padding_idx
        return table.weights[torch.where(tokens == padding, padding, positions + padding + 1)]

    return read


def _counting_tables(model: nn.Module) -> list[nn.Module]:
    """Return the modules that find positions in the tokens themselves."""
    takes = ((module, inspect.signature(module.forward).parameters.keys()) for module in model.modules())
    return [module for module, names in takes if {_COUNTED, "input_ids", "inputs_embeds"} == set(names)]


def _tables(model: nn.Module) -> list[nn.Module]:
    """Return the modules that take both a cache length and `position_ids`, if the model itself takes no positions."""
    if _GIVEN in inspect.signature(model.forward).parameters:
        return []
    takes = ((module, inspect.signature(module.forward).parameters.keys()) for module in model.modules())
    return [module for module, names in takes if {_GIVEN, _COUNTED} <= names]
