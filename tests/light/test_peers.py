"""scripts/peers/run.py without any peer: what it chooses, converts and compares."""

import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "peers"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    for name in ("common", "table", "run"):  # of whoever used the name before
        monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module("run")


def options(tmp_path: Path, **changed: Any) -> Namespace:
    asked = {"bundle": [], "model": tmp_path / "model", "folder": tmp_path, "columns": ["4-bit"], "threads": [1, 2]}
    return Namespace(**asked | {"peers": ["speccompile", "llama_cpp"], "forms": ["int4", "Q4_0"]} | changed)


def measured(speed: float, first: float) -> list[dict[str, Any]]:
    memory = {"resident": 3.0, "anonymous": 2.0, "peak": 4.0}
    told = {"prefill_tokens_per_second": 128 / first, "first_token_seconds": first, "tokens_per_second": speed}
    return [{"version": "1", "cpus_busy": 1.0, "load_seconds": 0.5, "memory_megabytes": memory, "token_ids": []} | told]


def test_forms_that_were_asked_for_run_with_each_number_of_threads(run: ModuleType, tmp_path: Path) -> None:
    cases = run.choose(options(tmp_path))
    assert [(case.title, case.threads) for case in cases] == [
        ("speccompile: int4", 1), ("speccompile: int4", 2), ("llama_cpp: Q4_0", 1), ("llama_cpp: Q4_0", 2),
    ]  # fmt: skip


def test_a_model_is_converted_once_for_those_that_share_it(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refused(case: Any, *words: object) -> str:
        asked.append((case.title, words[0]))
        case.failed = "no memory"
        return ""

    monkeypatch.setattr(run.Case, "run", refused)
    cases = run.choose(options(tmp_path))
    run.prepare(cases, tmp_path / "model")
    assert asked == [("speccompile: int4", "prepare"), ("llama_cpp: Q4_0", "prepare")]
    assert [case.failed for case in cases] == ["no memory"] * 4


def test_ratios_are_of_cases_with_equal_threads(run: ModuleType, tmp_path: Path) -> None:
    cases = run.choose(options(tmp_path))
    for case, speed, first in zip(cases, (6, 9, 4, 5), (2, 1, 1, 1), strict=True):
        case.measured = measured(speed, first)
    lines = run.render(cases, run.OURS, ["4-bit"]).splitlines()
    assert [line.split("  ")[0] for line in lines if "thread" in line] == ["4-bit, 1 thread", "4-bit, 2 threads"]
    assert [line.strip() for line in lines if "the best peer's" in line] == [
        "tokens/s: ours 1.50x the best peer's (llama_cpp: Q4_0)",
        "prefill: ours 0.50x the best peer's (llama_cpp: Q4_0)",
        "tokens/s: ours 1.80x the best peer's (llama_cpp: Q4_0)",
        "prefill: ours 1.00x the best peer's (llama_cpp: Q4_0)",
    ]
