"""Positions for models without `position_ids`, which count the rows of their cache instead.

Their position embeddings do take `position_ids` (Bart, Whisper and similar): a hook on the embedding passes them.
M2M100's count the tokens that are no padding instead: their tables are read at the positions.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from speccompile.compiler.step.monkeypatch import patched_attribute

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
        hooks.enter_context(counting_positions(model, positions))
        yield


@contextmanager
def counting_positions(model: nn.Module, positions: Tensor | None = None) -> Iterator[None]:
    """Let tables that count tokens read their rows without making more for longer texts, inside a `with` block: such a
    branch on a length cannot be traced. positions int64 [B, T]: see `_reader`."""
    with ExitStack() as hooks:
        for table in _counting_tables(model):
            hooks.enter_context(patched_attribute(table, "forward", _reader(table, positions)))
        yield


def _reader(table: nn.Module, positions: Tensor | None) -> Callable[..., Tensor]:
    """Return a function that reads a table whose positions begin after that of padding, which has its own row.
    positions int64 [B, T]: of the tokens; None to count those that are no padding."""

    def read(input_ids: Tensor, *_: Any, **__: Any) -> Tensor:
        padding: int = table.padding_idx
        is_padding = input_ids == padding
        places = (~is_padding).long().cumsum(1) - 1 if positions is None else positions
        rows: Tensor = table.weights[torch.where(is_padding, padding, places + padding + 1)]
        return rows

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
