"""Every engine on a real GPU: its tokens, its numbers, what crosses to the host, CUDA graphs, and the host's share.

These tests are skipped, with the reason, where there is no GPU; scripts/gpu/check runs them and prints their figures.
"""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from speccompile.bundle.prompts import read_prompts
from speccompile.compiler.prove import tokens
from speccompile.compiler.prove.schedule import make_script
from speccompile.compiler.prove.schedule_runs import run_schedule
from speccompile.compiler.prove.tolerance import TOLERANCE, within_noise
from speccompile.runtime import first_difference
from tests.gpu.machine import ROOT

NEW_TOKENS = 48
MOST_TOKENS = 400

FIRST_TOKENS = """
import sys, time
from speccompile.runtime import Bundle
start = time.perf_counter()
Bundle.open(sys.argv[1], engine="gpu").generate(sys.argv[2], max_new_tokens=8)
print(time.perf_counter() - start)
"""


@pytest.fixture(scope="module")
def prompts():
    return list(read_prompts(ROOT / "recipes/demo/prompts.jsonl"))


def test_tokens(opened, prompts, figures):
    """Speculative and autoregressive decoding agree; in float32 both agree with the processor."""
    bundle, reference = opened.bundle, opened.reference
    cases = list(tokens.decode_both(bundle, prompts, NEW_TOKENS))
    ties = [tie for case in cases if (tie := tokens.check_equal(bundle, case))]
    same = [_agree(case, reference, opened.engine.precision) for case in cases]
    found = tokens.summary(cases, ties)
    figures(
        equal=f"{found['equal']}/{found['prompts']}", near_ties=len(ties), mean_accepted=found["mean_accepted"],
        same_as_cpu_float32=f"{sum(same)}/{len(same)}",
    )  # fmt: skip


def _agree(case, reference, precision):
    """Return whether the processor gives the same tokens. Float32 may differ at near-ties alone; less may differ."""
    ours = case.speculative.token_ids
    theirs = reference.generate(case.prompt_ids, max_new_tokens=NEW_TOKENS).token_ids
    index = first_difference(ours, theirs)
    if index is None or precision != "float32":
        return index is None
    logits = tokens.next_logits(reference, case.prompt_ids + ours[:index])
    margin = abs(float(logits[ours[index]] - logits[theirs[index]]))
    assert within_noise(margin, float(np.abs(logits).max()), "float32"), f"{case.where}, token {index}: margin {margin}"
    return False


def test_numbers(opened, figures):
    """Logits and caches of every window of a script lie near those of the processor."""
    manifest = opened.bundle.manifest
    script = make_script(manifest.vocabulary_size, 1, manifest.max_length, manifest.prefill_chunk, 0)
    (graph,) = (graph for graph in manifest.graphs if graph.name == "verify")
    ours, theirs = (run_schedule(bundle.engine, script, [graph]) for bundle in (opened.bundle, opened.reference))
    worst = 0.0
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            if one[name].dtype.kind == "f":
                scale = max(1.0, float(np.abs(other[name]).max()))
                worst = max(worst, float(np.abs(one[name].astype(np.float32) - other[name]).max()) / scale)
    figures(worst_difference=worst, allowed=TOLERANCE[opened.engine.precision])
    assert worst <= TOLERANCE[opened.engine.precision]


def test_nothing_but_counts_and_tokens_crosses(opened, prompts, figures):
    bundle = opened.bundle
    bundle.generate(prompts[0], max_new_tokens=NEW_TOKENS, adaptive=False)
    with opened.watching() as watched:
        generation = bundle.generate(prompts[0], max_new_tokens=NEW_TOKENS, adaptive=False)
    largest = 8 * (bundle.manifest.prefill_chunk + 1)
    assert watched.copies
    assert max(size for _, size in watched.copies) <= largest
    if not watched.launches:  # copies inside a captured graph are not seen again
        total = sum(size * times for (_, size), times in watched.copies.items())
        figures(bytes_per_round=total / generation.rounds, copies_per_round=watched.copies.total() / generation.rounds)
    states = {t.buffer: t.concrete_shape({}) for g in bundle.entry.graphs for t in g.inputs if t.role == "state"}
    before = {name: bundle.engine.address(name) for name in states}
    bundle.generate(prompts[1], max_new_tokens=NEW_TOKENS)
    assert {name: bundle.engine.address(name) for name in states} == before
    assert all(bundle.engine.host_view(name, shape).any() for name, shape in states.items())


def test_cuda_graphs_and_the_hosts_time(opened, prompts, figures, caplog):
    """Capture every run. TensorRT's graphs are ours and counted; the others are the libraries' own."""
    bundle = opened.bundle
    for way in (False, True):  # kernels that a library compiles at first use are ready then
        for _ in range(3):
            bundle.generate(prompts[0], max_new_tokens=NEW_TOKENS, autoregressive=way, adaptive=False)
    count = min(MOST_TOKENS, bundle.manifest.max_length - len(bundle.token_ids(prompts[0])))
    for mode, way in (("speculative", False), ("autoregressive", True)):
        with opened.watching() as watched:
            start = time.perf_counter()
            generation = bundle.generate(prompts[0], max_new_tokens=count, autoregressive=way, adaptive=False)
            spent = time.perf_counter() - start
        rounds = generation.rounds
        figures(**{f"{mode}_us_per_round": 1e6 * spent / rounds, f"{mode}_tokens_per_second": count / spent})
        if opened.engine.backend != "onnxruntime":  # its waiting is inside the library
            figures(**{f"{mode}_host_us_per_round": 1e6 * (spent - watched.waited) / rounds})
        if opened.engine.backend == "tensorrt":
            assert watched.launches >= rounds - 2
    refused = [record.getMessage() for record in caplog.records if "without" in record.getMessage()]
    assert refused == []


def test_opening(opened, prompts, figures):
    """Seconds to open, and to the first tokens: with TensorRT-RTX the first time includes compiling its kernels."""
    start = time.perf_counter()
    opened.bundle.generate(prompts[0], max_new_tokens=2)
    figures(open_seconds=opened.open_seconds, first_tokens_seconds=time.perf_counter() - start)


def test_compiled_kernels_are_kept(engine, built, figures, tmp_path, prompts):
    """Start a second process, which loads the kernels that the first one compiled."""
    if engine.backend != "tensorrt_rtx":
        pytest.skip("only TensorRT-RTX compiles kernels where it runs")
    seconds = []
    for _ in range(2):
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
        command = [sys.executable, "-c", FIRST_TOKENS, built(engine.name), str(prompts[0])]
        run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert run.returncode == 0, run.stderr
        seconds.append(float(run.stdout))
    kept = sum(file.stat().st_size for file in (tmp_path / "speccompile" / "kernels").iterdir())
    figures(first_start_seconds=seconds[0], second_start_seconds=seconds[1], kernels_megabytes=kept / 1e6)
    assert kept > 0
