"""The Dockerfile, as far as it can be checked without building it: stages, users, health checks, pins, what is copied.

hadolint checks its style in scripts/check. The images check themselves, with `pip check` and the doctor, as they are
built.
"""

import importlib.metadata
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from docker.utils.build import exclude_paths
from dockerfile_parse import DockerfileParser
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from speccompile import __version__
from speccompile.cli import doctor
from speccompile.cli.machine import GPU_PACKAGES
from speccompile.native import locate

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "scripts" / "docker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUNTIME = PROJECT["project"]["dependencies"]
COMPILE = PROJECT["project"]["optional-dependencies"]["compile"]
# Target -> what its health check requires.
TARGETS = {
    "compile": ["compile", "build_tensorrt_rtx"],
    "runtime": ["run"],
    "runtime-gpu": ["run_cuda", "run_tensorrt_rtx"],
}
PINNED = re.compile(r"[\w.-]+==[\w.+]+")


class Stage(NamedTuple):
    """A stage: what it starts from, and its instructions with their arguments, in order."""

    base: str
    steps: list[tuple[str, str]]

    def all(self, instruction: str) -> list[str]:
        return [argument for name, argument in self.steps if name == instruction]


def read_stages() -> dict[str, Stage]:
    """Stage -> its own instructions. A stage without a name, or with the name of another, is an error."""
    found: dict[str, Stage] = {}
    for step in DockerfileParser(str(ROOT / "Dockerfile")).structure:
        if step["instruction"] == "FROM":
            base, _, name = step["value"].split()
            assert name not in found
            found[name] = Stage(base, [])
        elif step["instruction"] != "COMMENT":
            found[name].steps.append((step["instruction"], step["value"]))
    return found


STAGES = read_stages()
IMAGE = STAGES["python"].base
NATIVE_IMAGE = STAGES["runtime-native"].base


def with_bases(name: str) -> Stage:
    """Return a stage with all that it inherits before its own instructions."""
    steps: list[tuple[str, str]] = []
    while name in STAGES:
        steps = STAGES[name].steps + steps
        name = STAGES[name].base
    return Stage(name, steps)


def read_lock(name: str) -> dict[str, str]:
    """Return package -> pinned version, of a file in scripts/docker."""
    lines = [line.strip() for line in (LOCKS / f"{name}.txt").read_text(encoding="utf-8").splitlines()]
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(PINNED.fullmatch(pin) for pin in pins)
    return dict(pin.split("==") for pin in pins)


def commands(stage: Stage, *words: str) -> Iterator[list[str]]:
    """Yield the arguments of each command in RUN that starts with these words."""
    for line in stage.all("RUN"):
        for command in line.split("&&"):
            arguments = shlex.split(command)
            if arguments[: len(words)] == list(words):
                yield arguments[len(words) :]


def unsatisfied(lines: list[str], pins: dict[str, str]) -> list[str]:
    """Return those requirements that the pins do not meet."""

    def met(requirement: Requirement) -> bool:
        pin = pins.get(canonicalize_name(requirement.name))
        return pin is not None and requirement.specifier.contains(pin)

    return [line for line in lines if not met(Requirement(line))]


def test_every_stage_starts_from_an_earlier_one_and_the_first_from_a_version() -> None:
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-trixie", IMAGE)
    assert re.fullmatch(r"debian:13\.\d+-slim", NATIVE_IMAGE)  # trixie: the C library is the one it was compiled with
    known = [IMAGE, NATIVE_IMAGE]
    for name, stage in STAGES.items():
        assert stage.base in known
        sources = [
            argument for copy in stage.all("COPY") for argument in copy.split() if argument.startswith("--from=")
        ]
        assert {source.removeprefix("--from=") for source in sources} <= set(known)
        known.append(name)
    assert {*TARGETS, "runtime-native"} <= set(STAGES)


@pytest.mark.parametrize("target", [*TARGETS, "runtime-native"])
def test_target_runs_the_command_line_as_a_user_without_rights(target: str) -> None:
    stage = with_bases(target)
    user, group = stage.all("USER")[-1].split(":")
    assert int(user) > 0
    assert int(group) > 0
    assert json.loads(stage.all("ENTRYPOINT")[-1]) == ["speccompile-native" if "native" in target else "speccompile"]
    assert {"/data", "/cache"} == set(json.loads(stage.all("VOLUME")[-1]))
    assert stage.all("WORKDIR")[-1] == "/data"


