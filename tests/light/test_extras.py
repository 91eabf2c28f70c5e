"""Packages that are missing: each command and entry of Python that needs one names what installs it."""

import ast
import importlib.metadata
import json
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from speccompile.extras import EXTRAS, PACKAGES, install_hint
from tests.light.fake_bundle import write_toy_bundle

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RECIPE, MODEL = str(ROOT / "recipes/demo"), str(ROOT / "recipes/demo/target")
PROMPTS = str(ROOT / "recipes/demo/prompts.jsonl")
TRAIN = ["train", str(ROOT / "recipes/demo/train.yaml"), "--tensorboard", "--set", f"train.data.files=[{PROMPTS}]"]

COMMANDS = {
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

CASES = [
    pytest.param(arguments, module, id=f"{name} without {module}")
    for name, (arguments, *needs) in COMMANDS.items()
    for need in needs
    for module in EXTRAS.get(need, (need,))
]

NO_MODULES = {
    "cmake", "ninja", "setuptools",  # they compile, when the package is built
    "sympy",  # torch's
    "triton_python_backend_utils",  # a part of Triton Inference Server
    "_typeshed",  # of type checkers
    "click",  # without it there is no command line
}  # fmt: skip
"""Modules that are imported and are none of the table's."""


@contextmanager
def hidden(*modules: str) -> Iterator[None]:
    """Modules cannot be imported, and what speccompile has imported of itself is forgotten for the time."""
    before = dict(sys.modules)
    for name in before:
        top = name.partition(".")[0]
        if top == "speccompile":
            del sys.modules[name]
        if top in modules:
            sys.modules[name] = None  # type: ignore[assignment]
    sys.modules.update(dict.fromkeys(modules))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in sys.modules.keys() - before.keys():
            if name.partition(".")[0] in ("speccompile", *modules):
                del sys.modules[name]
        sys.modules.update(before)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stands for words of COMMANDS."""
    folder = tmp_path_factory.mktemp("extras")
    requests = folder / "requests.jsonl"
    line = {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"model": "toy", "prompt": "a"}}
    requests.write_text(json.dumps(line) + "\n")
    return {"BUNDLE": str(write_toy_bundle(folder / "toy")), "REQUESTS": str(requests), "ANSWERS": "answers.jsonl"}


@pytest.mark.parametrize(("arguments", "module"), CASES)
def test_command_names_what_installs_a_missing_package(
    arguments: list[str], module: str, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = [files.get(word, word) for word in arguments]
    with hidden(module):
        code = import_module("speccompile.cli.exit_codes").run(import_module("speccompile.cli.main").group, words)
    told = capsys.readouterr()
    assert (code, told.out) == (1, ""), told.err
    *_, error, hint = told.err.splitlines()
    assert error.startswith("error: received an installation without ")
    assert module in error
    assert hint.removeprefix("hint: ").startswith(str(install_hint(module)))
    assert "Traceback" not in told.err
    assert list(tmp_path.rglob("*")) == [], "nothing is half written"


@pytest.mark.parametrize("entry", ["plan", "build"])
@pytest.mark.parametrize("module", ["pydantic", "yaml"])
def test_python_names_what_installs_a_missing_package(entry: str, module: str) -> None:
    with hidden(module), pytest.raises(ModuleNotFoundError) as caught:
        getattr(import_module("speccompile"), entry)(RECIPE)
    assert type(caught.value).__name__ == "MissingPackageError"
    assert (caught.value.name, caught.value.hint) == (module, install_hint(module))  # type: ignore[attr-defined]


def test_building_in_python_names_all_that_is_missing_before_the_work(tmp_path: Path) -> None:
    with hidden("torch", "polygraphy"), pytest.raises(ModuleNotFoundError) as caught:
        import_module("speccompile").build(RECIPE, tmp_path / "out")
    assert str(caught.value) == (
        "received an installation without polygraphy, torch, expected the extra 'compile', which building needs"
    )
    assert list(tmp_path.iterdir()) == []


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
    assert EXTRAS.keys() | {"all", "dev"} == declared.keys()


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
    assert Requirement(line).extras == extras.keys() - {"all", "dev"}
