"""Wheels of scripts/wheels: one for every Linux on x86-64, which runs where no compiler and nothing else is.

The compiler, auditwheel and pipx come from the package index.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speccompile import __version__, build
from tests.compile.tiny_bundles import Built

ROOT = Path(__file__).resolve().parents[2]
WHEEL = f"speccompile-{__version__}-py3-none-manylinux_2_28_x86_64.whl"
Run = Callable[..., dict[str, Any]]
pytestmark = [
    pytest.mark.sweep("compiles all of the C++ once more, with a compiler of its own, which it downloads"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheel that is tried out is for x86-64"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of scripts/wheels, with the wheel for x86-64. The script has audited it and tried it out."""
    folder = tmp_path_factory.mktemp("wheels")
    run = subprocess.run([ROOT / "scripts/wheels", folder, "x86_64"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert {Path(line).name for line in run.stdout.split()} == {f"speccompile-{__version__}.tar.gz", WHEEL}
    return folder


@pytest.fixture(scope="module")
def from_wheel(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a program of the wheel as `pipx run` starts it, away from the checkout; its answer in JSON."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPECCOMPILE_", "PYTHON"))}
    variables = kept | {"PIPX_HOME": str(made / "tools/pipx")}
    pipx = (made / "tools/bin/python", "-m", "pipx", "run", "--spec", made / WHEEL)
    return lambda *words: run_json(*pipx, *words, folder=tmp_path_factory.mktemp("elsewhere"), variables=variables)


def run_json(*words: object, folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    command = [*map(str, words), "--json"]
    run = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


@pytest.mark.parametrize("program", ["speccompile", "speccompile-native"])
def test_wheel_generates_what_transformers_does(from_wheel: Run, built: Callable[[str], Built], program: str) -> None:
    case = built("model_4")
    prompt = case.prompts()[6]
    ids = ",".join(map(str, prompt))
    found = from_wheel(program, "-q", "generate", case.path, "--token-ids", ids, "--max-new-tokens", 30)
    assert found["token_ids"] == case.reference(prompt)


def test_wheel_runs_a_bundle_as_the_checkout_does(from_wheel: Run, tmp_path: Path) -> None:
    bundle = tmp_path / "demo"
    build(ROOT / "recipes/demo", bundle, prove=False)
    words = ("-q", "run", bundle, "def main(", "-n", 64)
    here = run_json(sys.executable, "-m", "speccompile", *words, folder=ROOT, variables=dict(os.environ))
    found = from_wheel("speccompile", *words)
    assert (found["text"], found["token_ids"]) == (here["text"], here["token_ids"])
    assert len(found["token_ids"]) == 64
