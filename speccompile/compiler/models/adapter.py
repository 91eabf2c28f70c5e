"""Merge an adapter into a loaded model, whose weights stay unread."""

from pathlib import Path

from torch import nn
from transformers.pytorch_utils import Conv1D

from speccompile.compiler.weights.adapter import Adapted, AdapterTensors, WithRows, biased
from speccompile.compiler.weights.source import LazyWeight
from speccompile.compiler.weights.tensor import WeightTensor
from speccompile.errors import CheckpointError
from speccompile.machine.formats.peft import MERGED, Adapter, read_adapter


def merge_adapter(model: nn.Module, folder: Path) -> None:
    """Merge the adapter beside a model's weights into the model, in place; nothing in a folder without the mark MERGED.

    A tied head and embedding stay tied only where the adapter changes neither, or trains tokens of both. Raise
    CheckpointError for modules that the model does not have, and for other shapes.
    """
    if not (folder / MERGED).is_file():
        return
    adapter, tensors = read_adapter(folder), AdapterTensors(folder)
    for name, tensor in adapter.replaced.items():
        module, _, parameter = name.rpartition(".")
        _set(_module(model, module, folder), parameter, tensors.lazy(tensor), f"{name}", folder)
    for change in adapter.low_rank:
        module = _module(model, change.module, folder)
        is_transposed = isinstance(module, Conv1D)
        base = _source(module, "weight", change.module, folder)
        shape = change.shape[::-1] if is_transposed else change.shape
        if shape != base.shape or not isinstance(module, (nn.Linear, nn.Embedding, Conv1D)):
            raise _misfit(folder, f"{change.module} of {list(shape)}", f"{type(module).__name__} {list(base.shape)}")
        _set(module, "weight", Adapted(base, change, tensors, is_transposed=is_transposed), change.module, folder)
        if change.bias is not None:
            own = _source(module, "bias", change.module, folder)
            _set(module, "bias", biased(own, change, tensors), change.module, folder)
    _replace_rows(model, adapter, tensors, folder)


def _replace_rows(model: nn.Module, adapter: Adapter, tensors: AdapterTensors, folder: Path) -> None:
    """Replace rows of embeddings, and, as PEFT does, those of a head that is tied to one."""
    for name, (tokens, rows) in adapter.rows.items():
        module = _module(model, name, folder)
        table = module.weight
        base = _source(module, "weight", name, folder)
        if rows.shape != (len(tokens), *base.shape[1:]) or max(tokens) >= base.shape[0]:
            raise _misfit(
                folder, f"rows {list(rows.shape)} for tokens up to {max(tokens)}", f"{name} {list(base.shape)}"
            )
        source = WithRows(base, tokens, tensors.lazy(rows))
        for other in model.modules():
            if other is module or getattr(other, "weight", None) is table:
                _set(other, "weight", source, name, folder)


def _module(model: nn.Module, name: str, folder: Path) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError:
        raise _misfit(folder, f"the module {name}", f"one of {type(model).__name__}") from None


def _source(module: nn.Module, parameter: str, name: str, folder: Path) -> LazyWeight:
    value = getattr(module, parameter, None)
    if not isinstance(value, WeightTensor):
        raise _misfit(folder, f"a change of {name}.{parameter}", f"a layer with a {parameter}")
    return value.source


def _set(module: nn.Module, parameter: str, source: LazyWeight, name: str, folder: Path) -> None:
    own = getattr(module, parameter, None)
    if own is None or tuple(own.shape) != source.shape:
        raise _misfit(folder, f"{name} of {list(source.shape)}", f"{None if own is None else list(own.shape)}")
    setattr(module, parameter, nn.Parameter(WeightTensor(source), requires_grad=False))


def _misfit(folder: Path, received: str, expected: str) -> CheckpointError:
    return CheckpointError(
        f"{folder}: the adapter has {received}, expected {expected}",
        hint="give an adapter of this model",
    )
