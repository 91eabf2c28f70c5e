"""Positions for models that do not take `position_ids` and count from the rows of their cache instead.

Their tables of positions do take them (Bart's, Whisper's and their kin): a hook on the table gives it the run's.
"""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

_COUNTED = "cache_length"
_GIVEN = "position_ids"


@contextmanager
def at_positions(model: nn.Module, positions: Tensor) -> Iterator[None]:
    """Inside, a run of the model is at `positions` int64 [B, T], if it takes none itself."""

    def give(table: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, kwargs | {_GIVEN: positions}

    def shape(table: nn.Module, args: tuple[Any, ...], found: Tensor) -> Tensor:
        return found.reshape(*positions.shape, found.shape[-1])  # some put a dimension before the positions

    with ExitStack() as hooks:
        for table in _tables(model):
            hooks.enter_context(table.register_forward_pre_hook(give, with_kwargs=True))
            hooks.enter_context(table.register_forward_hook(shape))
        yield


def _tables(model: nn.Module) -> list[nn.Module]:
    """The modules that are told how many rows the cache holds, and may be told positions."""
    if _GIVEN in inspect.signature(model.forward).parameters:
        return []
    takes = ((module, inspect.signature(module.forward).parameters.keys()) for module in model.modules())
    return [module for module, names in takes if {_GIVEN, _COUNTED} <= names]
