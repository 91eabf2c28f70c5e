"""`speccompile doctor`: what this machine can build and run, and what to install for the rest."""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass

import click

from speccompile.cli.abilities import ABILITIES, Conclusion, conclude, require
from speccompile.cli.machine import (
    COMPILE,
    GPU,
    RUN,
    Machine,
    Package,
    inspect_machine,
    inspect_packages,
)

HEADINGS = {RUN: "to run bundles:", COMPILE: "to compile:", GPU: "for engines on GPUs (optional):"}


@dataclass(frozen=True)
class Diagnosis:
    """Everything that doctor prints. `can` goes from the name of an ability to its conclusion."""

    machine: Machine
    packages: list[Package]
    can: dict[str, Conclusion]


def diagnose(tried: Collection[str] = ()) -> Diagnosis:
    """Look at this machine, and try the abilities named.

    Raises SpeccompileError when speccompile itself is not installed.
    """
    packages, machine = inspect_packages(), inspect_machine()
    return Diagnosis(machine, packages, conclude(packages, machine, tried))


def render(diagnosis: Diagnosis) -> str:
    """The diagnosis as text, one finding a line."""
    machine = diagnosis.machine
    gpus = machine.gpus or [f"none ({machine.gpu_problem})"]
    lines = [
        f"python       {machine.python}",
        f"platform     {machine.platform}",
        f"processor    {_render_cores(machine)}, {machine.memory_gib} GiB memory",
        f"onnxruntime  {', '.join(machine.onnxruntime_providers) or machine.onnxruntime_problem}",
        *(f"gpu          {gpu}" for gpu in gpus),
    ]
    for purpose, heading in HEADINGS.items():
        lines += ["", heading]
        lines += [_render_package(package) for package in diagnosis.packages if package.purpose == purpose]
    lines += ["", *(_render_conclusion(ABILITIES[name].title, found) for name, found in diagnosis.can.items())]
    return "\n".join(lines)


def _render_cores(machine: Machine) -> str:
    text = f"{machine.physical_cores} physical cores"
    if machine.available_cores == machine.physical_cores:
        return text
    return f"{text}, {machine.available_cores} for this process (by its affinity mask or its quota)"


def _render_package(package: Package) -> str:
    advice = f"  needs {package.required or 'any version'}: {package.install}" if package.install else ""
    return f"  {package.name:<30} {package.version or 'missing':<14}{advice}".rstrip()


def _render_conclusion(title: str, conclusion: Conclusion) -> str:
    return f"can {title}: {'yes' if conclusion.possible else 'no'}, {conclusion.reason}"


def to_json(diagnosis: Diagnosis) -> str:
    """The diagnosis as one JSON object; an ability is a key `can_...` of its own."""
    found = asdict(diagnosis)
    found |= {f"can_{name}": conclusion for name, conclusion in found.pop("can").items()}
    return json.dumps(found, indent=2)


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--require",
    "required",
    type=click.Choice(list(ABILITIES)),
    multiple=True,
    help="Try this as well, and fail when this machine cannot do it. May be given again.",
)
def command(as_json: bool, required: tuple[str, ...]) -> None:
    """What this machine can build and run, and what to install for the rest.

    ONNX Runtime is asked for its providers. Other libraries are only looked for, not loaded, unless an ability is
    required: then it is tried on something small.

    \b
    Examples:
      speccompile doctor
      speccompile doctor --json
      speccompile doctor --require compile --require build_tensorrt_rtx
    """
    diagnosis = diagnose(required)
    click.echo(to_json(diagnosis) if as_json else render(diagnosis))
    require(required, diagnosis.can, diagnosis.packages)
