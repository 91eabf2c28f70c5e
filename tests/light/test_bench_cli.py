"""`speccompile bench` on toy bundles: what goes where, and what is refused."""

import json
from dataclasses import asdict
from unittest.mock import patch

import pytest

from speccompile.cli import main
from speccompile.measure.bench.roofline import Bandwidth
from speccompile.measure.bench.weights import WeightReads
from tests.light.bench_example import AUTOREGRESSIVE, SPECULATIVE
from tests.light.fake_bundle import toy_bundle, toy_manifest, write_toy_bundle
from tests.light.toy_engine import STATIC, ToyEngine
from tests.light.toy_models import autoregressive, path_lengths

TEMPLATE = "questions are written as chat template"


@pytest.fixture
def bench(tmp_path, capsys, monkeypatch):
    """Run `speccompile bench` on a toy bundle and these prompts; returns exit code, stdout and stderr."""
    monkeypatch.setattr(
        "speccompile.measure.bench.roofline.measure_bandwidth", lambda threads: Bandwidth(1e9, threads, 1)
    )
    monkeypatch.setattr("speccompile.measure.bench.roofline.weight_reads", lambda _: WeightReads(1000, 10))

    def invoke(prompts, *arguments, engine=ToyEngine, chat=True, **changes):
        folder, file = tmp_path / "toy", tmp_path / "prompts.jsonl"

        def opened(*_, **__):
            return engine(toy_manifest(**changes))

        write_toy_bundle(folder, chat=chat, **changes)
        file.write_text("\n".join(map(json.dumps, prompts)))
        with (
            patch("speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", opened),
            pytest.raises(SystemExit) as leaving,
        ):
            main(["bench", str(folder), "--prompts", str(file), "--max-new-tokens", "20", *map(str, arguments)])
        return leaving.value.code, *capsys.readouterr()

    return invoke


def table(text):
    """Return the lines behind the progress, if there is any."""
    lines = text.splitlines()
    return lines[next(index for index, line in enumerate(lines) if line.startswith("demo on ")) :]


def rows(lines):
    return {line[:26].strip(): line[26:].split() for line in lines if line}


def test_the_table_goes_to_stdout_and_progress_to_stderr(bench):
    code, out, err = bench([{"prompt": "def"}, {"token_ids": [7, 8]}], "--threads", "2")
    assert code == 0
    assert err.splitlines()[1:4] == ["warm-up ...", "prompt 1 of 2 ...", "prompt 2 of 2 ..."]
    assert "same tokens on" not in err
    lines = out.splitlines()
    assert lines[0].startswith("demo on onnxruntime-cpu, CPUs: ")
    assert lines[1].startswith("2 prompts, up to 20 new tokens, 3 repeats; medians")
    assert lines[2] == "greedy decoding at temperature 0, verified by exact, adaptive draft length"
    found = rows(lines)
    assert lines[-1] == "same tokens on 2 of 2 prompts"
    assert found[""] == ["speculative", "autoregressive"]
    assert (found["mean accepted"][1], found["new tokens"]) == ("1.00", ["40", "40"])
    assert found["draft at depth"] == ["1", "2", "3", "4"]
    assert found["window width"] == ["1", "2", "3", "4", "5", "6", "7", "8", "16"]
    assert found["over a window of one"][0] == "1.00"
    for words in (
        "of context",
        "speculation breaks even at a mean accepted of",
        "of it was reached",
        "memory: 1.0 GB/s",
    ):
        assert words in out
    assert any(line.startswith("opened in 0.") for line in lines)
    assert any("speccompile 0." in line and "onnxruntime 1." in line for line in lines)


