"""`speccompile bench`: what it counts, on toy bundles; what it computes, on generations written by hand."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from speccompile.bench import Case, make_report, measure, write_table
from speccompile.bench.measure import Difference
from speccompile.bench.report import Depth
from speccompile.cli import main
from speccompile.errors import PromptError, UsageError
from speccompile.runtime import Generation
from tests.light.fake_bundle import toy_bundle, toy_manifest, write_toy_bundle
from tests.light.toy_engine import STATIC, ToyEngine
from tests.light.toy_models import autoregressive, path_lengths

PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]

SPECULATIVE = Generation(
    text=None,
    token_ids=[1, 2, 3, 4, 5, 6, 7],
    prompt_tokens=3,
    rounds=3,
    mean_accepted=2.0,
    seconds=0.7,
    tokens_per_second=10.0,
    finish_reason="length",
    mode="speculative",
    engine="onnxruntime-cpu",
    prefill_seconds=0.1,
    verify_seconds=0.3,
    draft_seconds=0.2,
    path_lengths=[5, 2, 1],
)
AUTOREGRESSIVE = replace(
    SPECULATIVE,
    rounds=6,
    mode="autoregressive",
    seconds=1.4,
    tokens_per_second=5.0,
    prefill_seconds=0.2,
    draft_seconds=0.0,
    path_lengths=[1] * 6,
)


def report_of(*pairs, bundle=None):
    cases = [Case(number, (ours,), (theirs,)) for number, (ours, theirs) in enumerate(pairs, 1)]
    return make_report(bundle or toy_bundle(), cases, threads=2, max_new_tokens=7)


@pytest.fixture
def bench(tmp_path, capsys):
    """Run `speccompile bench` on a toy bundle and these prompts; returns exit code, stdout and stderr."""

    def invoke(prompts, *arguments, engine=ToyEngine, **changes):
        folder, file = tmp_path / "toy", tmp_path / "prompts.jsonl"
        write_toy_bundle(folder, **changes)
        file.write_text("\n".join(map(json.dumps, prompts)))
        with (
            patch("speccompile.runtime.onnxruntime.OnnxRuntimeEngine", lambda *_: engine(toy_manifest(**changes))),
            pytest.raises(SystemExit) as leaving,
        ):
            main(["bench", str(folder), "--prompts", str(file), "--max-new-tokens", "20", *arguments])
        return leaving.value.code, *capsys.readouterr()

    return invoke


def test_both_ways_run_in_turns_after_a_warm_up():
    bundle = toy_bundle()
    with patch.object(bundle, "generate", wraps=bundle.generate) as generate:
        cases = measure(bundle, PROMPTS[:2], max_new_tokens=5, repeats=2)
    ways = [call.kwargs["autoregressive"] for call in generate.call_args_list]
    assert ways == [False, True, True, False, False, True, False, True, True, False]
    assert [call.args[0] for call in generate.call_args_list] == [PROMPTS[0]] * 6 + [PROMPTS[1]] * 4
    assert [case.number for case in cases] == [1, 2]
    assert {one.mode for case in cases for one in case.speculative} == {"speculative"}
    assert {one.mode for case in cases for one in case.autoregressive} == {"autoregressive"}
    assert all(len(case.speculative) == len(case.autoregressive) == 2 for case in cases)


def test_counts_are_those_of_the_toy_models():
    bundle = toy_bundle(tokens=3)
    report = make_report(
        bundle, measure(bundle, PROMPTS, max_new_tokens=25, repeats=2), threads=None, max_new_tokens=25
    )
    lengths = [length for prompt in PROMPTS for length in path_lengths(prompt, 25, 3)]
    assert (report.speculative.rounds, report.speculative.new_tokens) == (len(lengths), 75)
    assert (report.autoregressive.rounds, report.autoregressive.new_tokens) == (72, 75)
    assert report.speculative.mean_accepted == 72 / len(lengths)
    assert report.autoregressive.mean_accepted == 1.0
    assert [depth.accepted for depth in report.acceptance_by_depth] == [
        sum(length > depth for length in lengths) / len(lengths) for depth in (1, 2, 3)
    ]
    assert (report.prompts, report.repeats, report.equal_prompts, report.differences) == (3, 2, 3, ())


def test_medians_ratios_and_shares():
    slow = replace(AUTOREGRESSIVE, seconds=2.8, tokens_per_second=2.5)
    report = report_of((SPECULATIVE, AUTOREGRESSIVE), (SPECULATIVE, slow), (SPECULATIVE, AUTOREGRESSIVE))
    ours, theirs = report.speculative, report.autoregressive
    assert (ours.tokens_per_second, theirs.tokens_per_second) == (10.0, 5.0)
    assert (ours.decode_tokens_per_second, theirs.decode_tokens_per_second) == pytest.approx((10.0, 5.0))
    assert (ours.prefill_seconds, ours.verify_seconds, ours.draft_seconds) == (0.1, 0.3, 0.2)
    assert ours.host_seconds == pytest.approx(0.1)
    assert ours.host_microseconds_per_round == pytest.approx(1e5 / 3)
    assert report.speedup == 2.0
    assert report.decode_speedup == pytest.approx(2.0)
    assert report.acceptance_by_depth == (
        Depth(1, 2 / 3, 2 / 3),
        Depth(2, 1 / 3, 1 / 2),
        Depth(3, 1 / 3, 1.0),
        Depth(4, 1 / 3, 1.0),
    )
    none_accepted = report_of((replace(SPECULATIVE, path_lengths=[1, 1]), AUTOREGRESSIVE)).acceptance_by_depth
    assert none_accepted[:2] == (Depth(1, 0.0, 0.0), Depth(2, 0.0, None))


def test_generations_without_a_round_have_no_decode_rate():
    single = {"token_ids": [1], "rounds": 0, "mean_accepted": None, "path_lengths": []}
    report = report_of((replace(SPECULATIVE, **single), replace(AUTOREGRESSIVE, **single)))
    assert report.speculative.decode_tokens_per_second is None
    assert report.speculative.host_microseconds_per_round is None
    assert report.speculative.mean_accepted is None
    assert (report.decode_speedup, report.acceptance_by_depth) == (None, ())
    assert "tokens/s without prefill                 -               -" in write_table(report)


@pytest.mark.parametrize(
    ("tokens", "difference"),
    [([1, 2, 9, 4, 5, 6, 7], Difference(2, 2, 3, 9)), ([1, 2, 3, 4, 5, 6], Difference(2, 6, 7, None))],
)
def test_the_first_difference_is_found(tokens, difference):
    report = report_of((SPECULATIVE, AUTOREGRESSIVE), (SPECULATIVE, replace(AUTOREGRESSIVE, token_ids=tokens)))
    assert (report.equal_prompts, report.differences) == (1, (difference,))
    told = f"prompt 2: new token {difference.index} is {difference.speculative} speculatively and "
    assert write_table(report).splitlines()[-2:] == [
        "same tokens on 1 of 2 prompts",
        f"{told}{difference.autoregressive} autoregressively",
    ]


def test_prompts_and_repeats_that_are_refused():
    with pytest.raises(PromptError, match="prompt 2: token id 999 is out of range: expected 0 to 257"):
        measure(toy_bundle(), [[1], [999]])
    with pytest.raises(UsageError, match="repeats is 0: expected at least 1"):
        measure(toy_bundle(), [[1]], repeats=0)


def test_the_table_goes_to_stdout_and_progress_to_stderr(bench):
    code, out, err = bench([{"prompt": "def"}, {"token_ids": [7, 8]}], "--threads", "2")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("demo on onnxruntime-cpu, CPUs: ")
    assert lines[0].endswith("threads: 2")
    assert lines[1].startswith("2 prompts, up to 20 new tokens, 3 repeats; medians")
    assert lines[2] == "greedy decoding at temperature 0, verified by exact"
    for words in ("speccompile 0.", "onnxruntime 1."):
        assert words in lines[3]
    assert lines[5].split() == ["speculative", "autoregressive"]
    rows = {line[:26].strip(): line[26:].split() for line in lines[6:]}
    assert rows["mean accepted"][1] == "1.00"
    assert rows["new tokens"] == ["40", "40"]
    assert rows["draft at depth"] == ["1", "2", "3", "4"]
    assert lines[-1] == "same tokens on 2 of 2 prompts"
    assert err.splitlines()[1:] == ["warm-up ...", "prompt 1 of 2 ...", "prompt 2 of 2 ..."]


def test_json_is_the_report(bench):
    code, out, _ = bench([{"prompt": "def"}], "--json", "--repeats", "1", "--engine", "other")
    printed = json.loads(out)
    assert code == 0
    assert list(printed) == [
        "bundle", "exact", "method", "decoding", "temperature", "seed", "limits", "engine", "threads", "cpus",
        "prompts", "max_new_tokens", "repeats", "speculative", "autoregressive", "speedup", "decode_speedup",
        "acceptance_by_depth", "equal_prompts", "differences", "versions",
    ]  # fmt: skip
    assert (printed["engine"], printed["threads"], printed["repeats"]) == ("other", None, 1)
    assert list(printed["speculative"]) == list(printed["autoregressive"])
    assert list(printed["acceptance_by_depth"][0]) == ["depth", "accepted", "accepted_after_previous"]
    assert {"speccompile", "python", "numpy", "onnxruntime", "tokenizers"} == set(printed["versions"])


def test_the_versions_are_those_of_the_engines_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", SimpleNamespace(__version__="1.7"))
    bundle = toy_bundle()
    bundle.entry = replace(bundle.entry, backend="tensorrt_rtx")
    cases = measure(bundle, [[3, 1, 4]], max_new_tokens=4, repeats=1)
    versions = make_report(bundle, cases, threads=None, max_new_tokens=4).versions
    assert versions.keys() == {"speccompile", "python", "numpy", "tokenizers", "tensorrt_rtx"}
    assert versions["tensorrt_rtx"] == "1.7"


def test_a_bundle_without_drafter_says_so(bench):
    code, out, _ = bench([{"prompt": "def"}], speculative=False)
    assert code == 0
    assert out.splitlines()[-1] == "the bundle has no drafter: autoregressive only"
    assert out.splitlines()[5].split() == ["autoregressive"]
    printed = json.loads(bench([{"prompt": "def"}], "--json", speculative=False)[1])
    assert [printed[key] for key in ("speculative", "speedup", "decode_speedup", "equal_prompts")] == [None] * 4


class WrongEngine(ToyEngine):
    """Gives another bonus token where there are drafts, as a kernel does whose sums depend on the window."""

    def _verify_row(self, row, widths):
        super()._verify_row(row, widths)
        if widths["logit_rows"] > 1:
            path, n_path = self.array("path", (1, widths["window"] + 1)), self.array("n_path", (1,))[0]
            path[row, n_path] = (path[row, n_path] + 1) % 256


def test_other_tokens_fail_an_exact_bundle_and_no_other(bench):
    prompts = [{"token_ids": [7, 8]}, {"token_ids": [9]}]
    code, out, err = bench(prompts, engine=WrongEngine)
    assert code == 1
    bonus = path_lengths([7, 8], 20, 4)[0]
    right = autoregressive([7, 8], 20)[bonus]
    assert f"prompt 1: new token {bonus} is {right + 1} speculatively and {right} autoregressively" in out
    assert err.splitlines()[-2:] == [
        "error: expected the same tokens both ways, received others on 2 of 2 prompts: 1, 2",
        "hint: `speccompile prove` shows by what margin",
    ]
    code, out, _ = bench(prompts, engine=WrongEngine, exact=False, method="typical")
    assert (code, "same tokens on 0 of 2 prompts" in out) == (0, True)
    assert "verified by typical: APPROXIMATE, the output may change" in out
    assert json.loads(bench(prompts, "--json", engine=WrongEngine, exact=False)[1])["exact"] is False


def test_sampling_has_a_seed_and_both_ways_the_same_tokens(bench):
    prompts = [{"token_ids": [7, 8]}, {"token_ids": [9]}]
    arguments = ["--temperature", "1.5", "--top-k", "3", "--repeats", "1"]
    code, out, _ = bench(prompts, *arguments, sampling=True)
    assert code == 0
    assert out.splitlines()[2] == "sampling decoding at temperature 1.5, seed 0, top_k 3, verified by exact"
    assert out.splitlines()[-1] == "same tokens on 2 of 2 prompts"
    for seed in (3, 4):
        printed = json.loads(bench(prompts, *arguments, "--seed", str(seed), "--json", sampling=True)[1])
        assert [printed[key] for key in ("decoding", "temperature", "seed", "limits", "equal_prompts")] == [
            "sampling", 1.5, seed, {"top_k": 3}, 2,
        ]  # fmt: skip
    assert json.loads(bench(prompts, "--seed", "3", "--json", sampling=True)[1])["seed"] is None
    assert "top_k 3, but the bundle was compiled for greedy decoding" in bench(prompts, *arguments)[2]


def test_drawn_drafts_give_other_tokens_by_right(bench):
    prompts = [{"token_ids": [7, 8]}, {"token_ids": [9]}]
    code, out, _ = bench(prompts, "--temperature", "1", sampling=True, sample=True)
    told = "drafts are drawn: the two ways give other tokens, by the same probabilities"
    assert (code, out.splitlines()[-1]) == (0, told)
    printed = json.loads(bench(prompts, "--temperature", "1", "--json", sampling=True, sample=True)[1])
    assert (printed["equal_prompts"], printed["differences"]) == (None, [])
    assert "same tokens on 2 of 2 prompts" in bench(prompts, sampling=True, sample=True)[1]  # at temperature 0


def test_depths_are_those_of_the_tree(bench):
    printed = json.loads(bench([{"token_ids": [7, 8]}], "--json", tree="static")[1])
    shares = [depth["accepted"] for depth in printed["acceptance_by_depth"]]
    assert (len(shares), shares) == (STATIC.depth, sorted(shares, reverse=True))
    assert shares[-1] > 0


def test_a_prompts_file_is_required(bench, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["bench", "toy"])
    assert leaving.value.code == 2
    assert "Missing option '--prompts'" in capsys.readouterr().err
    code, out, err = bench([{"text": "def"}])
    assert (code, out) == (2, "")
    assert 'prompts.jsonl, line 1: received {"text": "def"}' in err
