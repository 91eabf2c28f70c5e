"""What is on this machine: the packages that speccompile needs, the processor, and what computes beside it.

Packages are looked up by their metadata and never imported, so that a broken one cannot break the look. What is needed,
and in which version, is read from speccompile's own metadata.
"""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass

from packaging.requirements import Requirement

from speccompile import native
from speccompile.compiler.engines.flavour import find_gpu
from speccompile.errors import SpeccompileError
from speccompile.machine.system import available_cores, physical_cores

RUN, COMPILE, GPU = "run", "compile", "gpu"
# What engines for GPUs are built and run with; nothing else needs these. Module -> where to get it.
GPU_PACKAGES = {
    "tensorrt_rtx": "tensorrt-rtx-cu13>=1.7",
    "tensorrt": "tensorrt>=10.15",
    "cuda": "cuda-bindings>=12.8",
    "onnxruntime_ep_nv_tensorrt_rtx": "onnxruntime-ep-nv-tensorrt-rtx",
}
GPU_QUERY = ("--query-gpu=name,compute_cap,memory.total,driver_version", "--format=csv,noheader")


@dataclass(frozen=True)
class Package:
    """One package. `version` is None when it is missing, `install` when nothing need be done."""

    name: str
    purpose: str
    version: str | None
    required: str
    install: str | None

    @property
    def lack(self) -> str | None:
        """What is wrong with it; None when nothing is."""
        if self.install is None:
            return None
        if self.version is None:
            return f"{self.name} is missing"
        return f"{self.name} is {self.version}, needed is {self.required}"


@dataclass(frozen=True)
class Machine:
    """`available_cores` are those that a process here may use: an engine takes a thread for each, unless it is told.

    `kernels` is the path of the project's kernels that is used, "none" without them, of those that can run here;
    `kernels_absence` says why there are none, what that costs, and what to do about it. `native_runtime` is the path of
    the command of the runtime in C++, None where that was not compiled.
    `memory_gib` is the physical memory in GiB; `gpus` are rows of nvidia-smi, or what the driver says of one.
    """

    python: str
    platform: str
    physical_cores: int
    available_cores: int
    memory_gib: float
    kernels: str
    kernel_paths: list[str]
    kernels_absence: native.Absence | None
    native_runtime: str | None
    onnxruntime_providers: list[str]
    onnxruntime_problem: str | None
    gpus: list[str]
    gpu_problem: str | None


def inspect_packages() -> list[Package]:
    """What speccompile needs to run and to compile, then what engines for GPUs need.

    Raises SpeccompileError when speccompile has no metadata, because nobody then knows what it needs.
    """
    try:
        lines = importlib.metadata.requires("speccompile") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise SpeccompileError(
            "expected the metadata of an installed speccompile, found none: its requirements are unknown",
            hint="install it first, in its folder: pip install -e '.[compile]'",
        ) from error
    requirements = [Requirement(line) for line in lines]
    packages = [_inspect_package(each, RUN, each.name) for each in requirements if _applies(each, "")]
    compiling = [each for each in requirements if not _applies(each, "") and _applies(each, "compile")]
    packages += [_inspect_package(each, COMPILE, each.name) for each in compiling]
    return packages + [_inspect_package(Requirement(line), GPU, name) for name, line in GPU_PACKAGES.items()]


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _inspect_package(requirement: Requirement, purpose: str, module: str) -> Package:
    version = _installed_version(requirement.name, module)
    satisfied = version is not None and requirement.specifier.contains(version, prereleases=True)
    install = None if satisfied else f"pip install '{requirement.name}{requirement.specifier}'"
    return Package(requirement.name, purpose, version, str(requirement.specifier), install)


def _installed_version(name: str, module: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        # The module may come from a distribution of another name, as onnxruntime does from onnxruntime-gpu.
        providing = importlib.metadata.packages_distributions().get(module)
        return importlib.metadata.version(providing[0]) if providing else None


def inspect_machine() -> Machine:
    """Python, processor, memory, and what computes beside it."""
    providers, onnxruntime_problem = _onnxruntime_providers()
    gpus, gpu_problem = _gpus()
    return Machine(
        python=platform.python_version(),
        platform=platform.platform(),
        physical_cores=physical_cores(),
        available_cores=available_cores(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        kernels=native.kernels(),
        kernel_paths=native.paths(),
        kernels_absence=native.absence(),
        native_runtime=str(command) if (command := native.locations().command) else None,
        onnxruntime_providers=providers,
        onnxruntime_problem=onnxruntime_problem,
        gpus=gpus,
        gpu_problem=gpu_problem,
    )


def _onnxruntime_providers() -> tuple[list[str], str | None]:
    try:
        import onnxruntime
    except ImportError as error:
        return [], str(error)
    return onnxruntime.get_available_providers(), None


def _gpus() -> tuple[list[str], str | None]:
    """The GPUs, or why there are none."""
    listed, problem = _listed_gpus()
    if not listed and (gpu := find_gpu()):  # as on a device that comes without nvidia-smi
        return [f"{gpu.name}, {gpu.compute_capability}"], None
    return listed, problem


def _listed_gpus() -> tuple[list[str], str | None]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], "nvidia-smi is not installed"
    try:
        found = subprocess.run([program, *GPU_QUERY], capture_output=True, text=True, timeout=20)  # noqa: PLW1510, S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi does not answer: {error}"
    if found.returncode != 0:
        return [], f"nvidia-smi failed: {(found.stdout + found.stderr).strip()}"
    gpus = found.stdout.strip().splitlines()
    return gpus, None if gpus else "nvidia-smi lists none"