def test_json_is_the_report(bench):
    code, out, err = bench([{"prompt": "def"}], "--json", "--repeats", "1", "--engine", "other")
    printed = json.loads(out)
    assert code == 0
    assert "same tokens on 1 of 1 prompts" in err
    assert list(printed) == [
        "bundle", "exact", "method", "decoding", "temperature", "seed", "limits", "engine", "kernels", "threads",
        "cpus", "load_seconds", "memory", "prompts", "conversation", "max_new_tokens", "repeats", "full_prompts",
        "draft_length", "speculative", "autoregressive", "speedup", "decode_speedup", "acceptance_by_depth",
        "groups", "costs", "roofline", "pictures", "equal_prompts", "differences", "versions",
    ]  # fmt: skip
    running = toy_bundle().engine
    assert (printed["engine"], printed["threads"], printed["repeats"]) == ("other", running.threads, 1)
    assert printed["memory"] == running.memory()
    assert list(printed["speculative"]) == list(printed["autoregressive"])
    assert list(printed["acceptance_by_depth"][0]) == ["depth", "rounds", "accepted", "accepted_after_previous"]
    assert {"speccompile", "python", "numpy", "onnxruntime", "tokenizers"} == set(printed["versions"])
    assert (printed["conversation"], printed["groups"]) == (None, [])
    assert printed["costs"]["context"] == 4 + 10  # <s> and three letters, in the middle of twenty tokens
    assert printed["roofline"]["context"] == 14


def test_every_key_is_in_the_help(bench, capsys):
    printed = json.loads(bench([{"prompt": "def"}], "--json")[1])
    keys = {*printed, *printed["speculative"], *printed["costs"], *printed["roofline"], *printed["costs"]["break_even"]}
    keys |= {*printed["roofline"]["speculative"], *printed["roofline"]["bandwidth"], *printed["costs"]["verify"][0]}
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    told = capsys.readouterr().out
    assert [key for key in keys if key not in told] == []


def test_a_bundle_without_drafter_says_so(bench):
    code, out, _ = bench([{"prompt": "def"}], speculative=False)
    assert code == 0
    assert table(out)[-1] == "the bundle has no drafter: autoregressive only"
    assert rows(table(out))[""] == ["autoregressive"]
    printed = json.loads(bench([{"prompt": "def"}], "--json", speculative=False)[1])
    missing = ("speculative", "speedup", "decode_speedup", "equal_prompts", "draft_length")
    assert [printed[key] for key in missing] == [None] * 5
    costs = printed["costs"]
    assert (costs["draft_seconds"], costs["break_even"], costs["reached"]) == (None, None, None)
    assert printed["roofline"]["speculative"] is None


QUESTIONS = [
    {"question_id": 81, "category": "writing", "turns": ["ab", "cd"]},
    {"question_id": 101, "category": "rag", "turns": ["ef"], "reference": ["x"]},
]


def test_questions_are_reported_by_group(bench):
    code, out, err = bench(QUESTIONS, "--json")
    printed = json.loads(out)
    assert code == 0
    assert [(each["group"], each["prompts"]) for each in printed["groups"]] == [
        ("mt_bench", 1), ("rag", 1), ("overall", 2),
    ]  # fmt: skip
    assert printed["conversation"] == "chat_template"
    assert printed["autoregressive"]["new_tokens"] == 60
    assert TEMPLATE in table(err)
    assert rows(table(err))["overall"][0] == "2"
    plain = bench(QUESTIONS, "--json", chat=False)
    assert json.loads(plain[1])["conversation"] == "plain"
    assert TEMPLATE not in plain[2]


def test_a_page_is_written(bench, tmp_path):
    page = tmp_path / "bench.html"
    code, out, err = bench([{"prompt": "def"}], "--html", page)
    assert code == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert table(out)[-1] == "same tokens on 1 of 1 prompts"
    code, out, err = bench([{"prompt": "def"}], "--html", tmp_path / "nowhere" / "bench.html")
    assert (code, out) == (2, "")
    assert "nowhere/bench.html', expected a file in a folder that exists: there is no folder" in err
    assert "warm-up" not in err


