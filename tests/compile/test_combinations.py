"""Whatever drafts, in whatever shape, however it is decoded: the tokens are the target's. One case for each combination
that the table of `recipe.drafts` allows, so that a new row is tested by itself."""

from dataclasses import replace
from functools import cache
from itertools import chain

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from speccompile.bundle import open_bundle
from speccompile.bundle.delta import read_delta
from speccompile.bundle.sampling import SamplingParams
from speccompile.compiler.prove import distribution
from speccompile.compiler.prove.distribution import Request
from speccompile.compiler.prove.processors import eager_reference
from speccompile.measure.bench import make_report, measure
from speccompile.runtime import Bundle, Generation
from tests import zoo
from tests.compile.combinations import (
    BATCH_SIZE,
    FEWER_HEADS,
    FIRST,
    MAX_LENGTH,
    ON_STATES,
    REASON,
    RULES,
    Combination,
    every,
    is_tried,
)
from tests.heads.every import HEADS
from tests.light.forced_lengths import forced_lengths
from tests.suite.selection import sweep_but

ALL = every()


EXACT = [each for each in ALL if each.exact and is_tried(each)]
FEWER = [each for each in EXACT if each.drafter not in HEADS or each.drafter in FEWER_HEADS]
SAMPLING = [each for each in EXACT if each.decoding == "sampling"]

OTHERS = [
    each for each in EXACT if each.drafter not in HEADS and (each.decoding == "sampling" or each.drafter == "none")
]
ENGINES = OTHERS[::2] + [each for each in EXACT if each.drafter in HEADS][::5] + RULES[::3]
"""Some, all drafters and trees among them: what TensorRT gets is made of the same parts, and takes longest. Greedy
graphs differ from those that sample in the target's part alone."""

NEW_TOKENS = 20
SAMPLES = 1000
PROMPT_LENGTHS = (3, 21, MAX_LENGTH - 9)
"""Less than a chunk of the prefill, more than a sliding window, and so much that the buffers end a generation."""
REPEATED = [17, 230, 45, 99] * 4

SETTINGS = (
    {"temperature": [0.8, 1.3], "top_k": [5, 40], "seed": [1, 2]},
    {"temperature": [0.6, 1.0], "top_p": [0.6, 0.9], "repetition_penalty": [1.0, 1.3], "seed": [3, 4]},
    {"temperature": [1.0, 0.5], "min_p": [0.05, 0.2], "top_k": [0, 8], "seed": [5, 6]},
)
"""Options for the two rows of a batch."""


PACES = ([9, 9, 2, 1, 1, 9, 9, 2, 1, 9], [1, 1, 1, 9, 9, 1, 2], [9, *[1] * 7, 2, 9])
"""Widths of windows in turn, 9 for the widest: they go on from one generation to the next."""


def tried(combinations):
    """Return those that bundles of the first tier show; the others are swept."""
    return sweep_but(FIRST, combinations, REASON)


def prompts() -> list[list[int]]:
    random = np.random.default_rng(3)
    return [REPEATED, *(random.integers(3, zoo.VOCABULARY, length).tolist() for length in PROMPT_LENGTHS)]


@pytest.fixture(scope="module")
def opened(workshop):
    def open_one(combination, **parameters):
        folder = workshop.bundle(combination, **parameters)
        return Bundle.open(folder, threads=1, proposer=combination.proposer)

    return cache(open_one)


@pytest.fixture(scope="module")
def target(workshop):
    """Return transformers' own model of an architecture, which nothing of ours has touched."""

    @cache
    def load(architecture):
        folder = workshop.models(architecture) / "target"
        return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()

    return load


@pytest.fixture(scope="module")
def reference(target):
    """Return transformers' greedy continuation of the prompts."""

    @cache
    def continuations(architecture, repetition_penalty=1.0):
        model = target(architecture)
        return [
            model.generate(
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.int64), do_sample=False,
                max_new_tokens=min(NEW_TOKENS, MAX_LENGTH - len(prompt)), repetition_penalty=repetition_penalty,
            )[0, len(prompt) :].tolist()
            for prompt in prompts()
        ]  # fmt: skip

    return continuations


