"""TensorRT and TensorRT-RTX on a GPU: one stream, buffers that never move, caches updated in place, CUDA graphs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.bundle.manifest import EngineEntry
from speccompile.errors import EngineError
from speccompile.progress import LOGGER
from speccompile.runtime.devices.cuda import Device
from speccompile.runtime.devices.device import Binding, DeviceEngine, RepeatDetector
from speccompile.runtime.devices.engine import Run, eager_graphs
from speccompile.runtime.devices.tensorrt_program import Context, Program

MAX_CUDA_GRAPHS = 8
"""Maximum number of CUDA graphs; each has its own context. Decoding in both modes needs two for each graph."""


@dataclass(frozen=True)
class _Captured:
    """A captured run. It replays the work of its context, which must therefore stay unchanged."""

    launch: Callable[[], None]
    context: Context


class TensorRTEngine(DeviceEngine):
    """Engine (see `speccompile.runtime.devices.engine.Engine`) for TensorRT and TensorRT-RTX.

    Every graph has one context that takes any shapes. TensorRT-RTX captures CUDA graphs inside it. With TensorRT, a
    shape that runs twice in a row gets its own context, whose whole run, copies included, is captured.
    """

    needs_every_output = True
    threads = None

    def __init__(self, folder: Path, entry: EngineEntry, device: Device, trt: Any) -> None:
        """trt: the module `tensorrt_rtx` or `tensorrt`. Raise EngineError for an engine that it refuses."""
        super().__init__(device, entry.graphs, {name: folder / file for name, file in entry.files.items()})
        self._trt = trt
        self._programs: dict[str, Program] = {}
        self._contexts: dict[str, Context] = {}
        self._repeats = RepeatDetector()
        self._capturing = True
        self._captured: dict[Binding, _Captured] = {}
        for name in eager_graphs(self._files):
            self._program(name)

    def _program(self, graph: str) -> Program:
        if graph not in self._programs:
            self._programs[graph] = Program(self._trt, self._files[graph], self._graphs[graph], self._device)
            self._contexts[graph] = self._programs[graph].context()
        return self._programs[graph]

    def _prepare(self, binding: Binding) -> Run:
        program, context = self._program(binding.graph), self._contexts[binding.graph]

        def enqueue() -> None:
            self._run(context, binding)

        def enqueue_or_launch() -> None:
            again = self._repeats.again(binding)
            if binding in self._captured:
                self._launch(binding)
            elif again and self._capturing and (own := self._own_context(program, binding)):
                self._run_and_capture(own, binding)
            else:
                enqueue()

        return enqueue if program.captures_itself else enqueue_or_launch

    def _run(self, context: Context, binding: Binding) -> None:
        context.point(binding)
        self._with_copies(binding, context.enqueue)
        self._write_rows(binding)
        self._device.synchronize()

    def _launch(self, binding: Binding) -> None:
        captured = self._captured[binding] = self._captured.pop(binding)  # the one used last goes last
        captured.launch()
        self._write_rows(binding)
        self._device.synchronize()

    def _own_context(self, program: Program, binding: Binding) -> Context | None:
        """Return a context for a captured graph, or None if memory is insufficient."""
        try:
            return program.context()
        except EngineError as error:
            self._stop_capturing(binding, error)
            return None

    def _stop_capturing(self, binding: Binding, error: EngineError) -> None:
        self._capturing = False
        LOGGER.warning("%s: runs without CUDA graphs: %s", binding.widths, error)

    def _run_and_capture(self, context: Context, binding: Binding) -> None:
        """Run once in a new context, so that TensorRT does its deferred work for new shapes; then record the run."""
        self._run(context, binding)
        try:
            launch = self._device.capture(lambda: self._with_copies(binding, context.enqueue))
        except EngineError as error:
            self._stop_capturing(binding, error)
            return
        if len(self._captured) == MAX_CUDA_GRAPHS:
            del self._captured[next(iter(self._captured))]
        self._captured[binding] = _Captured(launch, context)
