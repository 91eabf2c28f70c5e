"""Weights that a drafter's graph reads where the target has them."""

from dataclasses import dataclass

import onnx_ir as ir


@dataclass(frozen=True)
class Shared:
    """What lies in the target's own files, as it is stored in its graphs. tied: offsets of tables that its head reads
    too."""

    files: frozenset[str]
    word: str
    block_size: int
    tied: frozenset[int]

    def has(self, value: ir.Value) -> bool:
        """Whether an initializer is the target's."""
        tensor = value.const_value
        return isinstance(tensor, ir.ExternalTensor) and str(tensor.location) in self.files

    def has_tied(self, value: ir.Value) -> bool:
        """Whether it is a table that the target's head reads too."""
        tensor = value.const_value
        return self.has(value) and isinstance(tensor, ir.ExternalTensor) and (tensor.offset or 0) in self.tied
