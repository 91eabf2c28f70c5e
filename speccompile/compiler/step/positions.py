"""Positions for models without `position_ids`, which count the rows of their cache instead.

Their position embeddings do take `position_ids` (Bart, Whisper and similar): a hook on the embedding passes them.
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
    """Run a model at `positions` int64 [B, T] inside a `with` block, if it takes no positions itself."""

    def give(table: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, kwargs | {_GIVEN: positions}

    def shape(table: nn.Module, args: tuple[Any, ...], found: Tensor) -> Tensor:
        return found.reshape(*positions.shape, found.shape[-1])  # some models add a dimension before the positions

    with ExitStack() as hooks:
        for table in _tables(model):
            hooks.enter_context(table.register_forward_pre_hook(give, with_kwargs=True))
            hooks.enter_context(table.register_forward_hook(shape))
        yield


def _tables(model: nn.Module) -> list[nn.Module]:
    """Return the modules that take both a cache length and `position_ids`, if the model itself takes no positions."""
    if _GIVEN in inspect.signature(model.forward).parameters:
        return []
    takes = ((module, inspect.signature(module.forward).parameters.keys()) for module in model.modules())
    return [module for module, names in takes if {_GIVEN, _COUNTED} <= names]