def generate_all(bundle: Bundle, **options) -> list[Generation]:
    """Return one generation for every prompt, a batch at a time."""
    asked = prompts()
    rows = bundle.manifest.batch_size
    batches = [asked[start : start + rows] for start in range(0, len(asked), rows)]
    options.setdefault("max_new_tokens", NEW_TOKENS)
    return list(chain.from_iterable(bundle.generate_batch(batch, **options) for batch in batches))


def tokens(generations: list[Generation]) -> list[list[int]]:
    return [one.token_ids for one in generations]


def accepted(generations: list[Generation]) -> int:
    """Return drafts that came true in all of them."""
    return sum(length - 1 for one in generations for length in one.path_lengths)


def of_row(settings, row):
    return {name: values[row] for name, values in settings.items()}


@pytest.mark.parametrize("combination", tried([*EXACT, *ON_STATES]), ids=str)
def test_without_temperature_the_tokens_are_those_of_transformers(opened, reference, combination):
    bundle, expected = opened(combination), reference(combination.where.architecture)
    speculative = generate_all(bundle, adaptive=False)
    assert tokens(speculative) == tokens(generate_all(bundle, autoregressive=True)) == expected
    assert tokens([bundle.generate(prompt, max_new_tokens=NEW_TOKENS) for prompt in prompts()]) == expected
    assert bundle.speculative == (combination.drafter != "none")
    assert accepted(speculative) > 0 or not combination.agrees
    assert {one.exact for one in speculative} == {True}
    if combination.decoding == "sampling":
        penalized = {"repetition_penalty": 1.3}
        speculative = generate_all(bundle, **penalized)
        expected = reference(combination.where.architecture, **penalized)
        assert tokens(speculative) == tokens(generate_all(bundle, autoregressive=True, **penalized)) == expected


@pytest.mark.parametrize("combination", tried(each for each in SAMPLING if not each.sample), ids=str)
def test_certain_drafts_leave_what_equal_seeds_draw(opened, combination):
    bundle, found = opened(combination), 0
    for settings in SETTINGS:
        speculative = generate_all(bundle, adaptive=False, **settings)
        assert tokens(speculative) == tokens(generate_all(bundle, autoregressive=True, **settings))
        check_alone_and_again(bundle, speculative, settings)
        found += accepted(speculative)
    assert found > 0 or not combination.agrees


@pytest.mark.parametrize("combination", tried(each for each in [*FEWER, *ON_STATES] if each.drafter != "none"), ids=str)
def test_rounds_may_stop_drafting_and_begin_again_anywhere(opened, reference, monkeypatch, combination):
    bundle, n_drafts = opened(combination), set()
    bundle.reset()  # what other tests have taught it finds drafts in every round
    for wanted in PACES:
        monkeypatch.setattr(bundle._loop.drafting, "policy", forced_lengths(bundle, wanted))
        generations = generate_all(bundle)
        assert tokens(generations) == reference(combination.where.architecture)
        n_drafts |= {count for one in generations for count in one.draft_lengths}
        if combination.decoding == "sampling" and not combination.sample:
            settings = SETTINGS[0]
            expected = tokens(generate_all(bundle, autoregressive=True, **settings))
            assert tokens(generate_all(bundle, **settings)) == expected
    if combination.drafter in ("retrieval", "suffix"):  # as many as are found
        assert {0, 2} <= n_drafts <= set(range(bundle.manifest.tokens + 1))
    elif combination.drafter == "token_recycling":  # fewer while its table fills, then all
        assert {0, bundle.manifest.tokens} < n_drafts <= set(range(bundle.manifest.tokens + 1))
    else:
        assert n_drafts == ({0, 1, 2} if bundle.manifest.tree == "chain" else {0, bundle.manifest.tokens})


