"""Rounds are timed when an engine is opened for the first time on a processor."""

import json

import numpy as np
import pytest

from speccompile.runtime import Bundle, first_times
from speccompile.runtime.first_times import LIMIT_SECONDS, MOST_RUNS, _seconds
from tests.native.native_api import NativeBundle


@pytest.fixture
def records(tmp_path, monkeypatch):
    """Return an empty cache folder, and what is recorded in it of the times of rounds."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    return lambda: sorted((tmp_path / "cache" / "times").glob("*")) if (tmp_path / "cache").exists() else []


@pytest.mark.parametrize("name", ["model_4", "lookup_5", "recycling"])
def test_the_first_generation_of_a_machine_drafts_in_its_first_round(built, records, name):
    case = built(name)
    with Bundle.open(case.path, threads=1) as bundle:
        (file,) = records()
        found = json.loads(file.read_text())["found"]
        width = str(bundle.manifest.tokens + 1)
        assert found["processes"] == 1
        assert found["autoregressive"] > 0
        assert found["windows"][width] > 0
        assert (found["drafting"] > 0) == any(graph.name == "draft" for graph in bundle.manifest.graphs)
        policy = bundle._loop.drafting.policy
        assert policy._model.is_known
        assert not policy._model.autoregressive.is_measured
        prompt = case.prompts()[3]
        assert bundle.generate(prompt, max_new_tokens=8).token_ids == case.reference(prompt, 8)
    before = json.loads(file.read_text())["found"]
    with Bundle.open(case.path, threads=1):
        assert records() == [file]
        assert json.loads(file.read_text())["found"]["processes"] > before["processes"]


@pytest.mark.parametrize("name", ["model_4", "recycling"])
def test_so_does_a_session_in_cpp(built, records, native_library, onnxruntime_library, name):
    case = built(name)
    bundle = NativeBundle(case.path, library=native_library, onnxruntime=onnxruntime_library)
    session, prompt = bundle.session(), case.prompts()[3]
    (file,) = records()
    found = json.loads(file.read_text())["found"]
    assert found.keys() == {"autoregressive", "windows", "drafting", "catch_up", "processes"}
    assert found["processes"] == 1
    assert found["autoregressive"] > 0
    assert found["drafting"] > 0
    assert found["windows"][str(case.bundle.manifest.tokens + 1)] > 0
    (result,) = session.generate([prompt], max_new_tokens=8)
    assert result["token_ids"] == case.reference(prompt, 8)
    bundle.session()
    assert json.loads(file.read_text())["found"]["processes"] > 1


def test_nothing_of_the_measurement_is_left_in_a_drafter_that_learns(built, records):
    case = built("recycling")
    with Bundle.open(case.path, threads=1) as bundle:
        assert records()
        assert bundle.kept
        assert not any(np.any(values) for values in bundle.kept._values().values())


def test_nothing_is_measured_for_a_bundle_that_does_not_draft(built, records):
    with Bundle.open(built("none").path, threads=1):
        assert not records()


def test_fast_rounds_are_repeated_and_slow_ones_are_not():
    ran = []
    ways = [[lambda: ran.append("single")], [lambda: ran.append("window"), lambda: ran.append("draft")]]
    found = _seconds(ways, MOST_RUNS, LIMIT_SECONDS)
    assert [len(way) for way in found] == [1, 2]
    assert all(0 <= seconds < LIMIT_SECONDS for way in found for seconds in way)
    # They take turns: what is cold at first is so for all. And what is timed follows a round of its kind.
    again = ["single", "single", "window", "draft", "window", "draft"]
    assert ran == ["single", "window", "draft"] * 2 + again * (MOST_RUNS - 2)
    ran.clear()
    assert len(_seconds(ways, MOST_RUNS, 0.0)) == 2
    assert ran == ["single", "window", "draft", "single"]


def test_the_time_of_a_round_is_that_behind_rounds_of_its_kind(monkeypatch):
    """Measure by a clock that advances more for a round behind one of another kind."""
    clock, last = [0.0], [""]

    def run(kind, seconds):
        def spend():
            clock[0] += seconds * (1 if last[0] == kind else 1.5)
            last[0] = kind

        return spend

    monkeypatch.setattr(first_times, "clock", lambda *, on_device: lambda: clock[0])
    ways = [[run("single", 1.0)], [run("drafting", 2.0), run("drafting", 3.0)]]
    assert _seconds(ways, MOST_RUNS, LIMIT_SECONDS) == [[1.0], [2.0, 3.0]]