class WrongEngine(ToyEngine):
    """Gives another bonus token where there are drafts, as a kernel does whose sums depend on the window."""

    def _verify_row(self, row, widths):
        super()._verify_row(row, widths)
        if widths["logit_rows"] > 1:
            path, n_path = self.host_view("path", (1, widths["window"] + 1)), self.host_view("n_path", (1,))[0]
            path[row, n_path] = (path[row, n_path] + 1) % 256


def test_other_tokens_fail_an_exact_bundle_and_no_other(bench):
    prompts = [{"token_ids": [7, 8]}, {"token_ids": [9]}]
    code, out, err = bench(prompts, "--fixed-draft-length", "--json", engine=WrongEngine)
    assert (code, json.loads(out)["draft_length"]) == (1, "fixed")
    bonus = path_lengths([7, 8], 20, 4)[0]
    right = autoregressive([7, 8], 20)[bonus]
    assert f"prompt 1: new token {bonus} is {right + 1} speculatively and {right} autoregressively" in err
    assert err.splitlines()[-3:] == [
        "error: expected the same tokens both ways, received others on 2 of 2 prompts: 1, 2",
        "hint: `speccompile prove` shows by what margin",
        "help: speccompile explain SC807",
    ]
    code, out, err = bench(prompts, "--json", engine=WrongEngine, exact=False, method="typical", plan={})
    assert (code, "same tokens on 0 of 2 prompts" in err) == (0, True)
    assert "verified by typical: APPROXIMATE, the output may change" in err
    assert json.loads(out)["exact"] is False


def test_sampling_has_a_seed_and_both_ways_the_same_tokens(bench):
    prompts = [{"token_ids": [7, 8]}, {"token_ids": [9]}]
    arguments = ["--temperature", "1.5", "--top-k", "3", "--repeats", "1"]
    code, out, _ = bench(prompts, *arguments, sampling=True)
    assert code == 0
    chosen = "sampling decoding at temperature 1.5, seed 0, top_k 3, verified by exact, adaptive draft length"
    assert table(out)[2] == chosen
    assert table(out)[-1] == "same tokens on 2 of 2 prompts"
    for seed in (3, 4):
        printed = json.loads(bench(prompts, *arguments, "--seed", str(seed), "--json", sampling=True)[1])
        assert [printed[key] for key in ("decoding", "temperature", "seed", "limits", "equal_prompts")] == [
            "sampling", 1.5, seed, {"top_k": 3}, 2,
        ]  # fmt: skip
    assert json.loads(bench(prompts, "--seed", "3", "--json", sampling=True)[1])["seed"] is None
    assert "top_k 3, but the bundle was compiled for greedy decoding" in bench(prompts, *arguments)[2]


def test_drawn_drafts_give_other_tokens_by_right(bench):
    prompts = [{"token_ids": [7, 8]}, {"token_ids": [9]}]
    code, out, err = bench(prompts, "--temperature", "1", "--json", sampling=True, sample=True)
    told = "drafts are drawn: the two ways give other tokens, by the same probabilities"
    assert (code, table(err)[-1]) == (0, told)
    assert (json.loads(out)["equal_prompts"], json.loads(out)["differences"]) == (None, [])
    assert "same tokens on 2 of 2 prompts" in bench(prompts, sampling=True, sample=True)[1]  # at temperature 0


