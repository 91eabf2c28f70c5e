"""Weights that a drafter's graph shares with the target."""

from dataclasses import dataclass

import onnx_ir as ir

from speccompile.compiler.weights.graph import StorageKey, storage_key


@dataclass(frozen=True)
class Shared:
    """Locations of the target's weights, and their stored format in its graphs. tied: tables that its head reads
    too."""

    places: frozenset[StorageKey]
    word: str
    block_size: int
    tied: frozenset[StorageKey]

    def has(self, value: ir.Value) -> bool:
        """Return whether an initializer is the target's."""
        return storage_key(value.const_value) in self.places

    def has_tied(self, value: ir.Value) -> bool:
        """Return whether an initializer is a table that the target's head reads too."""
        return storage_key(value.const_value) in self.tied
