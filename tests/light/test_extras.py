"""Packages that are missing: each command and entry of Python that needs one names what installs it."""

import ast
import importlib.metadata
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from speccompile.errors import MissingPackageError
from speccompile.extras import EXTRAS, PACKAGES, install_hint, require
from tests.light.fake_bundle import write_toy_bundle

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RECIPE, MODEL = str(ROOT / "recipes/demo"), str(ROOT / "recipes/demo/target")
PROMPTS = str(ROOT / "recipes/demo/prompts.jsonl")
TRAIN = ["train", str(ROOT / "recipes/demo/train.yaml"), "--tensorboard", "--set", f"train.data.files=[{PROMPTS}]"]

Answers = dict[tuple[str, str, str], tuple[list[Any], Path]]

COMMANDS: dict[str, tuple[list[str], *tuple[str, ...]]] = {
    "build": (["build", RECIPE], "compile"),
    "build of a model": (["build", MODEL], "compile"),
    "run": (["run", MODEL, "def"], "compile"),
    "tune": (["tune", RECIPE], "compile"),
    "compare": (["compare", RECIPE, "--prompts", PROMPTS], "compile"),
    "train": (TRAIN, "compile", "train", "tensorboard"),
    "plan": (["plan", RECIPE], "pydantic", "yaml"),
    "init": (["init", MODEL], "pydantic", "yaml"),
    "serve": (["serve", "BUNDLE"], "serve"),
    "ray serve": (["ray", "serve", "BUNDLE"], "ray"),
    "ray batch": (["ray", "batch", "BUNDLE", "REQUESTS", "ANSWERS"], "ray"),
    "ray build": (["ray", "build", RECIPE], "pydantic", "yaml"),
    "ray tune": (["ray", "tune", RECIPE], "ray"),
}
"""Command -> its arguments, and the modules or extras without which it ends."""

SOME = {"compile": ("pydantic", "torch", "yaml"), "train": ("datasets",)}
"""Of extras that are checked as a whole, when a command begins: modules of which some are imported before that."""

CASES = [
    pytest.param(name, module, id=f"{name} without {module}")
    for name, (_, *needs) in COMMANDS.items()
    for need in needs
    for module in SOME.get(need, EXTRAS.get(need, (need,)))
]
ENTRIES = [(entry, module) for entry in ("plan", "build") for module in ("pydantic", "yaml")]

PROCESSES = "a process that forks for each command and package"

NO_MODULES = {
    "cmake", "ninja", "setuptools",  # they compile, when the package is built
    "sympy",  # torch's
    "triton_python_backend_utils",  # a part of Triton Inference Server
    "_typeshed",  # of type checkers
    "click",  # without it there is no command line
}  # fmt: skip
"""Modules that are imported and are none of the table's."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Return ("command" or "entry", its name, what is missing) -> the answer, and the folder in which it was asked."""
    folder = tmp_path_factory.mktemp("extras")
    requests = folder / "requests.jsonl"
    line = {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"model": "toy", "prompt": "a"}}
    requests.write_text(json.dumps(line) + "\n")
    files = {"BUNDLE": str(write_toy_bundle(folder / "toy")), "REQUESTS": str(requests), "ANSWERS": "answers.jsonl"}
    keys = [*(case.values for case in CASES), *ENTRIES, ("build", "polygraphy torch")]
    asked = []
    for number, (name, missing) in enumerate(keys):
        (own := folder / str(number)).mkdir()
        words = COMMANDS[name][0] if number < len(CASES) else None
        what = {"entry": [name, RECIPE]} if words is None else {"command": [files.get(word, word) for word in words]}
        asked.append({"hidden": str(missing).split(), "folder": str(own), **what})
    run = subprocess.run(
        [sys.executable, "-m", "tests.light.missing_packages"],
        input=json.dumps(asked), capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    kinds = ["command"] * len(CASES) + ["entry"] * (len(keys) - len(CASES))
    named = [(kind, *key) for kind, key in zip(kinds, keys, strict=True)]
    folders = [Path(str(case["folder"])) for case in asked]
    return dict(zip(named, zip(json.loads(run.stdout), folders, strict=True), strict=True))


@pytest.mark.sweep(PROCESSES)
@pytest.mark.parametrize(("name", "module"), CASES)
def test_command_names_what_installs_a_missing_package(name: str, module: str, answers: Answers) -> None:
    (code, output, talk), folder = answers["command", name, module]
    assert (code, output) == (1, ""), talk
    *_, error, hint, _ = talk.splitlines()
    assert error.startswith("error: received an installation without ")
    assert module in error
    assert hint.removeprefix("hint: ").startswith(str(install_hint(module)))
    assert "Traceback" not in talk
    assert list(folder.iterdir()) == [], "nothing is half written"


@pytest.mark.sweep(PROCESSES)
@pytest.mark.parametrize(("entry", "module"), ENTRIES)
def test_python_names_what_installs_a_missing_package(entry: str, module: str, answers: Answers) -> None:
    (kind, _, name, hint), _ = answers["entry", entry, module]
    assert (kind, name, hint) == ("MissingPackageError", module, install_hint(module))


@pytest.mark.sweep(PROCESSES)
def test_building_in_python_names_all_that_is_missing_before_the_work(answers: Answers) -> None:
    (_, text, *_), folder = answers["entry", "build", "polygraphy torch"]
    assert text == (
        "received an installation without polygraphy, torch, expected the extra 'compile', which building needs"
    )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("extra", "module"), [(extra, module) for extra in ("compile", "train") for module in EXTRAS[extra]]
)
def test_check_of_an_extra_finds_every_module(extra: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError, match=f"without {module}, expected the extra '{extra}', which it needs"):
        require(extra, purpose="it")


def test_all_extras_that_are_missing_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch", "datasets"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError, match="the extras 'compile' and 'train', which training needs") as caught:
        require("compile", "train", purpose="training")
    assert caught.value.hint == "pip install 'speccompile[compile,train]'"


def test_table_is_what_the_extras_install() -> None:
    """Held against pyproject.toml, by the packages that are installed here."""
    packages = importlib.metadata.packages_distributions()
    declared = {
        extra: {canonicalize_name(Requirement(line).name) for line in lines}
        for extra, lines in PROJECT["optional-dependencies"].items()
    }
    wrong = [
        f"{module}: of {packages[module]}, which [{extra}] does not install"
        for extra, modules in EXTRAS.items()
        for module in modules
        if module in packages and module != "pyarrow"  # of datasets
        and not {canonicalize_name(name) for name in packages[module]} & declared[extra]
    ]  # fmt: skip
    assert wrong == []
    assert EXTRAS.keys() | {"all", "dev", "docs"} == declared.keys()


def test_every_imported_package_is_required_or_has_a_hint() -> None:
    required = {Requirement(line).name for line in PROJECT["dependencies"]}
    imported = {
        name.partition(".")[0]
        for file in (ROOT / "speccompile").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in imported_by(node)
    } - {"speccompile", *sys.stdlib_module_names, *NO_MODULES}
    assert sorted(name for name in imported if install_hint(name) is None) == []
    assert required - PACKAGES.keys() == {"click"}


def imported_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def test_all_is_every_other_extra_but_the_developers() -> None:
    extras = PROJECT["optional-dependencies"]
    (line,) = extras["all"]
    assert Requirement(line).name == PROJECT["name"]
    assert Requirement(line).extras == extras.keys() - {"all", "dev", "docs"}
