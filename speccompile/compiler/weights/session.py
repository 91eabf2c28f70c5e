"""ONNX Runtime sessions on a CPU over graphs whose weights lie in a checkpoint: each run reads, uses and frees them."""

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
"""Disabled optimizers: constant folding would hold every weight in float32."""


class LinkedEngine(OnnxRuntimeEngine):
    """An engine of the proof, for graphs in a folder with links to a checkpoint."""

    def _session(self, graph: str) -> ort.InferenceSession:
        path = self._folder / self._files[graph]
        if graph not in self._sessions and is_linked(path):
            self._sessions[graph] = open_linked(path, self.threads)
        return super()._session(graph)


def is_linked(path: Path) -> bool:
    """Return whether some weights of a graph lie in a checkpoint."""
    return path.is_file() and any(entry["location"].endswith(LINK_SUFFIX) for entry in external_data(path.read_bytes()))


def open_linked(path: Path, threads: int) -> ort.InferenceSession:
    """Open a session of such a graph. Raise EngineError if ONNX Runtime rejects it."""
    options = session_options(threads, model_external_initializers_file_folder_path=str(ROOT), disable_prepacking="1")
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False  # an arena never frees a large weight's memory
    options.log_severity_level = _ERRORS_ONLY
    model = with_carriers(path.read_bytes(), lambda name: from_root(path.parent / os.fsdecode(name)), [])
    providers = ["CPUExecutionProvider"]
    return open_or_raise(
        path.name, lambda: ort.InferenceSession(model, options, providers=providers, disabled_optimizers=_AS_STORED)
    )
