"""The probe on the demo's trained heads: it counts what is right, and says which other reading fits better."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from speccompile.bundle.prompts import read_prompts
from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.models.load import load_model
from speccompile.drafters.probe import DepthAccuracy, Text, compare_interpretations
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime.text.tokenizer import Tokenizer as Tokenizer

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
PROMPTS, NEW_TOKENS = 6, 40


@pytest.fixture(scope="module")
def target():
    model = load_model(RECIPES / "demo" / "target", 1024)
    model.set_attn_implementation("eager")
    return model


@pytest.fixture(scope="module")
def texts(target):
    """Return what transformers' greedy decoding goes on with."""
    tokenizer, found = Tokenizer(RECIPES / "demo" / "target" / "tokenizer.json"), []
    for prompt in read_prompts(RECIPES / "demo" / "prompts.jsonl")[:PROMPTS]:
        ids = tokenizer.encode(prompt)
        given = torch.tensor([ids])
        more = target.generate(given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=NEW_TOKENS)
        found.append(Text(more[0].tolist(), len(ids)))
    return found


def probed(name, target, texts, *overrides):
    plan = make_plan(load_recipe(RECIPES / name, overrides))
    return compare_interpretations(replace(drafter_context(open_round(plan).draft), model=target), target, texts)


@pytest.mark.sweep("every reading of a trained head; one that is read wrong is in the first tier")
@pytest.mark.parametrize("name", ["demo-eagle3", "demo-dflash", "demo-medusa"])
def test_heads_that_are_read_as_they_were_trained_beat_every_other_reading(name, target, texts, caplog):
    with caplog.at_level(logging.WARNING):
        found = probed(name, target, texts)
    assert found["better"] == []
    assert "drafts better" not in caplog.text
    assert found["positions"] >= 100
    assert found["hit_rate"][0] > 0.4
    assert found["hit_rate"][0] > found["control"]["hit_rate"][0]
    assert found["readings"]


@pytest.mark.sweep("every reading of a trained head", but=["demo-dflash"])
@pytest.mark.parametrize(
    ("name", "override", "better"),
    [
        ("demo-eagle3", "drafter.switches={norm_before_residual: true}", "norm_before_residual: false"),
        ("demo-dflash", "drafter.switches={sample_from_anchor: true}", "sample_from_anchor: false"),
    ],
)
def test_a_reading_that_fits_clearly_better_is_named_with_both_figures(name, override, better, target, texts, caplog):
    with caplog.at_level(logging.WARNING):
        found = probed(name, target, texts, override)
    assert better in found["better"]
    assert f"with {better} its drafts are right in" in caplog.text
    assert sum(found["readings"][better]) > sum(found["hit_rate"])


def test_what_is_clearly_better():
    assert DepthAccuracy((60, 50), 100).beats(DepthAccuracy((30, 50), 100))
    assert not DepthAccuracy((60, 50), 100).beats(DepthAccuracy((55, 50), 100))  # chance
    assert not DepthAccuracy((40, 90), 100).beats(DepthAccuracy((60, 30), 100))  # the first draft is what counts
    assert DepthAccuracy((60, 80), 100).beats(DepthAccuracy((60, 30), 100))  # as where the feedback is wrong
    assert DepthAccuracy((0,), 40).beats(DepthAccuracy((0,), 40)) is False


def test_too_little_text_is_not_judged(target):
    plan = make_plan(load_recipe(RECIPES / "demo-eagle3"))
    assert (
        compare_interpretations(
            replace(drafter_context(open_round(plan).draft), model=target), target, [Text([1, 2, 3], 3)]
        )
        is None
    )
