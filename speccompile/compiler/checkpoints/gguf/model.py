"""A model, or the head of a drafter, in GGUF files: metadata, tensors, and the row of its architecture."""

from collections.abc import Mapping
from pathlib import Path

from speccompile.compiler.checkpoints.gguf.architectures import ARCHITECTURES, Architecture
from speccompile.compiler.checkpoints.gguf.metadata import Metadata, shown
from speccompile.compiler.checkpoints.gguf.reader import GgufTensor
from speccompile.errors import UnsupportedModelError
from speccompile.machine.formats.safetensors import corrupt

ARCHITECTURE, TYPE = "general.architecture", "general.type"
TABLE = "token_embd.weight"


class GgufPart:
    """Metadata, tensors and architecture. tensors: name -> (file, tensor), of all files."""

    def __init__(self, metadata: Metadata, tensors: Mapping[str, tuple[Path, GgufTensor]]) -> None:
        self.metadata, self.tensors = metadata, tensors
        self.name = metadata.text(ARCHITECTURE)
        self.has_model_type = metadata.optional(TYPE) in (None, "model")

    def tensor(self, name: str) -> GgufTensor:
        """Return a tensor that every model has. Raise CheckpointError without it."""
        if name not in self.tensors:
            raise corrupt(self.metadata.path, f"no tensor '{name}'", "it, as every model has it")
        return self.tensors[name][1]

    def key(self, name: str) -> str:
        """Return the full name of a key of the architecture."""
        return f"{self.name}.{name}"


class GgufModel(GgufPart):
    """A whole language model."""

    def __init__(self, metadata: Metadata, tensors: Mapping[str, tuple[Path, GgufTensor]]) -> None:
        super().__init__(metadata, tensors)
        row = ARCHITECTURES.get(self.name)
        if row is None or not self.has_model_type:
            received = (
                f"{TYPE} {shown(metadata.optional(TYPE))}" if row is not None else f"{ARCHITECTURE} {shown(self.name)}"
            )
            raise UnsupportedModelError(
                f"{metadata.path}: received {received}, expected a model of one of {', '.join(ARCHITECTURES)}",
                hint=f"use the {'head' if self.name.endswith('assistant') else 'model'}'s safetensors; "
                "docs/how-to/gguf.md lists what is read from GGUF",
            )
        self.row: Architecture = row
        self.table = self.tensor(TABLE)
        if len(self.table.shape) != 2:
            raise corrupt(metadata.path, f"tensor '{TABLE}' of shape {list(self.table.shape)}", "two axes")
        self.vocabulary_size = self.table.shape[0]
