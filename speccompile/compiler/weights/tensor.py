"""A weight as a torch tensor: float32 for every caller, and read a few rows at a time by the operator that needs it.

A product with a large weight goes over its rows in parts, an embedding reads the rows of its tokens, and operators that
only transpose, slice or concatenate weights return a lazy weight. Any other operator receives the whole weight, for as
long as it runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from speccompile.compiler.weights.source import Concatenated, FileBacked, LazyWeight, Stacked

Module = TypeVar("Module", bound=nn.Module)

aten = torch.ops.aten


class WeightTensor(torch.Tensor):
    """A float32 tensor of the shape of its `source`, without storage. It cannot be written to."""

    source: LazyWeight

    @staticmethod
    def __new__(cls, source: LazyWeight) -> "WeightTensor":
        made: WeightTensor = torch.Tensor._make_wrapper_subclass(
            cls, source.shape, dtype=torch.float32, device=torch.device("cpu"), requires_grad=False
        )
        return made

    def __init__(self, source: LazyWeight) -> None:
        self.source = source

    def __repr__(self) -> str:
        return f"WeightTensor({list(self.source.shape)}, {self.source.dtype})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        own = _OPERATORS.get(func)
        found = NotImplemented if own is None else own(*args, **(kwargs or {}))
        if found is not NotImplemented:
            return found
        if func._schema.is_mutable and isinstance(args[0], WeightTensor):
            raise RuntimeError(f"{func} writes to a weight of the checkpoint")
        # An operator of ours or of transformers receives plain tensors.
        return func(
            *tree_map_only(WeightTensor, whole, tuple(args)), **tree_map_only(WeightTensor, whole, kwargs or {})
        )


def whole(weight: WeightTensor) -> Tensor:
    """Read all of a weight into a plain float32 tensor."""
    return torch.from_numpy(weight.source.read_all())


def _rows(source: LazyWeight, part: slice) -> Tensor:
    """Return float32 [rows of the part, ..]."""
    if isinstance(source, FileBacked) and source.dtype == "bfloat16":  # torch widens on all its threads
        return torch.from_numpy(source.raw(part).view(np.int16)).view(torch.bfloat16).float()
    return torch.from_numpy(source.rows(part))


def _product(x: Tensor, weight: Any) -> Any:
    """Multiply x [M, K] by weight [K, N], a transposed view: its columns are rows of the file."""
    if not isinstance(weight, WeightTensor) or isinstance(x, WeightTensor):
        return NotImplemented
    turned = weight.source.transpose((1, 0))
    result = torch.empty(x.shape[0], weight.shape[1])
    for part in turned.parts():
        result[:, part] = x @ _rows(turned, part).T
    return result


def _biased(bias: Any, x: Tensor, weight: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    found = _product(x, weight) if (beta, alpha) == (1, 1) else NotImplemented
    return found if found is NotImplemented else found + (whole(bias) if isinstance(bias, WeightTensor) else bias)


def _linear(x: Tensor, weight: Any, bias: Any = None) -> Any:
    if not isinstance(weight, WeightTensor):
        return NotImplemented
    flat = x.reshape(-1, x.shape[-1])
    turned = WeightTensor(weight.source.transpose((1, 0)))
    found = _product(flat, turned) if bias is None else _biased(bias, flat, turned)
    return found.reshape(*x.shape[:-1], -1)


def _embedding(table: Any, ids: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Look up the rows of some tokens, each read once."""
    if not isinstance(table, WeightTensor):
        return NotImplemented
    tokens, places = ids.unique(return_inverse=True)
    rows = [_rows(table.source, slice(token, token + 1)) for token in tokens.tolist()]
    return torch.cat([torch.empty(0, *table.shape[1:]), *rows])[places]


def _equal(a: Any, b: Any) -> bool:
    """Compare a few rows at a time; weights of one source are equal without reading."""
    if not (isinstance(a, WeightTensor) and isinstance(b, WeightTensor)):
        return NotImplemented
    if a.shape != b.shape:
        return False
    same = a.source is b.source or (a.source.place is not None and a.source.place == b.source.place)
    return same or all(torch.equal(_rows(a.source, part), _rows(b.source, part)) for part in a.source.parts())


