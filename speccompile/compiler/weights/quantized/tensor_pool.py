"""The tensors of a checkpoint, from which weights take theirs."""

from collections.abc import Callable, Mapping
from pathlib import Path

from speccompile.compiler.checkpoints.quantization import Quantization, missing_tensors_error
from speccompile.compiler.weights.quantized.packed import FLOATS, Packed, widened
from speccompile.compiler.weights.source import LazyWeight
from speccompile.compiler.weights.stored import Floats
from speccompile.errors import CheckpointError

FLOATS8 = ("F8_E4M3", "F8_E5M2")

QWEIGHT = ".qweight"
"""Suffix of the packed numbers of a module, in GPTQ and AWQ."""


class CheckpointTensors:
    """Tensors of a checkpoint. weights and others: floats, and the rest. taken: names of those that are part of a
    weight."""

    def __init__(
        self, folder: Path, said: Quantization, weights: Mapping[str, LazyWeight], others: Mapping[str, Packed]
    ) -> None:
        self.folder, self.said, self._weights, self._others = folder, said, weights, others
        self.used: set[str] = set()

    def names_with_suffix(self, *suffixes: str) -> list[str]:
        """Return the names with one of these suffixes, without the suffix."""
        names = (*self._weights, *self._others)
        return [name.removesuffix(end) for end in suffixes for name in names if name.endswith(end)]

    def floats8(self) -> list[str]:
        """Return the names of matrices, or stacks of them, of signed 8-bit floats."""
        return [name for name, each in self._others.items() if len(each.shape) > 1 and each.dtype in FLOATS8]

    def pop(self, name: str) -> LazyWeight | Packed | None:
        tensor = self._weights.get(name) or self._others.get(name)
        if tensor is not None:
            self.used.add(name)
        return tensor

    def weight(self, name: str) -> LazyWeight:
        """Return a tensor of floats. Raise CheckpointError."""
        tensor = self.pop(name)
        if isinstance(tensor, LazyWeight):
            return tensor
        raise self.wrong(name, tensor, "a tensor of floats")

    def packed(self, name: str, *dtypes: str) -> Packed:
        """Return a tensor that holds no floats, of one of these dtypes. Raise CheckpointError."""
        tensor = self.pop(name)
        if isinstance(tensor, Packed) and tensor.dtype in dtypes:
            return tensor
        raise self.wrong(name, tensor, f"a tensor of {' or '.join(dtypes)}")

    def check(self, name: str, tensor: LazyWeight | Packed, shape: tuple[int, ...]) -> None:
        if tensor.shape != shape:
            raise self.wrong(name, tensor, f"shape {list(shape)}")

    def wrong(self, name: str, received: LazyWeight | Packed | None, expected: str) -> CheckpointError:
        found = "nothing" if received is None else f"{received.dtype} {list(received.shape)}"
        return missing_tensors_error(self.folder, self.said, f"{found} as '{name}'", expected)

    def group_size(self, name: str, depth: int, groups: int) -> int:
        """Return the number of inputs that share a scale, for a weight with `groups` groups. The config's value may
        hold for most weights only."""
        said = self.said.group_size or -1
        for size in (said, depth if groups == 1 else 0, depth // max(groups, 1)):
            if size > 0 and -(-depth // size) == groups:
                return size
        raise missing_tensors_error(
            self.folder, self.said, f"{groups} groups of '{name}'", f"groups of its {depth} inputs"
        )


def scales_of(tensor: LazyWeight | Packed, part: slice) -> Floats:
    """Return rows of scales, which may be powers of two in a byte, or of zero points."""
    if isinstance(tensor, LazyWeight):
        return tensor.rows(part)
    found = tensor.rows(part)
    if tensor.dtype == "I8":
        return widened(found)
    return widened(found.view(FLOATS.get(tensor.dtype, FLOATS["F8_E8M0"])))


def find_modules(
    read: Callable[[CheckpointTensors, str], LazyWeight], stock: CheckpointTensors
) -> dict[str, LazyWeight]:
    """Return the weight of every module that has a tensor named QWEIGHT. read: returns the weight of a module."""
    return {f"{name}.weight": read(stock, name) for name in stock.names_with_suffix(QWEIGHT)}
