"""Graphs whose weights lie in a checkpoint, in ONNX Runtime on a CPU: each is read, used and let go, in every run."""

import os
from pathlib import Path

import onnxruntime as ort

from speccompile.compiler.weights.graph import LINK_SUFFIX
from speccompile.runtime.devices.onnx_file import external_data, with_carriers
from speccompile.runtime.devices.onnxruntime import OnnxRuntimeEngine
from speccompile.runtime.devices.prepacked import ROOT, from_root
from speccompile.runtime.devices.sessions import AS_WRITTEN, open_or_raise, session_options

_ERRORS_ONLY = 3  # ONNX Runtime's severities

_AS_STORED = [*AS_WRITTEN, "ConstantFolding"]
"""Optimizers that are off: folded, every weight would be held in float32."""


class LinkedEngine(OnnxRuntimeEngine):
    """An engine of the proof, for graphs that lie beside links to a checkpoint."""

    def _session(self, graph: str) -> ort.InferenceSession:
        path = self._folder / self._files[graph]
        if graph not in self._sessions and is_linked(path):
            self._sessions[graph] = open_linked(path, self.threads)
        return super()._session(graph)


def is_linked(path: Path) -> bool:
    """Whether some weights of a graph lie in a checkpoint."""
    return path.is_file() and any(entry["location"].endswith(LINK_SUFFIX) for entry in external_data(path.read_bytes()))


def open_linked(path: Path, threads: int) -> ort.InferenceSession:
    """A session of such a graph. Raises EngineError when ONNX Runtime does not take it."""
    options = session_options(threads, model_external_initializers_file_folder_path=str(ROOT), disable_prepacking="1")
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False  # an arena keeps what a large weight took
    options.log_severity_level = _ERRORS_ONLY
    model = with_carriers(path.read_bytes(), lambda name: from_root(path.parent / os.fsdecode(name)), [])
    providers = ["CPUExecutionProvider"]
    return open_or_raise(
        path.name, lambda: ort.InferenceSession(model, options, providers=providers, disabled_optimizers=_AS_STORED)
    )