def _same(weight: WeightTensor, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    kept = dtype in (None, torch.float32) and kwargs.get("device") in (None, torch.device("cpu"))
    return WeightTensor(weight.source) if kept else NotImplemented


def _transposed(weight: WeightTensor, first: int = 0, second: int = 1) -> WeightTensor:
    axes = list(range(weight.dim()))
    axes[first], axes[second] = axes[second], axes[first]
    return WeightTensor(weight.source.transpose(axes))


def _permuted(weight: WeightTensor, axes: Sequence[int]) -> WeightTensor:
    return WeightTensor(weight.source.transpose([axis % weight.dim() for axis in axes]))


def _selected(weight: WeightTensor, axis: int, index: int) -> Any:
    return WeightTensor(weight.source.select(index % weight.shape[0])) if axis == 0 else NotImplemented


def _sliced(
    weight: WeightTensor, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    first, last, _ = slice(start, end).indices(weight.shape[axis])
    if first == 0 and last == weight.shape[axis] and step == 1:
        return WeightTensor(weight.source)
    return WeightTensor(weight.source.narrow(slice(first, last))) if axis == 0 and step == 1 else NotImplemented


def _split(weight: WeightTensor, size: int | Sequence[int], axis: int = 0) -> Any:
    if axis != 0:
        return NotImplemented
    count = weight.shape[0]
    sizes = [min(size, count - at) for at in range(0, count, size)] if isinstance(size, int) else list(size)
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [WeightTensor(weight.source.narrow(slice(at, at + width))) for at, width in zip(starts, sizes, strict=True)]


def _unbound(weight: WeightTensor, axis: int = 0) -> Any:
    return [_selected(weight, 0, index) for index in range(weight.shape[0])] if axis == 0 else NotImplemented


def _stacked(weights: Sequence[Any], axis: int = 0) -> Any:
    """Stack the weights of several experts, as transformers does."""
    if axis != 0 or not all(isinstance(weight, WeightTensor) for weight in weights):
        return NotImplemented
    return WeightTensor(Stacked([weight.source for weight in weights]))


def _joined(weights: Sequence[Any], axis: int = 0) -> Any:
    if not all(isinstance(weight, WeightTensor) for weight in weights):
        return NotImplemented
    sources = [weight.source for weight in weights]
    if axis == 0:
        return WeightTensor(Concatenated(sources))
    if axis == 1 and weights[0].dim() == 3:
        return WeightTensor(
            Stacked([Concatenated([each.select(i) for each in sources]) for i in range(len(weights[0]))])
        )
    return NotImplemented


_OPERATORS: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _product,
    aten.addmm.default: _biased,
    aten.linear.default: _linear,
    aten.embedding.default: _embedding,
    aten.equal.default: _equal,
    aten.detach.default: _same,
    aten.alias.default: _same,
    aten.lift_fresh.default: _same,
    aten._to_copy.default: _same,
    aten.clone.default: _same,
    aten.t.default: _transposed,
    aten.transpose.int: _transposed,
    aten.permute.default: _permuted,
    aten.select.int: _selected,
    aten.slice.Tensor: _sliced,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.unbind.int: _unbound,
    aten.stack.default: _stacked,
    aten.cat.default: _joined,
}
"""Operators that need no whole weight. Each may decline by returning `NotImplemented`."""


def with_numbers(module: Module) -> Module:
    """Load all weights of a module into memory, as training needs them, and return it; shared weights stay shared."""
    numbers: dict[int, Tensor] = {}  # by their source
    parameters: dict[int, nn.Parameter] = {}

    def load(weight: WeightTensor) -> Tensor:
        if id(weight.source) not in numbers:
            numbers[id(weight.source)] = whole(weight)
        found = numbers[id(weight.source)]
        if not isinstance(weight, nn.Parameter):
            return found
        return parameters.setdefault(id(weight), nn.Parameter(found, weight.requires_grad))

    for each in module.modules():
        for store in (each._parameters, each._buffers):
            store.update({name: load(weight) for name, weight in store.items() if isinstance(weight, WeightTensor)})
    return module


@contextmanager
def without_numbers(module: nn.Module) -> Iterator[dict[str, LazyWeight]]:
    """Replace the weights of a module by fake tensors inside a `with` block, for a trace. Yield its weights by all
    their names."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes: dict[int, Tensor] = {}
    sources: dict[str, LazyWeight] = {}
    undo: list[tuple[dict[str, Any], str, Tensor]] = []

    def fake(weight: WeightTensor) -> Tensor:
        """Return the fake tensor of a weight, one for all modules that share it."""
        if id(weight) not in fakes:
            with mode:
                empty = torch.empty(weight.shape)
            is_parameter = isinstance(weight, nn.Parameter)
            fakes[id(weight)] = nn.Parameter(empty, requires_grad=False) if is_parameter else empty
        return fakes[id(weight)]

    for path, each in module.named_modules(remove_duplicate=False):
        for store in (each._parameters, each._buffers):
            for name, weight in list(store.items()):
                if isinstance(weight, WeightTensor):
                    sources[f"{path}.{name}" if path else name] = weight.source
                    undo.append((store, name, weight))
    for store, name, weight in undo:
        store[name] = fake(weight)
    try:
        yield sources
    finally:
        for store, name, weight in undo:
            store[name] = weight
