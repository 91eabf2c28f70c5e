"""Choice of a bundle's engine on this machine, and opening it."""

from pathlib import Path

from speccompile.bundle.manifest import EngineEntry, Manifest
from speccompile.errors import EngineError, UsageError
from speccompile.progress import LOGGER
from speccompile.runtime.devices.cuda import open_device
from speccompile.runtime.devices.engine import Engine

_FINISH = "run `speccompile finish` on the bundle, on the machine that is to run it"
_OTHER = "choose another engine of the bundle: --engine NAME (engine=NAME)"


def choose(manifest: Manifest, name: str | None) -> EngineEntry:
    """Return the engine of this name; without a name the first one that this machine can run, with a warning for each
    engine before it.

    Raise UsageError when the bundle has no such engine, EngineError when it, or none of them, can run here.
    """
    if name is not None:
        entry = named_engine(manifest, name)
        try:
            check_runnable(entry)
        except EngineError as error:
            raise EngineError(f"engine {name!r} cannot run here: {error}", hint=error.hint) from error
        return entry
    refused: dict[str, EngineError] = {}
    for entry in manifest.engines:
        try:
            check_runnable(entry)
        except EngineError as error:
            refused[entry.name] = error
            continue
        for other, reason in refused.items():
            LOGGER.warning("skipping engine %s for %s: %s", other, entry.name, reason)
        return entry
    deferred = any(entry.deferred for entry in manifest.engines)
    raise EngineError(
        "no engine of the bundle can run here: " + "; ".join(f"{each}: {reason}" for each, reason in refused.items()),
        hint=_FINISH if deferred else "`speccompile doctor` shows what this machine can run",
    )


def check_runnable(entry: EngineEntry) -> None:
    """Raise EngineError with the reason if this machine cannot run an engine. Fast: it opens none of the engine's
    files."""
    if entry.deferred:
        raise EngineError(f"it is not built yet: {entry.deferred}", hint=_FINISH)
    match entry.backend, entry.provider:
        case "onnxruntime", "cpu":
            return
        case "onnxruntime", "cuda" | "nv_tensorrt_rtx":
            from speccompile.runtime.devices.onnxruntime_device import check_provider

            check_provider(entry.provider)
            open_device()
        case "tensorrt_rtx" | "tensorrt", "cuda":
            from speccompile.runtime.devices.tensorrt_program import load

            load(entry.backend)
            _check_capability(entry)
        case _:
            raise EngineError(f"this runtime has no backend {entry.backend!r} on {entry.provider!r}", hint=_OTHER)


def _check_capability(entry: EngineEntry) -> None:
    device = open_device()
    if entry.compute_capability not in (None, device.compute_capability):
        raise EngineError(
            f"it is for compute capability {entry.compute_capability}, {device.name} has {device.compute_capability}",
            hint=f"{_OTHER}, or add this capability to the recipe and build again",
        )


def open_engine(
    folder: Path, entry: EngineEntry, threads: int | None = None, *, verify: bool = True, batch_size: int = 1
) -> Engine:
    """Open an engine of the bundle in `folder` that can run here.

    threads: for its work on the processor, by default one for each core that this process may use. verify: compare its
    cached files on this machine with their hashes. batch_size: batch slots of the bundle.

    Raise EngineError when its library refuses its graphs.
    """
    if entry.backend != "onnxruntime":
        from speccompile.runtime.devices.tensorrt import TensorRTEngine
        from speccompile.runtime.devices.tensorrt_program import load

        return TensorRTEngine(folder, entry, open_device(), load(entry.backend))
    if entry.provider != "cpu":
        from speccompile.runtime.devices.onnxruntime_device import OnnxRuntimeDeviceEngine

        return OnnxRuntimeDeviceEngine(folder, entry, open_device(), threads)
    from speccompile.runtime.devices.onnxruntime import OnnxRuntimeEngine

    return OnnxRuntimeEngine(folder, entry, threads, verify, batch_size)


def named_engine(manifest: Manifest, name: str) -> EngineEntry:
    """Return the engine of this name. Raise UsageError when the bundle has none."""
    for entry in manifest.engines:
        if entry.name == name:
            return entry
    known = ", ".join(entry.name for entry in manifest.engines)
    raise UsageError(f"the bundle has no engine {name!r}", hint=f"it has: {known}")
