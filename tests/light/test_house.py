"""Rules of the house that no single file can keep alone: imports, sizes, paths, scripts."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(file for folder in ("speccompile", "scripts", "tests") for file in (ROOT / folder).rglob("*.py"))
SHELL_SCRIPTS = [ROOT / name for name in ("scripts/setup", "scripts/demo", "scripts/check", "scripts/test", ".ci/run")]
LONGEST_FILE = 350
# Modules that run whatever a file tells them to when they read it.
UNSAFE_READERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
COMPILER_PACKAGES = ["torch", "transformers", "onnx", "pydantic", "yaml"]
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:home|root|Users|work|mnt|opt|tmp|var)/\w+")


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def imported_modules(file: Path) -> set[str]:
    """Top-level names of every module that a file imports, at any depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_import_rules_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_no_python_file_is_long() -> None:
    lengths = {name_of(file): len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_path_of_one_machine() -> None:
    files = [*SOURCES, *SHELL_SCRIPTS, ROOT / "pyproject.toml", *(ROOT / "recipes").rglob("*.yaml")]
    found = {name_of(file): MACHINE_PATH.findall(file.read_text(encoding="utf-8")) for file in files}
    assert {name: paths for name, paths in found.items() if paths} == {}


def test_nothing_is_unpickled() -> None:
    found = {
        name_of(file): imported_modules(file) & UNSAFE_READERS for file in SOURCES if "speccompile" in name_of(file)
    }
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_runtime_loads_no_compiler_package() -> None:
    code = "import sys, speccompile.runtime; print(*(module for module in sys.argv[1:] if module in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code, *COMPILER_PACKAGES], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []


@pytest.mark.parametrize("script", SHELL_SCRIPTS, ids=name_of)
def test_shell_script_parses_and_can_be_started(script: Path) -> None:
    assert os.access(script, os.X_OK)
    run = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def compare(folder: Path, speculative: list[int], autoregressive: list[int]) -> subprocess.CompletedProcess[str]:
    """Run the demo's comparison on two generations that differ in nothing but these tokens and their rounds."""
    paths = []
    for mode, token_ids, rounds in (("speculative", speculative, 2), ("autoregressive", autoregressive, 4)):
        generation = {"text": "a text", "token_ids": token_ids, "rounds": rounds, "mean_accepted": 4 / rounds}
        paths.append(folder / f"{mode}.json")
        paths[-1].write_text(json.dumps(generation | {"tokens_per_second": 10.0 * rounds}))
    return subprocess.run(
        [sys.executable, ROOT / "scripts/compare.py", *paths], capture_output=True, text=True, check=False
    )


def test_demo_comparison_of_equal_tokens(tmp_path: Path) -> None:
    run = compare(tmp_path, [5, 6, 7, 8], [5, 6, 7, 8])
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    assert ["rounds", "2", "4"] in lines
    assert ["mean", "accepted", "2.00", "1.00"] in lines
    assert ["tokens/s", "20.0", "40.0"] in lines
    assert lines[-1] == ["same", "tokens", "yes,", "all", "4"]


@pytest.mark.parametrize(
    ("autoregressive", "difference"),
    [
        ([5, 6, 9, 8], "no: new token 2 is 7 speculatively and 9 autoregressively"),
        ([5, 6, 7], "no: new token 3 is 8 speculatively and None autoregressively"),
    ],
)
def test_demo_comparison_fails_on_a_difference(autoregressive: list[int], difference: str, tmp_path: Path) -> None:
    run = compare(tmp_path, [5, 6, 7, 8], autoregressive)
    assert run.returncode == 1
    assert difference in run.stdout
