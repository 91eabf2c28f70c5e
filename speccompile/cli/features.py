"""Features of a machine, derived from its installation and, on request, from smoke tests."""

import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from speccompile.cli.machine import COMPILE, RUN, Machine, Package
from speccompile.errors import SpeccompileError
from speccompile.native.locate import HINT

TRIAL_SECONDS = 120


@dataclass(frozen=True)
class Feature:
    """Requirements of a feature: all packages of some purposes, other packages by name, an execution provider of ONNX
    Runtime, a GPU, the kernels of `speccompile.native`, its C++ runtime."""

    title: str
    purposes: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    provider: str | None = None
    gpu: bool = False
    kernels: bool = False
    native: bool = False


RTX, CUDA, PLUGIN = "tensorrt-rtx-cu13", "cuda-bindings", "onnxruntime-ep-nv-tensorrt-rtx"
FEATURES = {
    "run": Feature("run bundles", (RUN,)),
    "run_kernels": Feature("run the kernels for this processor", (RUN,), kernels=True),
    "run_native": Feature("run bundles in C++", (RUN,), native=True),
    "compile": Feature("compile", (RUN, COMPILE)),
    "build_tensorrt_rtx": Feature("build TensorRT-RTX engines", packages=(RTX,)),
    "build_tensorrt": Feature("build TensorRT engines", packages=("tensorrt",), gpu=True),
    "run_cuda": Feature("run ONNX Runtime on CUDA", (RUN,), (CUDA,), "CUDAExecutionProvider", gpu=True),
    "run_nv_tensorrt_rtx": Feature("run ONNX Runtime on TensorRT-RTX", (RUN,), (PLUGIN, CUDA), gpu=True),
    "run_tensorrt_rtx": Feature("run TensorRT-RTX engines", (RUN,), (RTX, CUDA), gpu=True),
    "run_tensorrt": Feature("run TensorRT engines", (RUN,), ("tensorrt", CUDA), gpu=True),
}


@dataclass(frozen=True)
class Availability:
    """Availability of a feature on this machine, and the reason."""

    possible: bool
    reason: str


def conclude(packages: Sequence[Package], machine: Machine, tried: Collection[str] = ()) -> dict[str, Availability]:
    """Return feature -> availability. Available features in `tried` are smoke-tested, which takes some seconds."""
    concluded = {}
    for name, ability in FEATURES.items():
        lacks = "; ".join(_lacks(ability, packages, machine))
        concluded[name] = Availability(not lacks, lacks or "everything needed is installed")
        if name in tried and not lacks:
            concluded[name] = _try(name)
    return concluded


def _needed(ability: Feature, packages: Sequence[Package]) -> list[Package]:
    return [package for package in packages if package.purpose in ability.purposes or package.name in ability.packages]


def _lacks(ability: Feature, packages: Sequence[Package], machine: Machine) -> Iterator[str]:
    missing = [package.lack for package in _needed(ability, packages) if package.lack]
    yield from missing
    if RUN in ability.purposes and machine.onnxruntime_problem and not missing:
        yield f"onnxruntime is installed and cannot be imported: {machine.onnxruntime_problem}"
    elif ability.provider and ability.provider not in machine.onnxruntime_providers:
        yield f"onnxruntime has no {ability.provider}: onnxruntime-gpu has, installed in its place"
    if ability.gpu and machine.gpu_problem:
        yield f"no GPU: {machine.gpu_problem}"
    if ability.kernels and machine.kernels_absence:
        yield machine.kernels_absence.problem
    if ability.native and not machine.native_runtime:
        yield "it was not compiled"


def _try(name: str) -> Availability:
    """Run the smoke test of a feature in a separate process."""
    command = [sys.executable, "-m", "speccompile.cli.smoke_tests", name]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return Availability(False, f"everything needed is installed; tried, and not done after {TRIAL_SECONDS} s")
    if run.returncode == 0:
        return Availability(True, "tried")
    last = (run.stderr.strip().splitlines() or ["without a word"])[-1]
    return Availability(False, f"everything needed is installed; tried, and failed ({run.returncode}): {last}")


def require(
    names: Sequence[str], concluded: dict[str, Availability], packages: Sequence[Package], machine: Machine
) -> None:
    """Raise SpeccompileError, with a remedy as hint, unless all these features are available."""
    refused = {name: concluded[name].reason for name in names if not concluded[name].possible}
    if not refused:
        return
    found = "; ".join(f"one that cannot {FEATURES[name].title}: {why}" for name, why in refused.items())
    raise SpeccompileError(
        f"expected a machine that can {' and '.join(FEATURES[name].title for name in names)}, found {found}",
        hint="; ".join(_advice(list(refused), packages, machine)),
    )


def _advice(refused: Sequence[str], packages: Sequence[Package], machine: Machine) -> list[str]:
    needed = [package for name in refused for package in _needed(FEATURES[name], packages)]
    advice = list(dict.fromkeys(package.install for package in needed if package.install))
    if any(FEATURES[name].gpu for name in refused):
        advice.append("a container needs its GPUs given: docker run --gpus all")
    if machine.kernels_absence and any(FEATURES[name].kernels for name in refused):
        advice.append(machine.kernels_absence.hint)
    if not machine.native_runtime and any(FEATURES[name].native for name in refused):
        advice.append(HINT)
    return list(dict.fromkeys(advice)) or [
        f"see all that is said: {sys.executable} -m speccompile.cli.smoke_tests {name}" for name in refused
    ]
