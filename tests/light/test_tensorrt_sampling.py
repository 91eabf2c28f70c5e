"""Sampling and trees on a fake GPU that runs the toy: what crosses, what does not, and what comes out."""

import pytest

from speccompile.bundle.sampling import SamplingParams
from tests.light.fake_bundle import toy_bundle
from tests.light.fake_machine import PROMPT, generate, make_machine
from tests.light.toy_models import CANDIDATES, autoregressive

flavours = pytest.mark.parametrize("rtx", [True, False], ids=["tensorrt_rtx", "tensorrt"])


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return make_machine(tmp_path, monkeypatch)


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
@flavours
def test_sampling_and_trees_run_on_a_device(machine, rtx, fused):
    """Run slots with their own settings; a penalty lets the history grow, and graphs are bound again."""
    rows = [SamplingParams(1.2, seed=3), SamplingParams(0.7, repetition_penalty=1.5, seed=4)]
    options = {name: [getattr(row, name) for row in rows] for name in ("temperature", "repetition_penalty", "seed")}
    for tree in ("chain", "static", "dynamic"):
        opened = machine(rtx=rtx, fused=fused, tree=tree, sampling=True, batch_size=2, max_length=48)
        for way in (False, True, False):
            generations = opened.bundle.generate_batch(
                [PROMPT, [9]], max_new_tokens=30, autoregressive=way, logprobs=True, **options
            )
            for prompt, row, generation in zip([PROMPT, [9]], rows, generations, strict=True):
                assert generation.token_ids == autoregressive(prompt, 30, row)
                assert len(generation.logprobs) == 30


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
@flavours
def test_drawn_drafts_on_a_device_are_those_of_the_processor(machine, rtx, fused):
    kinds = {"fused": fused, "tree": "static", "sampling": True, "sample": True, "batch_size": 2}
    there, here = (
        bundle.generate_batch([PROMPT, [9]], max_new_tokens=30, temperature=[1, 0], seed=5)
        for bundle in (machine(rtx=rtx, **kinds).bundle, toy_bundle(**kinds))
    )
    assert [each.token_ids for each in there] == [each.token_ids for each in here]
    assert [each.path_lengths for each in there] == [each.path_lengths for each in here]


@flavours
def test_what_one_graph_hands_to_the_next_never_crosses(machine, rtx):
    kinds = {"tokens": 5, "sampling": True, "sample": True}
    plain, linked = (machine(rtx=rtx, features=features, **kinds) for features in (False, True))
    for opened in (plain, linked):
        assert generate(opened, temperature=1, seed=2) == generate(opened, temperature=1, seed=2)
    assert linked.cuda.copies == plain.cuda.copies
    drawn = 5 * CANDIDATES
    assert not {drawn * 8, drawn * 4} & {size for _, size in plain.cuda.copies}
    seen = linked.engine.host_view("features", (1, 6, 1))
    assert seen.any()
    with pytest.raises(ValueError, match="read-only"):
        seen[:] = 0
