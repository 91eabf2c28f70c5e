"""`bench` of both commands: the same reports, but for what the clock says."""

import json
import re
import shutil
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from speccompile import native
from speccompile.bundle.hashes import hash_folder, write_hashes
from speccompile.measure.bench.roofline import Bandwidth
from tests.native.two_commands import STEADY

PROMPT_FILES = {
    "nothing": b" \n\n",
    "no json": b'{"prompt": "a"}\n\nhello\n',
    "long": b'{"text": "' + "größe".encode() * 30 + b'"}',
    "both keys": b'{"prompt": "a", "token_ids": [1]}',
    "empty": b'{"prompt": ""}',
    "no ids": b'{"token_ids": []}',
    "no token id": b'{"token_ids": [1, true]}',
    "surrogate": b'{"prompt": "\\ud800"}',
    "no utf-8": b'{"prompt": "a"}\n{"prompt": "\xff"}',
    "question": b'{"question_id": 1, "category": "", "turns": ["a"]}',
    "no turns": b'{"question_id": 1, "category": "a", "turns": []}',
    "no number": b'{"category": "a", "turns": ["a"]}',
    "turn": b'{"question_id": 1, "category": "a", "turns": ["a", ""]}',
}


@pytest.mark.parametrize("name", PROMPT_FILES)
def test_a_wrong_prompts_file_is_refused_alike(both, tmp_path, name):
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(PROMPT_FILES[name])
    assert both.same("bench", "nowhere", "--prompts", file).code == 2
    assert both.same("bench", "nowhere", "--prompts", tmp_path).code == 2


def by_keys(value: Any) -> Any:
    """Return a report without its numbers. Equal numbers and texts are somebody else's to compare."""
    match value:
        case dict():
            return {name: by_keys(each) for name, each in value.items()}
        case list():
            return [by_keys(each) for each in value]
        case bool() | str() | None:
            return value
        case _:
            return type(value).__name__


QUESTIONS = [
    {"question_id": 81, "category": "writing", "turns": ["abcabc", "de"]},
    {"question_id": 101, "category": "rag", "turns": ["efef"], "reference": ["x"]},
    {"prompt": "abc"},
    {"token_ids": [1, 2, 3]},
]
COUNTS = ("new_tokens", "rounds", "drafting_rounds", "mean_accepted", "mean_draft_length")


@pytest.fixture
def bench(both, tmp_path, monkeypatch):
    """Run both commands on a bundle and these prompts. Returns Python's report on each run, and the lines of the tables
    of the reports and of `speccompile-native` itself."""
    bandwidth = Bandwidth(1e9, 1, 1)
    monkeypatch.setattr("speccompile.measure.bench.roofline.measure_bandwidth", lambda threads: bandwidth)

    def run(folder: Path, prompts: list[dict[str, Any]], *more: object):
        file = tmp_path / "prompts.jsonl"
        file.write_text("".join(json.dumps(each) + "\n" for each in prompts))
        words = ("bench", folder, "--prompts", file, "--repeats", 1, "--max-new-tokens", 8, "--json", *STEADY, *more)
        native = both.native(*words)
        assert native.returncode == 0, native.stderr.decode()
        measured = tmp_path / "measured.json"
        measured.write_bytes(native.stdout)
        done = both.python("bench", folder, "--measured", measured, "--json"), both.python(*words)
        assert [each.returncode for each in done] == [0, 0], done[0].stderr.decode()
        tables = [each.stderr.decode().splitlines() for each in (*done, native)]
        return [json.loads(each.stdout) for each in done], tables

    return run


def lines_of(table: list[str]) -> list[str]:
    """Return the lines without numbers, and without those that depend on the measurement."""
    table = table[next(index for index, line in enumerate(table) if " on onnxruntime-cpu" in line) :]
    kept = [line for line in table if not re.match(r"speccompile |bandwidth of|.*: [\d.]+ s$", line)]
    return [" ".join(re.sub(r", an acceptance rate of [\d.]+|[\d.]+", "", line).split()) for line in kept]


def test_bench_reports_the_same(bench, model):
    (ours, theirs), tables = bench(model, QUESTIONS)
    assert {"speccompile", "onnxruntime"} == set(ours["versions"]) < set(theirs["versions"])
    for report in (ours, theirs):
        del report["versions"]
        del report["costs"]["break_even"]["acceptance_rate"]  # which there may be or not
    if not native.library():
        theirs["kernels"] = ours["kernels"]
    assert by_keys(ours) == by_keys(theirs)
    for way in ("speculative", "autoregressive"):
        assert [ours[way][name] for name in COUNTS] == [theirs[way][name] for name in COUNTS]
        for name in ("weight_bytes", "cache_bytes", "bytes_per_token"):
            assert ours["roofline"][way][name] == theirs["roofline"][way][name]
    for name in ("acceptance_by_depth", "prompts", "repeats", "max_new_tokens", "cpus", "equal_prompts", "threads"):
        assert ours[name] == theirs[name]
    assert ours["costs"]["context"] == theirs["costs"]["context"] == ours["roofline"]["context"]
    assert [each["width"] for each in ours["costs"]["verify"]] == [each["width"] for each in theirs["costs"]["verify"]]
    assert 0 < ours["autoregressive"]["host_seconds"] < 1
    assert lines_of(tables[0]) == lines_of(tables[1])


