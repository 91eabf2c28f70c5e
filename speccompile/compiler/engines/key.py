"""Key of the engine cache: all inputs of an engine, in one place."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speccompile import contract
from speccompile.bundle.hashes import hash_file
from speccompile.bundle.manifest import canonical_json
from speccompile.compiler.engines.settings import Settings
from speccompile.contract import Graph

FORMAT = 1
"""Version of the cache's entries and of the contents of a key."""


@dataclass(frozen=True)
class Key:
    """Everything that decides an engine and its report.

    builder: version of TensorRT; the settings have its flavour. gpu: name of the GPU if the engine is for that one
    alone, else "". files: BLAKE3 of the graph, under "", and of the weight files that it names.
    """

    format: int
    contract: int
    builder: str
    gpu: str
    graph: Graph
    settings: Settings
    files: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"graph": self.graph.to_json(), "settings": self.settings.to_json()}

    @property
    def digest(self) -> str:
        """Return the digest without the precision's name, which only describes the graph."""
        data = self.to_json()
        del data["settings"]["precision"]
        return hashlib.sha256(canonical_json(data)).hexdigest()


def make_key(onnx: Path, graph: Graph, settings: Settings, *, builder: str, gpu: str) -> Key:
    """Return the key of the engine of one graph. Raise BundleError for a file that cannot be read."""
    return Key(FORMAT, contract.VERSION, builder, gpu, graph, settings, {"": hash_file(onnx)} | _weights(onnx))


def _weights(onnx: Path) -> dict[str, str]:
    """Return hashes of files next to the graph whose names occur in it, as those of its weights do.

    So no ONNX reader is needed. A name that occurs for another reason makes a key too specific, never wrong.
    """
    graph = onnx.read_bytes()
    files = (path for path in onnx.parent.iterdir() if path != onnx and path.is_file())
    return {path.name: hash_file(path) for path in files if path.name.encode() in graph}
