"""`speccompile doctor --report`: one text about this machine and a bundle, to be pasted into a bug report.

It names versions, hardware and what a bundle is. It has no paths beyond the name of a file, no names of users or
machines, and of environment variables only the values that are known to be harmless.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from speccompile import __version__
from speccompile.cli.features import Availability
from speccompile.cli.machine import Machine, Package
from speccompile.errors import SpeccompileError

SHOWN_VARIABLES = (
    "SPECCOMPILE_BUILDER_MEMORY_GB",
    "SPECCOMPILE_BUILDER_SECONDS",
    "SPECCOMPILE_CACHE_LIMIT_GB",
    "SPECCOMPILE_KERNELS",
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "OMP_NUM_THREADS",
)
"""Variables whose values are shown. Of other ones of speccompile it is only told that they are set."""

ABSOLUTE_PATH = re.compile(r"(?<![\w.])~?(?:/[\w.@+~-]+)+/?")


def render_report(
    machine: Machine,
    packages: Iterable[Package],
    can: Mapping[str, Availability],
    folder: Path | None = None,
    tried: Iterable[tuple[str, str]] = (),
) -> str:
    """Return the report in Markdown. folder: a bundle; tried: its engines and what came out of trying them.

    A bundle that cannot be opened or run is described by its error.
    """
    sections = [
        ("speccompile", [("version", __version__), ("python", machine.python)]),
        ("machine", list(_machine(machine))),
        ("packages", [(each.name, each.version or "missing") for each in packages]),
        ("features", [(name, _answer(each.possible, each.reason)) for name, each in can.items()]),
        ("caches", list(_caches())),
        ("environment", list(_environment())),
    ]
    if folder is not None:
        sections += [("bundle", list(_bundle(folder))), ("engines here", list(_up_to_error(tried)))]
    return "\n\n".join(_section(title, rows) for title, rows in sections)


def without_paths(text: str) -> str:
    """Return a text whose absolute paths are replaced: of a file its name is left, of a folder nothing."""

    def shorten(found: re.Match[str]) -> str:
        name = found[0].rstrip("/").rpartition("/")[2]
        return f"<path>/{name}" if Path(name).suffix else "<path>"

    return ABSOLUTE_PATH.sub(shorten, text.replace(str(Path.home()), "~"))


def _section(title: str, rows: Sequence[tuple[str, str]]) -> str:
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"{name:<{width}}  {without_paths(' '.join(value.split()))}".rstrip() for name, value in rows]
    return "\n".join([f"### {title}", "", "```text", *(lines or ["none"]), "```"])


def _machine(machine: Machine) -> Iterator[tuple[str, str]]:
    from speccompile.machine.system import memory_limits, processor

    yield "platform", machine.platform
    yield "processor", processor()["name"] or "unknown"
    yield "cores", f"{machine.physical_cores} physical, {machine.available_cores} for this process"
    yield "memory", f"{machine.memory_gib} GiB"
    for limit in memory_limits():
        yield "memory limit", f"{limit.size / 1e9:.1f} GB ({limit.name})"
    absence = machine.kernels_absence
    yield "kernels", f"none: {absence.problem}" if absence else machine.kernels
    yield "kernels here", ", ".join(machine.kernel_paths) or "none"
    yield "C++ runtime", "compiled" if machine.native_runtime else "not compiled"
    yield "providers", ", ".join(machine.onnxruntime_providers) or machine.onnxruntime_problem or "none"
    for gpu in machine.gpus or [f"none: {machine.gpu_problem}"]:
        yield "GPU", gpu


def _answer(possible: bool, reason: str) -> str:
    return f"{'yes' if possible else 'no'}, {reason}"


def _caches() -> Iterator[tuple[str, str]]:
    from speccompile.cli.cache import caches, total

    for row in caches():
        yield row.name, total(row.cache.entries(), row.word)


def _environment() -> Iterator[tuple[str, str]]:
    names = {name for name in os.environ if name.startswith("SPECCOMPILE_")} | set(SHOWN_VARIABLES)
    for name in sorted(names & set(os.environ)):
        yield name, os.environ[name] if name in SHOWN_VARIABLES else "is set"


def _bundle(folder: Path) -> Iterator[tuple[str, str]]:
    from speccompile.bundle.reader import open_bundle
    from speccompile.cli.inspect import facts

    try:
        bundle = open_bundle(folder)
    except SpeccompileError as error:
        yield "error", str(error)
        return
    yield from facts(bundle, verified=True)
    yield "drafter", str(bundle.manifest.plan.get("drafter", {}).get("kind", "none"))
    for engine in bundle.manifest.engines:
        where = engine.compute_capability or engine.provider
        precision = " ".join(f"{part}={word}" for part, word in engine.precision.items())
        words = [engine.backend, where, precision, *(["deferred"] if engine.deferred else [])]
        yield f"engine {engine.name}", " ".join(words)
    for name, version in bundle.lock.get("versions", {}).items():
        yield f"built with {name}", version
    yield "proven", "yes" if bundle.proof.get("proven") else "no"


def _up_to_error(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    try:
        yield from rows
    except SpeccompileError as error:
        yield "error", str(error)