def test_the_program_s_own_table_is_short_and_has_the_report_s_figures(bench, model):
    (report, _), (_, _, table) = bench(model, QUESTIONS)
    lines = table[next(index for index, line in enumerate(table) if " on onnxruntime-cpu" in line) :]
    found = {line[:26].strip(): line[26:].split() for line in lines}
    modes = [report[name] for name in ("speculative", "autoregressive")]
    for title, name, form in (
        ("tokens/s", "tokens_per_second", ".1f"),
        ("tokens/s without prefill", "decode_tokens_per_second", ".1f"),
        ("mean accepted", "mean_accepted", ".2f"),
    ):
        assert found[title] == [format(mode[name], form) for mode in modes]
    assert found["first token ms"] == [f"{mode['first_token_seconds'] * 1e3:.2f}" for mode in modes]
    costs = report["costs"]
    assert found["window width"] == [str(point["width"]) for point in costs["verify"]]
    assert found["verify ms"] == [f"{point['seconds'] * 1e3:.2f}" for point in costs["verify"]]
    speedups = f"speedup {report['speedup']:.2f}, without prefill {report['decode_speedup']:.2f}"
    even = f"speculation breaks even at a mean accepted of {costs['break_even']['mean_accepted']:.2f}"
    assert f"{speedups}; {even}" in lines
    assert f"same tokens on {report['equal_prompts']} of {report['prompts']} prompts" in lines
    assert len(lines) <= 20


def test_bench_of_drafts_that_no_graph_makes(bench, built):
    """Draft by an index, in a tree as large as the chunks that it finds: two go on behind these prompts."""
    asked = built("retrieval")
    prompts = asked.prompts()[2:]
    (ours, theirs), _ = bench(asked.path, [{"token_ids": prompt} for prompt in prompts])
    for name in COUNTS:
        assert ours["speculative"][name] == theirs["speculative"][name]
    assert 0 < ours["speculative"]["mean_draft_length"] < asked.bundle.manifest.tokens
    for name in ("weight_bytes", "cache_bytes", "bytes_per_token"):
        assert ours["roofline"]["speculative"][name] == theirs["roofline"]["speculative"][name]
    assert ours["acceptance_by_depth"] == theirs["acceptance_by_depth"]
    every = [asked.bundle.generate(prompt, max_new_tokens=8, adaptive=False) for prompt in prompts]
    runs = [one for one in every if one.rounds]
    for costs in (ours["costs"], theirs["costs"]):
        by_width = {point["width"]: point["seconds"] for point in costs["verify"]}
        rounds = [[by_width[drafts + 1] + costs["host_seconds"] for drafts in one.draft_lengths] for one in runs]
        rates = [(len(one.token_ids) - 1) / sum(each) for one, each in zip(runs, rounds, strict=True)]
        assert costs["allowed_tokens_per_second"] == pytest.approx(median(rates))


@pytest.mark.parametrize(
    "encoder", [None, {"precision": "int8", "rms_error": 0.02, "same_argmax": 1.0, "kl_divergence": 0.5}]
)
def test_reports_on_both_tell_the_quality_behind_pictures(bench, lookup, tmp_path, encoder):
    folder = shutil.copytree(lookup, tmp_path / "seen")
    proof = json.loads((folder / "proof.json").read_text())
    quality = {"tokens": 40, "same_argmax": 0.975, "kl_divergence": 0.0123}
    told = {} if encoder is None else {"encoder": encoder}
    (name,) = (each["name"] for each in json.loads((folder / "manifest.json").read_text())["engines"])
    proof["images"] = [{"engines": ["another"]}, {"engines": [name], "quality": quality, **told}]
    (folder / "proof.json").write_text(json.dumps(proof))
    write_hashes(folder, hash_folder(folder))
    reports, tables = bench(folder, [{"prompt": "abc"}])
    assert [each["pictures"] for each in reports] == [{**quality, "encoder": encoder}] * 2
    (line,), (same,) = ([line for line in table if "behind synthetic pictures" in line] for table in tables[:2])
    assert line == same


def test_bench_of_a_bundle_without_a_drafter(bench, silent):
    (ours, theirs), tables = bench(silent, [{"token_ids": [1, 2, 3]}])
    assert list(ours) == list(theirs)
    assert {name for name, value in ours.items() if value is None} == {
        name for name, value in theirs.items() if value is None
    }
    assert tables[0][-1] == tables[1][-1] == "the bundle has no drafter: autoregressive only"
    assert "the bundle has no drafter: autoregressive only" in tables[2]


def test_bench_refuses_what_it_does_not_have(both, lookup, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abc"}\n')
    page = both.native("bench", lookup, "--prompts", prompts, "--html", tmp_path / "page.html")
    assert (page.returncode, page.stdout) == (2, b"")
    assert page.stderr.decode().endswith("but this command writes no pages\nhint: `speccompile bench` does\n")
    prompts.write_text('{"prompt": "abc"}\n{"prompt": "' + "a" * 96 + '"}\n{"token_ids": [99999]}\n')
    assert "prompt 2: the prompt has 9" in both.same("bench", lookup, "--prompts", prompts).err


def test_questions_are_asked_in_the_chat_template(bench, chatty, both, tmp_path):
    """Ask with the messages before: the template writes their number."""
    (ours, theirs), tables = bench(chatty, QUESTIONS[:2])
    assert ours["conversation"] == theirs["conversation"] == "chat_template"
    assert "questions are written as chat template" in tables[0]
    for way in ("speculative", "autoregressive"):
        assert [ours[way][name] for name in COUNTS] == [theirs[way][name] for name in COUNTS]
    prompts = tmp_path / "long.jsonl"
    prompts.write_text(json.dumps({"question_id": 1, "category": "a", "turns": ["a" * 40, "b"]}) + "\n")
    said = both.same("bench", chatty, "--prompts", prompts, "--max-new-tokens", 80)
    assert (said.code, "the answers before turn 2 may have" in said.err) == (2, True)
