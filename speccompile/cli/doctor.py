"""`speccompile doctor`: report what this machine can build and run, and what is missing."""

import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import click

from speccompile.cli.features import FEATURES, Availability, conclude, require
from speccompile.cli.machine import (
    COMPILE,
    GPU,
    RUN,
    Machine,
    Package,
    inspect_machine,
    inspect_packages,
)
from speccompile.errors import UsageError

HEADINGS = {RUN: "to run bundles:", COMPILE: "to compile:", GPU: "for engines on GPUs (optional):"}


@dataclass(frozen=True)
class Trial:
    """Result of an engine on this machine. exact: whether windows of several tokens give the logits of single tokens;
    None if not tried."""

    bundle: str
    engine: str
    kernels: str | None
    exact: bool | None
    reason: str
    seconds: float


@dataclass(frozen=True)
class Diagnosis:
    """Output of doctor. can: feature name -> availability. bundle: results of a given bundle's engines."""

    machine: Machine
    packages: list[Package]
    can: dict[str, Availability]
    bundle: tuple[Trial, ...] = ()


def diagnose(tried: Collection[str] = ()) -> Diagnosis:
    """Inspect this machine, and run the smoke tests of the features in `tried`.

    Raise SpeccompileError if speccompile itself is not installed.
    """
    packages, machine = inspect_packages(), inspect_machine()
    return Diagnosis(machine, packages, conclude(packages, machine, tried))


def try_bundle(folder: Path) -> Iterator[Trial]:
    """Open every CPU engine of a bundle and check its window invariance, even if a result is cached.

    Raise SpeccompileError if an engine cannot run.
    """
    from speccompile.bundle.reader import open_bundle
    from speccompile.runtime import Bundle
    from speccompile.runtime.window_invariance import check_invariance, engine_key

    manifest = open_bundle(folder).manifest
    for engine in manifest.engines:
        if engine.provider != "cpu":
            yield Trial(manifest.name, engine.name, None, None, "engines on GPUs are not compared", 0.0)
            continue
        bundle = Bundle.open(folder, engine=engine.name)
        start = perf_counter()
        key = engine_key(folder, bundle.entry, bundle.engine.threads)
        found = check_invariance(key, bundle.engine, bundle.manifest)
        seconds = round(perf_counter() - start, 3)
        yield Trial(manifest.name, engine.name, bundle.kernels, found.exact, found.reason, seconds)


def render(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as text, one finding per line."""
    machine = diagnosis.machine
    gpus = machine.gpus or [f"none ({machine.gpu_problem})"]
    lines = [
        f"python       {machine.python}",
        f"platform     {machine.platform}",
        f"processor    {_render_cores(machine)}, {machine.memory_gib} GiB memory",
        *_render_kernels(machine),
        f"onnxruntime  {', '.join(machine.onnxruntime_providers) or machine.onnxruntime_problem}",
        f"c++ runtime  {machine.native_runtime or 'none: it was not compiled'}",
        *(f"gpu          {gpu}" for gpu in gpus),
    ]
    for purpose, heading in HEADINGS.items():
        lines += ["", heading]
        lines += [_render_package(package) for package in diagnosis.packages if package.purpose == purpose]
    lines += ["", *(_render_conclusion(FEATURES[name].title, found) for name, found in diagnosis.can.items())]
    lines += ["", *map(_render_trial, diagnosis.bundle)] if diagnosis.bundle else []
    return "\n".join(lines)


def _render_trial(trial: Trial) -> str:
    words = {True: "exact: ", False: "NOT EXACT on this processor, speculation may change tokens: ", None: ""}
    took = "" if trial.exact is None else f" ({trial.seconds:.2f} s)"
    return f"bundle {trial.bundle}, engine {trial.engine}: {words[trial.exact]}{trial.reason}{took}"


def _trial_row(trial: Trial) -> tuple[str, str]:
    word = {True: "exact", False: "NOT EXACT", None: "not tried"}[trial.exact]
    return trial.engine, f"{word}: {trial.reason}"


def _render_cores(machine: Machine) -> str:
    text = f"{machine.physical_cores} physical cores"
    if machine.available_cores == machine.physical_cores:
        return text
    return f"{text}, {machine.available_cores} for this process (by its affinity mask or its quota)"


def _render_kernels(machine: Machine) -> list[str]:
    if (absence := machine.kernels_absence) is not None:
        return [
            f"kernels      none, ONNX Runtime's own run instead: {absence.problem}",
            *(f"  cost       {cost}" for cost in absence.costs),
            f"  hint       {absence.hint}",
        ]
    others = [path for path in machine.kernel_paths if path != machine.kernels]
    also = f" (also here: {', '.join(others)})" if others else ""
    return [f"kernels      {machine.kernels}{also}"]


def _render_package(package: Package) -> str:
    advice = f"  needs {package.required or 'any version'}: {package.install}" if package.install else ""
    return f"  {package.name:<30} {package.version or 'missing':<14}{advice}".rstrip()


def _render_conclusion(title: str, conclusion: Availability) -> str:
    return f"can {title}: {'yes' if conclusion.possible else 'no'}, {conclusion.reason}"


def to_json(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as one JSON object; each feature has a key `can_...`."""
    found = asdict(diagnosis)
    found |= {f"can_{name}": conclusion for name, conclusion in found.pop("can").items()}
    return json.dumps(found, indent=2)


@click.command("doctor")
@click.argument("folder", metavar="[BUNDLE]", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--require",
    "required",
    type=click.Choice(list(FEATURES)),
    multiple=True,
    help="Try this as well, and fail when this machine cannot do it. May be given again.",
)
@click.option("--report", is_flag=True, help="Print a text for a bug report: no paths, no names of users, no secrets.")
def command(folder: Path | None, as_json: bool, required: tuple[str, ...], report: bool) -> None:
    """Say what this machine can build and run, and what to install for the rest. With a BUNDLE also whether its engines
    are exact here: the target reads the same tokens in windows of every width, and the logits must be equal, bit for
    bit.

    ONNX Runtime is asked for its providers. Other libraries are only looked for, not loaded, unless an ability is
    required: then it is tried on something small.

    \b
    Examples:
      speccompile doctor
      speccompile doctor --json
      speccompile doctor --require compile --require build_tensorrt_rtx
      speccompile doctor build/demo
      speccompile doctor build/demo --report > report.md
    """
    if report and as_json:
        raise UsageError("received --report and --json, expected one of them", hint="leave one of them out")
    diagnosis = diagnose(required)
    if report:
        from speccompile.cli.report import render_report

        tried = (_trial_row(trial) for trial in try_bundle(folder)) if folder is not None else ()
        click.echo(render_report(diagnosis.machine, diagnosis.packages, diagnosis.can, folder, tried))
    else:
        if folder is not None:
            diagnosis = replace(diagnosis, bundle=tuple(try_bundle(folder)))
        click.echo(to_json(diagnosis) if as_json else render(diagnosis))
    require(required, diagnosis.can, diagnosis.packages, diagnosis.machine)
