"""scripts/peers/run.py without any peer: what it chooses, converts and compares."""

import json
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scripts.figures.tables import long_contexts, peers

SCRIPTS = Path(__file__).parents[2] / "scripts" / "peers"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    for name in ("common", "table", "run"):  # of whoever used the name before
        monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module("run")


def options(tmp_path: Path, **changed: Any) -> Namespace:
    asked = {"bundle": [], "model": tmp_path / "model", "folder": tmp_path, "columns": ["4-bit"], "threads": [1, 2]}
    asked |= {"drafter": None, "draft_tokens": 3}
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


def test_figures_keep_the_fastest_peer_of_each_speed_and_other_processors(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = run.choose(options(tmp_path, threads=[1], forms=["int4", "Q4_0", "Q8_0"], columns=["4-bit", "8-bit"]))
    for case, speed, first in zip(cases, (6, 8, 5), (2, 1, 1), strict=True):
        case.measured = measured(speed, first)
    cases[0].measured[0]["verify_milliseconds"] = {"1": 2.0, "5": 3.0}
    file = tmp_path / "docs" / "figures" / "peers.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"processors": {"another": {"date": "2026-01-01"}}}))
    started: list[Any] = []
    monkeypatch.setattr(run.subprocess, "run", lambda line, **_: started.append(line[1:]))
    run.write_figures(cases, 5, tmp_path)
    kept = json.loads(file.read_text())["processors"]
    (mine,) = [kept[name] for name in kept if name != "another"]
    assert (len(kept), mine["rounds"], started) == (2, 5, [["-m", "scripts.figures"]])
    assert mine["rows"] == [
        {
            "column": "4-bit", "threads": 1, "window_of_five": 1.5,
            "tokens_per_second": {"ours": 6, "best": 8, "peer": "llama_cpp: Q4_0"},
            "prefill_tokens_per_second": {"ours": 64.0, "best": 128.0, "peer": "llama_cpp: Q4_0"},
        }
    ]  # fmt: skip
    shown = peers({"processors": {"mine": mine}})
    assert "| 4-bit, 1 | 6 / 8 llama.cpp | 0.75 | 64 / 128 llama.cpp | 0.50 | 1.50 |" in shown


def test_speculation_is_compared_with_the_autoregression_and_speculation_of_peers(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(run.Case, "run", lambda case, *words: asked.append(words[4:]) or "")
    cases = run.choose(options(tmp_path, threads=[1], drafter=tmp_path / "small"))
    assert [(case.title, case.drafts) for case in cases] == [
        ("speccompile: int4", 0), ("speccompile: int4, 3 drafts", 3),
        ("llama_cpp: Q4_0", 0), ("llama_cpp: Q4_0, 3 drafts", 3),
    ]  # fmt: skip
    assert len({case.folder for case in cases}) == 4, "what is converted for a pair has a folder of its own"
    with pytest.raises(FileNotFoundError, match="unfinished"):  # nothing was written
        run.convert(cases[1], tmp_path / "model", tmp_path / "small")
    assert asked == [("--drafter", tmp_path / "small", "--draft-tokens", 3)]
    for case, speed, tokens in zip(cases, (10, 30, 12, 15), ([7, 8], [7, 8], [5, 6], [5, 9]), strict=True):
        case.measured = [one | {"token_ids": tokens, "tokens_a_round": 2.5} for one in measured(speed, 1)]
    lines = [line.strip() for line in run.render(cases, run.OURS, ["4-bit"]).splitlines()]
    assert lines[-7:-2] == [
        "prefill: ours 1.00x the best peer's (llama_cpp: Q4_0)",
        "speccompile: int4, 3 drafts: 30.0 tokens/s, 2.50 tokens a round, 3.00x its own autoregression, "
        "the same tokens in 1 of 1",
        "llama_cpp: Q4_0, 3 drafts: 15.0 tokens/s, 2.50 tokens a round, 1.25x its own autoregression, "
        "the same tokens in 0 of 1",
        "speculation: ours 2.50x the best peer's autoregression (llama_cpp: Q4_0)",
        "speculation: ours 2.00x the best peer's speculation (llama_cpp: Q4_0, 3 drafts)",
    ]  # fmt: skip
    assert "tokens/s: ours 0.83x the best peer's (llama_cpp: Q4_0)" in lines, "of autoregression alone"


def test_long_contexts_are_measured_in_turns_and_shown_beside_float_caches(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "long_contexts", raising=False)
    program, asked = import_module("long_contexts"), []

    def once(case: Any, model: Path, seed: int, *more: object) -> list[dict[str, Any]]:
        asked.append((more[1], case.title))
        case.measured = measured({"float32": 4, "F16": 6}.get(case.name.split()[1], 8), float(str(more[1])) / 100)
        return case.measured

    monkeypatch.setattr(run.Case, "measured_once", once)
    monkeypatch.setattr(program, "prepare", lambda *_: None)
    kept: list[Any] = []
    monkeypatch.setattr(program, "keep_figures", lambda name, facts: kept.extend((name, facts)))
    words = ["long_contexts.py", str(tmp_path), str(tmp_path), "--contexts", "50", "100", "--rounds", "1", "--write"]
    monkeypatch.setattr(sys, "argv", words)
    program.main()
    forms = [name for context, name in asked if context == 50]
    assert asked == [(context, name) for context in (50, 100) for name in forms]
    assert forms == [
        "speccompile: int4, float32 caches", "speccompile: int4, int8 caches", "speccompile: int4, int8/int4 caches",
        "openvino: int4, group 128, head too, its default caches", "onnxruntime: int4, block 128, its default caches",
        "llama_cpp: Q4_0, F16 caches", "llama_cpp: Q4_0, Q8_0 caches",
    ]  # fmt: skip
    name, facts = kept
    assert (name, facts["rounds"], facts["threads"]) == ("long", 1, 1)
    found = {"date": "2026-01-01", **facts}
    shown = long_contexts({"processors": {"mine": found}})
    assert "| 50, speccompile, int4, int8 caches | 8.0 | 2.00 | 0.5 s | 2 MB |" in shown
    assert "| 100, llama.cpp, Q4_0, F16 caches | 6.0 | 1.50 | 1.0 s | 2 MB |" in shown
    assert long_contexts({"processors": {}}) == ""
