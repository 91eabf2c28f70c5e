"""Low-rank changes of a model's linear layers that are chosen as it runs."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from speccompile.compiler.step import ops
from speccompile.contract import ADAPTER_PARTS, ADAPTER_PREFIX
from speccompile.errors import UnsupportedModelError


@dataclass(frozen=True)
class AdapterSlots:
    """Slots of adapters. rank: of all matrices; modules: ends of the names of the changed modules, as in PEFT; slots:
    number of adapters beside the base."""

    rank: int
    modules: tuple[str, ...]
    slots: int

    def shapes(self, model: nn.Module) -> dict[str, tuple[int, int, int]]:
        """Return buffer -> shape of both matrices of every module, in the order of the model. Raise
        UnsupportedModelError for a name that no linear layer has."""
        found = dict[str, tuple[int, int, int]]()
        for name, module in self._layers(model):
            inputs, outputs = _sizes(module)
            for part, width in zip(ADAPTER_PARTS, (inputs, outputs), strict=True):
                found[f"{ADAPTER_PREFIX}{name}{part}"] = (self.slots + 1, self.rank, width)
        return found

    def _layers(self, model: nn.Module) -> list[tuple[str, nn.Module]]:
        head = model.get_output_embeddings()
        known = [
            (name, module)
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear | Conv1D) and module is not head
        ]
        for suffix in self.modules:
            if not any(_ends(name, suffix) for name, _ in known):
                have = sorted({name.rpartition(".")[2] for name, _ in known})
                raise UnsupportedModelError(
                    f"adapters.modules: received '{suffix}', expected ends of names of {type(model).__name__}'s linear "
                    f"layers: {', '.join(have)}",
                    hint="adapters of heads, embeddings and experts can be merged at build: target.adapter",
                )
        return [(name, module) for name, module in known if any(_ends(name, suffix) for suffix in self.modules)]


def _ends(name: str, suffix: str) -> bool:
    return f".{name}".endswith(f".{suffix}")


def _sizes(module: nn.Module) -> tuple[int, int]:
    """Return the number of inputs and outputs of a layer."""
    shape = module.weight.shape
    assert isinstance(shape, tuple)
    return (shape[0], shape[1]) if isinstance(module, Conv1D) else (shape[1], shape[0])


@contextmanager
def adapting(
    model: nn.Module, slots: AdapterSlots | None, matrices: Sequence[Tensor], adapter: Tensor | None
) -> Iterator[None]:
    """Change the results of a model's layers inside a `with` block, as `ops.low_rank` does. matrices: in the order of
    `AdapterSlots.shapes`; adapter: int64 [B]."""
    with ExitStack() as stack:
        if slots is not None and adapter is not None:
            pairs = zip(matrices[::2], matrices[1::2], strict=True)
            for (_, module), (a, b) in zip(slots._layers(model), pairs, strict=True):
                stack.enter_context(_changed(module, a, b, adapter))
        yield


@contextmanager
def _changed(module: nn.Module, a: Tensor, b: Tensor, adapter: Tensor) -> Iterator[None]:
    def change(module: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> Tensor:
        return ops.low_rank(result, inputs[0], a, b, adapter)

    handle = module.register_forward_hook(change)
    try:
        yield
    finally:
        handle.remove()
