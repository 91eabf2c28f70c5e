"""Weights that a drafter's graph reads where the target has them."""

from dataclasses import dataclass

import onnx_ir as ir

from speccompile.compiler.weights.graph import StorageKey, storage_key


@dataclass(frozen=True)
class Shared:
    """Where the target's weights lie, and as what they are stored in its graphs. tied: tables that its head reads
    too."""

    places: frozenset[StorageKey]
    word: str
    block_size: int
    tied: frozenset[StorageKey]

    def has(self, value: ir.Value) -> bool:
        """Whether an initializer is the target's."""
        return storage_key(value.const_value) in self.places

    def has_tied(self, value: ir.Value) -> bool:
        """Whether it is a table that the target's head reads too."""
        return storage_key(value.const_value) in self.tied
