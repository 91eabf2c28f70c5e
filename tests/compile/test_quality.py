"""Perplexity by the graphs of bundles against transformers' own loss, and the texts on which a build measures it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from speccompile.compiler.build.inputs import open_plan
from speccompile.compiler.build.quality import quality_texts
from speccompile.compiler.prove.quality import engine_logits, predictions
from speccompile.errors import PromptError
from speccompile.recipe import Plan, TreePlan, load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.combinations import MAX_LENGTH, Combination

WAYS = [
    Combination("model", "chain", False, "sampling", "exact"),
    Combination("model", "static", True, "sampling", "exact"),
    Combination("model", "dynamic", False, "greedy", "exact"),
]
"""Chains are read in windows of many tokens, trees token by token. Each is a bundle of the first tier's others."""


def texts() -> list[list[int]]:
    """Return three, so that of two rows of a batch one is idle in the end."""
    random = np.random.default_rng(5)
    return [random.integers(3, zoo.VOCABULARY, length).tolist() for length in (MAX_LENGTH, 2, 21)]


def own_perplexity(model: PreTrainedModel) -> float:
    """Return the perplexity from transformers' loss of labels: a mean over the predicted tokens of each text."""
    losses = []
    with torch.no_grad():
        for text in texts():
            ids = torch.tensor([text])
            losses.append(float(model(input_ids=ids, labels=ids).loss) * (len(text) - 1))
    return float(np.exp(sum(losses) / sum(len(text) - 1 for text in texts())))


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_perplexity_is_that_of_transformers(workshop, way):
    bundle = Bundle.open(workshop.bundle(way), threads=1)
    folder = workshop.models(way.where.architecture) / "target"
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    verify = next(graph for graph in bundle.manifest.graphs if graph.name == "verify")
    logits = engine_logits(bundle.engine, verify, texts(), bundle.manifest.prefill_chunk, bundle.manifest.batch_size)
    found = predictions(logits, texts(), bundle.manifest.vocabulary_size, "the engine")
    assert found.perplexity == pytest.approx(own_perplexity(model), rel=1e-4)


@pytest.fixture
def planned(tmp_path):
    """Return a plan with files of prompts and of held-out texts, and its folder, in which a tokenizer would lie."""

    def planned(prompts: object = None, held_out: object = None) -> tuple[Plan, Path]:
        zoo.save("gpt2", tmp_path / "target", tokenizer=False)
        prove = {}
        for name, lines in (("prompts", prompts), ("held_out", held_out)):
            if lines is not None:
                (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"token_ids": ids}) + "\n" for ids in lines))
                prove[name] = f"{name}.jsonl"
        recipe = {"name": "tiny", "target": {"model": "target"}, "cache": {"max_length": 8}, "prove": prove}
        (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
        return make_plan(load_recipe(tmp_path)), tmp_path

    return planned


def test_quality_is_measured_on_held_out_texts_else_on_the_prompts(planned):
    prompts = [[1, 2, 3], [4], [5, 6]]
    plan, folder = planned(prompts, [[7, 8]])
    assert quality_texts(open_plan(plan).texts, folder, prompts) == [[7, 8]]
    without = replace(plan, prove=replace(plan.prove, held_out=None))
    assert quality_texts(open_plan(without).texts, folder, prompts) == [[1, 2, 3], [5, 6]]
    random = replace(plan, prove=replace(without.prove, prompts=None))
    assert quality_texts(open_plan(random).texts, folder, prompts) == []


def test_trees_are_measured_on_the_first_texts(planned, monkeypatch):
    held_out = [[1] * 5, [2] * 3, [3] * 4, [4] * 2]
    plan, folder = planned(held_out=held_out)
    tree = replace(plan, drafter=replace(plan.drafter, tokens=2, tree=TreePlan("static", (-1, 0, 0), 1)))
    assert quality_texts(open_plan(tree).texts, folder, []) == held_out
    for tokens, count in ((8, 2), (11, 2), (12, 3), (4, 1)):
        monkeypatch.setattr("speccompile.compiler.build.quality.TREE_TOKENS", tokens)
        assert quality_texts(open_plan(tree).texts, folder, []) == held_out[:count]
        assert quality_texts(open_plan(plan).texts, folder, []) == held_out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ([3], r"held_out\.jsonl: received one token in prompt 2, expected two or more: the first is not predicted"),
        ([3] * 9, r"held_out\.jsonl: received 9 tokens in prompt 2, expected at most 8, which is cache\.max_length"),
    ],
)
def test_a_text_of_a_wrong_length_is_refused(planned, text, message):
    plan, folder = planned(held_out=[[1, 2], text])
    with pytest.raises(PromptError, match=message) as caught:
        quality_texts(open_plan(plan).texts, folder, [])
    assert caught.value.exit_code == 2
    assert caught.value.hint
