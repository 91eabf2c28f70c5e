"""One run over all questions: in this process on a toy bundle, and in another one that may end in any method."""

import json
import signal
from dataclasses import replace
from time import perf_counter
from unittest.mock import patch

import pytest

from speccompile.bundle.prompts import Question
from speccompile.errors import BundleError, EngineError
from speccompile.measure.bench.groups import OVERALL
from speccompile.measure.compare import subprocess_job
from speccompile.measure.compare.dropping import FREEDOM, Leader
from speccompile.measure.compare.limit import TimeIsUpError, TimeLimit
from speccompile.measure.compare.passes import MeasuredPass, PassRequest, interleaved, measure_method, run_pass
from tests.light.fake_bundle import toy_manifest, toy_tokenizer, write_toy_bundle
from tests.light.toy_engine import ToyEngine
from tests.light.toy_models import autoregressive

QUESTIONS = (Question(("ab", "cd"), "writing"), Question(("ef",), "rag"))


def job(bundle, baseline=None, **changes):
    options = {"max_new_tokens": 12, "adaptive": False, "seed": None}
    given = {"engine": "onnxruntime-cpu", "threads": None, "questions": QUESTIONS, "number": 1, "options": options}
    return PassRequest(str(bundle), baseline and str(baseline), **(given | changes))


@pytest.fixture
def opened(tmp_path):
    """Return folders of toy bundles with and without a drafter, and the engines that were opened for them."""
    engines = []

    def engine(folder, *_, **__):
        engines.append(ToyEngine(toy_manifest(speculative=folder.name == "toy")))
        return engines[-1]

    write_toy_bundle(tmp_path / "toy", chat=False)
    write_toy_bundle(tmp_path / "plain", chat=False, speculative=False)
    with patch("speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", engine):
        yield tmp_path, engines


def test_a_method_runs_beside_the_bundle_without_a_drafter(opened):
    folder, engines = opened
    found = run_pass(job(folder / "toy", folder / "plain"))
    assert [case.group for case in found.cases] == ["mt_bench", "rag"]
    for case in found.cases:
        assert len(case.speculative) == len(case.autoregressive) == 1
        assert case.difference() is None
    (first, _), (alone,) = found.cases[0].autoregressive[0], found.cases[1].autoregressive[0]
    assert first.generation.token_ids == autoregressive(toy_tokenizer().encode("ab").ids, 12)
    assert alone.generation.mode == "autoregressive"
    ours, plain = engines
    assert set(plain.runs) == {"verify"}
    assert set(ours.runs) == {"verify", "draft"}
    assert (found.beside, found.conversation, found.manifest.tokens) == ("none", "plain", 4)
    assert sorted(found.costs.verify) == [1, 2, 3, 4, 5]
    assert found.memory == ours.memory()
    assert MeasuredPass.from_json(json.loads(json.dumps(found.to_json())), "x") == found


def test_what_is_learned_is_kept_from_question_to_question(opened, monkeypatch):
    folder, engines = opened
    resets = []
    monkeypatch.setattr("speccompile.runtime.Bundle.reset", lambda _: resets.append(len(engines[0].runs)))
    run_pass(job(folder / "toy", folder / "plain"))
    warm_up = resets[-1]
    assert resets == [warm_up]
    assert 0 < warm_up < len(engines[0].runs)


def test_by_itself_and_without_a_drafter(opened):
    folder, _ = opened
    assert run_pass(job(folder / "toy")).beside == "own"
    plain = run_pass(job(folder / "plain", questions=(Question(("ab",)),)))
    assert (plain.cases[0].speculative, plain.conversation, plain.costs.draft) == ((), None, None)


def test_tasks_take_turns_and_results_keep_the_order_of_the_file(opened):
    folder, _ = opened
    groups = ("writing", "writing", "qa", "rag", "qa")
    questions = tuple(Question((f"a{index}",), group) for index, group in enumerate(groups))
    assert interleaved(questions) == [0, 2, 3, 1, 4]
    assert interleaved([Question((text,)) for text in "abc"]) == [0, 1, 2]
    found = run_pass(job(folder / "toy", folder / "plain", questions=questions))
    assert [(case.number, case.group) for case in found.cases] == [
        (1, "mt_bench"), (2, "mt_bench"), (3, "qa"), (4, "rag"), (5, "qa"),
    ]  # fmt: skip
    prompts = [case.speculative[0][0].generation.prompt_tokens for case in found.cases]
    assert prompts == [len(toy_tokenizer().encode(f"a{index}").ids) for index in range(5)]


def test_a_pass_ends_when_it_cannot_win_any_more(opened):
    folder, _ = opened
    asked = job(folder / "toy", folder / "plain", questions=tuple(Question((text,)) for text in "abcdefgh"))
    best = dict.fromkeys(range(1, 9), (1000000000.0, 1.0))
    leaders = (Leader(asked.questions[0].group, "best", best), Leader(OVERALL, "best", best))
    told = []
    found = run_pass(replace(asked, leaders=leaders), told.append)
    assert (len(found.cases), found.costs) == (FREEDOM + 1, None)
    assert (found.dropped.prompts, found.dropped.best) == (FREEDOM + 1, "best")
    assert [each["prompts"] for each in told] == list(range(1, FREEDOM + 2))
    assert told[-1] == found.figures()
    assert MeasuredPass.from_json(json.loads(json.dumps(found.to_json())), "x") == found
    sent = json.loads(json.dumps(replace(asked, leaders=leaders).to_json()))
    assert PassRequest.from_json(sent).leaders == leaders
    assert len(run_pass(asked).cases) == 8


def test_what_another_process_raises_is_raised_here(tmp_path, monkeypatch):
    """Raise in a shell's background job too, whose processes inherit that Ctrl-C is ignored: none is killed."""
    ended, stop = [], subprocess_job._stop
    monkeypatch.setattr(subprocess_job, "_stop", lambda process: (stop(process), ended.append(process.returncode)))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(BundleError, match="nothing") as caught:
            measure_method(job(tmp_path / "nothing"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught.value.hint
    assert ended == [-signal.SIGINT]


def test_an_interrupt_that_comes_in_a_destructor_ends_the_process(tmp_path, monkeypatch):
    """Stop it while a destructor runs, where Python drops the exception: it ends by the signal, and is not killed."""
    (tmp_path / "sleeping_job.py").write_text("""
import time
from speccompile.measure.compare.subprocess_job import serve

def act(job, tell):
    class Last:
        def __del__(self):
            tell({"begun": True})
            time.sleep(10)
    Last()
    time.sleep(60)

serve(act)
""")
    monkeypatch.syspath_prepend(str(tmp_path))
    ended, stop = [], subprocess_job._stop
    monkeypatch.setattr(subprocess_job, "_stop", lambda process: (stop(process), ended.append(process.returncode)))

    def interrupt(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        subprocess_job.run_apart("sleeping_job", {}, "a job", interrupt)
    assert ended == [-signal.SIGINT]


def test_a_process_ends_when_the_time_is_up(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    start = perf_counter()
    with pytest.raises(TimeIsUpError):
        measure_method(job(tmp_path / "toy"), limit=TimeLimit(0.1))
    assert perf_counter() - start < 30


@pytest.mark.parametrize(
    ("script", "ending"), [("exit 3", "ended with exit code 3"), ("kill -9 $$", "was ended by SIGKILL")]
)
def test_a_process_that_ends_without_a_result(tmp_path, monkeypatch, script, ending):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(EngineError, match=f"measuring toy: the process {ending}, expected an answer"):
        measure_method(job(tmp_path / "toy"))