@pytest.mark.parametrize("target", TARGETS)
def test_target_contains_no_pip_command_and_no_package_of_the_system(target: str) -> None:
    """Find only COPY in the target's stage, so that neither a compiler nor a cache stays behind."""
    assert not [line for line in with_bases(target).all("RUN") if re.search(r"\b(pip|apt|apt-get)\b", line)]
    assert STAGES[target].all("COPY") == [f"--from={target}-environment /venv /venv"]


def test_native_target_contains_what_is_compiled_and_the_library_of_onnxruntime_alone() -> None:
    """List the copied files; tests/native/test_native_packaging.py measures their size."""
    files, target = STAGES["native"], STAGES["runtime-native"]
    assert target.all("COPY") == ["--from=native /native /usr/local"]
    assert not [line for line in target.all("RUN") if re.search(r"\b(pip|python|apt|apt-get)\b", line)]
    assert files.all("COPY") == ["scripts/docker/runtime.txt ./", "--from=wheel /wheels /wheels"]
    onnxruntime, wheel = commands(files, "pip", "install")
    assert onnxruntime[-3:] == ["-c", "runtime.txt", "onnxruntime"]
    assert wheel[-1] == "/wheels/*.whl"
    assert "onnxruntime" in read_lock("runtime")
    sources = [word.removeprefix("/source/packages/") for copy in commands(files, "cp") for word in copy[:-1]]
    assert set(sources) - {"--recursive"} == {
        f"speccompile/native/{locate.PREFIX}/.",
        "onnxruntime/capi/libonnxruntime.so.1.*",
    }
    (variables,) = target.all("ENV")
    assert "SPECCOMPILE_ONNXRUNTIME=/usr/local/lib/libonnxruntime.so.1" in shlex.split(variables)
    (check,) = target.all("HEALTHCHECK")
    assert json.loads(check.partition("CMD ")[2]) == ["speccompile-native", "--version"]


@pytest.mark.parametrize(("target", "required"), TARGETS.items())
def test_health_check_asks_the_doctor_for_what_the_image_is_there_for(target: str, required: list[str]) -> None:
    (check,) = with_bases(target).all("HEALTHCHECK")
    program, command, *arguments = json.loads(check.partition("CMD ")[2])
    assert (program, command) == ("speccompile", "doctor")
    assert doctor.command.make_context("doctor", arguments).params["required"] == tuple(required)


@pytest.mark.parametrize("target", TARGETS)
def test_environment_asks_the_doctor_as_it_is_built(target: str) -> None:
    (arguments,) = commands(STAGES[f"{target}-environment"], "/venv/bin/speccompile", "doctor")
    required = doctor.command.make_context("doctor", arguments).params["required"]
    # No GPU is there while an image is built. Health asks for no kernels, as a container may have them switched off.
    purposes = ["run", "build_tensorrt_rtx"] if target == "runtime-gpu" else TARGETS[target]
    assert set(required) == {*purposes, "run_kernels"}


@pytest.mark.parametrize("target", TARGETS)
def test_wheel_with_the_kernels_is_all_that_leaves_the_stage_with_the_compiler(target: str) -> None:
    wheel, environment = STAGES["wheel"], with_bases(f"{target}-environment")
    assert wheel.all("ENV") == ["SPECCOMPILE_NATIVE=require"]
    ((*options, package),) = commands(wheel, "apt-get", "install")
    assert re.fullmatch(r"g\+\+=\d+:[\d.-]+", package)
    assert set(options) == {"--no-install-recommends", "--yes"}
    assert not [line for line in environment.all("RUN") if re.search(r"\b(apt|apt-get|g\+\+|cmake|ninja)\b", line)]
    copies = [copy for copy in environment.all("COPY") if copy.startswith("--from=")]
    assert "--from=wheel /wheels /wheels" in copies
    assert {copy.split()[1] for copy in copies} == {"/wheels"}


@pytest.mark.parametrize(("target", "lines"), [("runtime", RUNTIME), ("compile", RUNTIME + COMPILE)])
def test_pins_are_what_pyproject_allows(target: str, lines: list[str]) -> None:
    assert unsatisfied(lines, read_lock(target)) == [], "run scripts/docker/lock"