@pytest.mark.parametrize("combination", tried(each for each in SAMPLING if each.sample), ids=str)
def test_drawn_drafts_leave_the_target_s_distribution(opened, target, combination):
    bundle = opened(combination)
    drawn = [
        distribution.draw(bundle, REPEATED[:7], sampling, Request((sampling,), SAMPLES), seed=number * 1000)
        for number, sampling in enumerate(
            (SamplingParams(1.0, top_k=5), SamplingParams(1.4, top_p=0.6, repetition_penalty=1.2))
        )
    ]
    rows = distribution.check(bundle.manifest, drawn, eager_reference(target(combination.where.architecture)))
    assert {row["token"] for row in rows} >= {"first", "first two"}
    assert max(row["degrees"] for row in rows if row["token"] == "first two") >= 10
    assert all(row["accepted"] < 1 for row in rows)
    assert all(row["accepted"] > 0 for row in rows) or not combination.agrees


@pytest.mark.parametrize("combination", tried(each for each in SAMPLING if each.sample and each in FEWER), ids=str)
def test_drawn_drafts_depend_on_nothing_but_the_seed(opened, combination):
    bundle = opened(combination)
    for settings in SETTINGS:
        check_alone_and_again(bundle, generate_all(bundle, **settings), settings)


def check_alone_and_again(bundle: Bundle, generations: list[Generation], settings) -> None:
    """Check that the same tokens come a second time, and when each prompt is alone."""
    assert tokens(generate_all(bundle, **settings)) == tokens(generations)
    for number, prompt in enumerate(prompts()):
        alone = bundle.generate(prompt, max_new_tokens=NEW_TOKENS, **of_row(settings, number % BATCH_SIZE))
        assert alone.token_ids == generations[number].token_ids


@pytest.mark.parametrize("combination", tried(RULES), ids=str)
def test_approximate_methods_say_so_and_accept_more(opened, combination):
    bundle = opened(combination)
    exact = opened(Combination(**vars(combination) | {"method": "exact"}))
    assert (bundle.manifest.exact, bundle.manifest.method) == (False, combination.method)
    ours, theirs = generate_all(bundle), generate_all(exact)
    assert {one.exact for one in ours} == {False}
    assert all(one.to_json()["exact"] is False for one in ours)
    for one, other in zip(ours, theirs, strict=True):  # at the same place, with the same drafts
        assert one.token_ids[0] == other.token_ids[0]
        assert one.path_lengths[0] >= other.path_lengths[0]
    assert accepted(ours) / sum(one.rounds for one in ours) > accepted(theirs) / sum(one.rounds for one in theirs)
    if combination.decoding == "sampling":
        for settings in SETTINGS[:1]:
            check_alone_and_again(bundle, generate_all(bundle, **settings), settings)
    cases = measure(bundle, [REPEATED[:5]], max_new_tokens=6, repeats=1)
    report = make_report(bundle, cases, threads=1, max_new_tokens=6).to_json()
    assert (report["exact"], report["method"]) == (False, combination.method)


@pytest.mark.sweep("a bundle of its own; other rules' distributions are in the first tier")
def test_no_lenience_leaves_the_target_s_distribution(opened, target):
    """Test certain drafts too, which are accepted by chance, not where they equal what was drawn."""
    combination = Combination("prompt_lookup", "chain", False, "sampling", "lenience")
    bundle, sampling = opened(combination, lenience=1.0), SamplingParams(0.7, top_k=5)
    drawn = distribution.draw(bundle, REPEATED, sampling, Request((sampling,), SAMPLES), seed=0)
    manifest = replace(bundle.manifest, exact=True)
    distribution.check(manifest, [drawn], eager_reference(target(combination.where.architecture)))


@pytest.mark.parametrize("combination", sweep_but(RULES[:1], ENGINES, "engines take seconds to build"), ids=str)
def test_tensorrt_rtx_builds_it(workshop, combination):
    bundle = open_bundle(workshop.engines(combination))
    (entry,) = bundle.manifest.engines
    assert entry.compute_capability == combination.where.capability
    assert sorted(entry.files) == sorted(graph.name for graph in bundle.manifest.graphs)
    for graph in entry.graphs:
        report = entry.build.reports[graph.name]
        assert report["aliases"] == graph.aliases
        for kind, tensors in (("inputs", graph.inputs), ("outputs", graph.outputs)):
            assert {row["name"]: row["dtype"] for row in report[kind]} == {each.name: each.dtype for each in tensors}
        assert len(read_delta(bundle.folder / entry.files[graph.name])) == report["bytes"]
