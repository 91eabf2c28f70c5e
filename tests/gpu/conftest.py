"""What the tests on a GPU share: the GPU or the reason why they are skipped, bundles for it, figures for the table."""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from speccompile.errors import EngineError
from speccompile.runtime.devices import engines
from speccompile.runtime.devices.cuda import Device, open_device
from tests.gpu.machine import ENGINES, REFERENCE, ROOT, Engine, Opened, Watched


@pytest.fixture(scope="session")
def gpu() -> Device:
    try:
        return open_device()
    except EngineError as error:
        pytest.skip(f"no GPU: {error}")


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Keep figures for the table of scripts/gpu/check."""

    def keep(**measured: object) -> None:
        for name, value in measured.items():
            record_property(name, f"{value:.3g}" if isinstance(value, float) else str(value))

    return keep


@pytest.fixture(scope="session")
def built(gpu: Device, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Build the demo for an engine and, as its reference, for the processor. Built once, TensorRT's on the device
    itself."""

    @cache
    def build(name: str) -> Path:
        folder = tmp_path_factory.mktemp("gpu") / "bundle"
        engine = ENGINES[name]
        keys = [f"engines=[{engine.recipe(gpu.compute_capability)}, {REFERENCE}]", f"graphs={engine.graphs}"]
        _speccompile(
            "build", ROOT / "recipes" / engine.demo, "--skip-prove", "-o", folder, *(f"--set={key}" for key in keys)
        )
        if engine.backend == "tensorrt":
            _speccompile("finish", folder)
        return folder

    return build


def _speccompile(*arguments: str | Path) -> None:
    command = [Path(sys.executable).with_name("speccompile"), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest, gpu: Device) -> Engine:
    """Return every engine that this machine can build and run."""
    described = ENGINES[request.param]
    if reason := described.lacks(gpu.compute_capability):
        pytest.skip(reason)
    return described


@pytest.fixture
def opened(
    engine: Engine,
    built: Callable[[str], Path],
    gpu: Device,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Opened]:
    """Yield the bundle, opened on the engine, with an eye on what it asks of CUDA."""
    watched = Watched(gpu._api)
    monkeypatch.setattr(engines, "open_device", lambda: Device(watched))
    with caplog.at_level(logging.WARNING, "speccompile"):
        yield Opened(engine, built(engine.name), watched)