@pytest.mark.parametrize("changes", [{"tree": "static"}, {"tree": "dynamic"}, {"fused": True}, {"batch_size": 3}])
def test_all_kinds_of_bundles(bench, changes):
    code, out, _ = bench([{"token_ids": [7, 8]}], "--fixed-draft-length", "--json", "--repeats", 1, **changes)
    printed = json.loads(out)
    shares = [depth["accepted"] for depth in printed["acceptance_by_depth"]]
    depth = toy_manifest(**changes).depth
    assert (code, printed["equal_prompts"], len(shares)) == (0, 1, depth)
    assert shares == sorted(shares, reverse=True)
    assert printed["costs"]["break_even"]["width"] == toy_manifest(**changes).tokens + 1
    if changes == {"tree": "static"}:
        assert (depth, printed["costs"]["break_even"]["acceptance_rate"]) == (STATIC.depth, None)
        assert shares[-1] > 0


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Return a toy bundle's folder, and a file as `speccompile-native bench --json` writes it."""
    monkeypatch.setattr("speccompile.measure.bench.roofline.weight_reads", lambda _: WeightReads(1000, 10))
    write_toy_bundle(tmp_path / "toy")
    runs = {
        name: [[asdict(one) | {"mean_accepted": one.acceptance_length} for one in (example, example)]] * 2
        for name, example in (("speculative", SPECULATIVE), ("autoregressive", AUTOREGRESSIVE))
    }
    for each in runs.values():
        for one in each[0]:
            del one["acceptance_length"]
            one["round_seconds"] = [0.1] * one["rounds"]
    data = {
        "bundle": "demo", "exact": True, "engine": "onnxruntime-cpu", "kernels": "avx2", "threads": 3, "cpus": 4,
        "load_seconds": 0.5, "memory": {"resident": 1},
        "bandwidth": {"bytes_per_second": 1e9, "threads": 3, "buffer_bytes": 1},
        "options": {
            "sampling": {"temperature": 0.0, "seed": None}, "max_new_tokens": 7, "conversation": "plain",
            "adaptive": True,
        },
        "costs": {
            "context": 9, "verify": [{"width": 1, "seconds": 0.1}, {"width": 5, "seconds": 0.15}],
            "draft_seconds": 0.05, "host_seconds": 0.0,
        },
        "versions": {"speccompile": "0.1.0", "onnxruntime": "1.2.3"},
        "prompts": [{"group": "rag", **runs}],
    }  # fmt: skip

    def report(*arguments, **changes):
        file = tmp_path / "measured.json"
        file.write_text(json.dumps(data | changes))
        with pytest.raises(SystemExit) as leaving:
            main(["bench", str(tmp_path / "toy"), "--measured", str(file), *map(str, arguments)])
        return leaving.value.code

    return report


def test_a_measurement_of_the_program_is_reported_on(measured, capsys, tmp_path):
    assert measured("--json", "--html", tmp_path / "page.html") == 0
    printed = json.loads(capsys.readouterr().out)
    told = ("kernels", "threads", "cpus", "load_seconds", "repeats", "conversation", "draft_length")
    assert [printed[name] for name in told] == ["avx2", 3, 4, 0.5, 2, "plain", "adaptive"]
    assert printed["versions"] == {"speccompile": "0.1.0", "onnxruntime": "1.2.3"}
    assert (printed["speedup"], printed["equal_prompts"]) == (pytest.approx(2), 1)
    assert printed["costs"]["break_even"]["mean_accepted"] == pytest.approx((0.15 + 0.05) / 0.1)
    assert printed["roofline"]["bandwidth"]["threads"] == 3
    assert [each["group"] for each in printed["groups"]] == ["rag", "overall"]
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert measured(bandwidth=None) == 0
    assert "GB/s" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "changes", "told"),
    [
        (["--threads", 2, "--fixed-draft-length"], {}, "received --threads, --fixed-draft-length beside --measured"),
        ([], {"bundle": "another"}, "received a measurement of the bundle 'another', expected one of 'demo'"),
        ([], {"engine": "another"}, "the bundle has no engine 'another'"),
        ([], {"prompts": None}, "it has no list of prompts"),
        ([], {"prompts": [{"group": "rag"}]}, "expected a measurement: KeyError: 'speculative'"),
    ],
)
def test_measurements_that_are_refused(measured, capsys, arguments, changes, told):
    assert measured(*arguments, **changes) == 2
    out, err = capsys.readouterr()
    assert told in err
    assert out == ""


def test_prompts_that_are_refused(bench, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["bench", "toy"])
    assert leaving.value.code == 2
    assert "Missing option '--prompts'" in capsys.readouterr().err
    code, out, err = bench([{"text": "def"}])
    assert (code, out) == (2, "")
    assert 'prompts.jsonl, line 1: received {"text": "def"}' in err
