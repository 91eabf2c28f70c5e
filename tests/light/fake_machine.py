"""Machines with a fake GPU, on which the TensorRT engine runs the toy."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from speccompile.contract import Graph
from speccompile.runtime import Bundle
from speccompile.runtime.devices.tensorrt import TensorRTEngine
from tests.light.fake_cuda import FakeCuda
from tests.light.fake_tensorrt import FakeTensorRT, device_manifest, write_plans

PROMPT = [3, 1, 4, 1, 5]

Machine = SimpleNamespace
"""cuda, trt, manifest, engine, and the bundle that runs on it."""


def make_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """Return what makes machines. Their files and the cache of compiled kernels lie in `folder`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def make(
        *,
        rtx: bool = True,
        plans: dict[str, Callable[[Graph], dict[str, Any]]] | None = None,
        trt: dict[str, Any] | None = None,
        **changes: object,
    ) -> Machine:
        """plans: graph -> what its engine is instead. trt: attributes of the module. changes: of the manifest."""
        manifest, cuda = device_manifest(**changes), FakeCuda()  # type: ignore[arg-type]
        (entry,) = manifest.engines
        plan_folder = folder / str(len(list(folder.iterdir())))
        write_plans(plan_folder, entry)
        for graph in entry.graphs:
            if graph.name in (plans or {}):
                (plan_folder / entry.files[graph.name]).write_text(json.dumps(plans[graph.name](graph)))
        module = FakeTensorRT(cuda, manifest, rtx=rtx)
        vars(module).update(trt or {})
        engine = TensorRTEngine(plan_folder, entry, cuda.open(), module)
        bundle = Bundle(manifest, engine, entry, None, None)
        return Machine(cuda=cuda, trt=module, manifest=manifest, engine=engine, bundle=bundle)

    return make


def generate(machine: Machine, count: int = 30, **options: Any) -> list[int]:
    """Return the toy's tokens after PROMPT, in rounds that no clock decides."""
    options = {"max_new_tokens": count, "adaptive": False} | options
    tokens: list[int] = machine.bundle.generate(PROMPT, **options).token_ids
    return tokens
