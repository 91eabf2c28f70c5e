"""Servers of both languages as processes, over one bundle."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.light.serve_example import TEMPLATE, Running
from tests.native.toy_onnx import write_arithmetic_bundle

ROOT = Path(__file__).resolve().parents[2]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@contextmanager
def started(
    kind: str, build: Path, library: Path, folder: Path, *given: object, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a server's process and its address."""
    words = ["serve", folder, "--port", 0, *given]
    if kind == "python":
        command = [sys.executable, "-m", "speccompile", *words]
    else:
        command = [build / "speccompile-native", *words, "--onnxruntime", library]
    running = subprocess.Popen(
        [str(word) for word in command], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"SPECCOMPILE_READING": "inside"} | variables,
    )  # fmt: skip
    assert running.stdout
    try:
        yield running, running.stdout.readline().strip()
    finally:
        running.kill()
        running.communicate()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("bundles")
    return {
        "greedy": write_arithmetic_bundle(made / "greedy", chat=TEMPLATE),
        "sampling": write_arithmetic_bundle(made / "sampling", chat=TEMPLATE, samples=True, rows=4, constrained=True),
    }


def client_of(running: Running, **options: Any) -> openai.OpenAI:
    given = {"api_key": "unused", "max_retries": 0} | options
    return openai.OpenAI(base_url=f"{running.address}/v1", **given)