def test_pins_of_the_gpu_runtime_are_what_pyproject_allows_with_another_onnxruntime() -> None:
    pins = read_lock("runtime-gpu")
    assert "onnxruntime" not in pins
    assert unsatisfied(RUNTIME, pins | {"onnxruntime": pins["onnxruntime-gpu"]}) == [], "run scripts/docker/lock"


@pytest.mark.parametrize(
    ("target", "modules"),
    [
        ("compile", ["tensorrt_rtx"]),
        ("runtime-gpu", ["tensorrt_rtx", "cuda", "onnxruntime_ep_nv_tensorrt_rtx"]),
    ],
)
def test_pins_for_gpus_are_what_the_doctor_wants(target: str, modules: list[str]) -> None:
    assert unsatisfied([GPU_PACKAGES[module] for module in modules], read_lock(target)) == []


def test_images_have_the_same_versions() -> None:
    """Compare versions: a TensorRT-RTX engine runs on the version that built it."""
    first, *others = map(read_lock, ("compile", "runtime", "runtime-gpu"))
    for pins in others:
        shared = first.keys() & pins.keys()
        assert {name: pins[name] for name in shared} == {name: first[name] for name in shared}


@pytest.mark.parametrize("target", ["runtime", "compile"])
def test_what_pinned_packages_need_is_pinned(target: str) -> None:
    pins = read_lock(target)
    lacking = {}
    for name, version in pins.items():
        if installed := [each for each in importlib.metadata.distributions(name=name) if each.version == version]:
            requirements = map(Requirement, installed[0].requires or [])
            needed = [str(each) for each in requirements if not each.marker or each.marker.evaluate({"extra": ""})]
            lacking[name] = unsatisfied(needed, pins)
    assert lacking, "none of the pinned versions is installed here"
    assert {name: lines for name, lines in lacking.items() if lines} == {}


def test_pip_installs_pinned_packages_and_nothing_they_ask_for() -> None:
    written: dict[str, str] = {}
    for name, stage in STAGES.items():
        for arguments in [*commands(stage, "pip", "install"), *commands(stage, "pip", "wheel")]:
            assert {"--no-deps", "--no-cache-dir"} <= set(arguments), name
            written |= dict(word.split("==") for word in arguments if PINNED.fullmatch(word))
    assert set(written) == {"auditwheel", "cmake", "ninja", "packaging", "pyelftools", "setuptools", "torch"}
    assert written["torch"] == read_lock("compile")["torch"]
    assert unsatisfied(PROJECT["build-system"]["requires"], written) == []
    locked = [word for stage in STAGES.values() for line in stage.all("RUN") for word in re.findall(r"-r (\S+)", line)]
    assert sorted(locked) == sorted(f"{target}.txt" for target in TARGETS)


def test_what_is_copied_is_in_the_context_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    context = {Path(path) for path in exclude_paths(str(ROOT), patterns) if (ROOT / path).is_file()}
    copies = [copy.split() for stage in STAGES.values() for copy in stage.all("COPY") if "--from=" not in copy]
    sources = {Path(source) for *sources, _ in copies for source in sources}
    reached = {source: [file for file in context if file.is_relative_to(source)] for source in sources}
    assert [source for source, files in reached.items() if not files] == []
    sent = context - {file for files in reached.values() for file in files}
    assert sent == {Path("Dockerfile"), Path(".dockerignore")}
    compiled = {"__pycache__", locate.PREFIX}
    assert not [file for file in context if compiled & set(file.parts) or ".so" in file.suffixes]


@pytest.mark.parametrize("target", [*TARGETS, "runtime-native"])
def test_labels_say_what_is_inside(target: str) -> None:
    words = [word for line in with_bases(target).all("LABEL") for word in shlex.split(line)]
    labels = {
        name.removeprefix("org.opencontainers.image."): text
        for name, _, text in (word.partition("=") for word in words)
    }
    assert labels["version"] == __version__
    assert labels["base.name"] == f"docker.io/library/{with_bases(target).base}"
    assert labels["licenses"].startswith(PROJECT["project"]["license"])
    assert set(labels) == {"title", "version", "licenses", "base.name", "description"}
