"""Gemma 4's assistant in whole bundles, against transformers' own candidate generator."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache, Gemma4AssistantForCausalLM, PreTrainedModel
from transformers.generation.candidate_generator import SinglePositionMultiTokenCandidateGenerator

from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from speccompile.runtime.generation import SequenceState
from tests import multimodal, zoo
from tests.compile.tiny_bundles import save
from tests.heads.assistant import assistant
from tests.heads.assistant import model as assistant_model
from tests.light.forced_lengths import force

DRAFTS, NEW_TOKENS = 3, 24
CACHE = "cache: {max_length: 112, prefill_chunk: 16, batch_size: 2}"
PROMPTS = ([*range(3, 60)], [5, 9, 200, 17] * 6, [11])
"""Longer than the attention's windows, and than chunks; one that repeats, and one token."""

LAYERS = {"num_hidden_layers": 6, "layer_types": 3 * [zoo.SLIDING, zoo.FULL]}
"""Of which the last two have no keys: the assistant reads layers 2 and 3."""


def make(folder: Path, drafter: str, *sections: str, sparse: bool = False, prove: bool = True) -> Bundle:
    model = zoo.model("gemma4_text", **LAYERS)
    save(model, folder / "target", tokenizer=False)
    assistant(folder / "head", model.config, sparse=sparse)
    lines = ("name: tiny", "target: {model: target}", f"drafter: {{model: head, {drafter}}}", CACHE, *sections)
    (folder / "recipe.yaml").write_text("\n".join(lines))
    build(make_plan(load_recipe(folder)), folder / "bundle", prove=prove)
    return Bundle.open(folder / "bundle", threads=1)


@torch.no_grad()
def candidates(model: PreTrainedModel, helper: Gemma4AssistantForCausalLM, text: list[int], drafts: int) -> list[int]:
    """Return what transformers' generator proposes behind a prefill of all but the last token, which stands for the
    bonus."""
    helper.generation_config.num_assistant_tokens = drafts
    model.generation_config.max_length = len(text) + drafts + 2
    generator = SinglePositionMultiTokenCandidateGenerator(
        helper, model.get_input_embeddings(), model.generation_config
    )
    ids, caches = torch.tensor([text]), DynamicCache()  # of one kind for all layers, so that no row is dropped
    outputs = model(ids[:, :-1], cache=caches, **generator.model_kwargs_overrides)
    kwargs: dict[str, Any] = {"attention_mask": torch.ones_like(ids)}
    found, _ = generator.get_candidates(ids, kwargs, outputs, is_first_iteration=False, n_last_matches=0)
    proposed: list[int] = found[0, len(text) :].tolist()
    return proposed


@pytest.mark.sweep("a bundle each, with its proof")
@pytest.mark.parametrize("sparse", [False, True])
def test_drafts_are_those_of_transformers_candidate_generator(tmp_path: Path, sparse: bool) -> None:
    bundle = make(tmp_path, f"tokens: {DRAFTS}", sparse=sparse, prove=False)
    states = {tensor.name for graph in bundle.manifest.graphs for tensor in graph.inputs if tensor.role == "state"}
    assert states == {f"target.{kind}.{layer}" for kind in ("key", "value") for layer in range(4)}
    target = zoo.model("gemma4_text", **LAYERS)
    helper = assistant_model(target.config, sparse=sparse)
    engine, seen = bundle._loop.rounds.engine, list[int]()
    for prompt in PROMPTS:
        alone = bundle.generate(prompt, max_new_tokens=NEW_TOKENS, autoregressive=True).token_ids
        row = SequenceState(list(prompt), NEW_TOKENS, bundle.manifest.max_length, [], None)
        for _ in bundle._loop.generate([row], True):
            if row.is_active:
                window = engine.host_view("window", (2, DRAFTS + 1))[0].tolist()
                text = [*prompt, *row.token_ids]
                assert window == [text[-1], *candidates(target, helper, text, DRAFTS)]
                seen += window[1:]
        assert row.token_ids == alone
    assert len(set(seen)) > DRAFTS


@pytest.mark.sweep("trees and draws are the same code for all kinds")
@pytest.mark.parametrize("drafter", ["tree: [2, 1, 1]", "tree: {depth: 3, top_k: 2, nodes: 6}"])
def test_trees_and_drawn_drafts(tmp_path: Path, drafter: str) -> None:
    """Built with the proof of what is drawn where it is; now and then a round has no drafts."""
    is_drawn = "depth" not in drafter
    bundle = make(tmp_path, drafter, *("decoding: sampling",) * is_drawn, sparse=True, prove=is_drawn)
    alone = [bundle.generate(p, max_new_tokens=NEW_TOKENS, autoregressive=True).token_ids for p in PROMPTS]
    force(bundle, [1, 7, 7, 1, 7])
    both = bundle.generate_batch(list(PROMPTS[:2]), max_new_tokens=NEW_TOKENS)
    assert [each.token_ids for each in both] == alone[:2]


@pytest.mark.sweep("engines take longest")
def test_engines_and_a_whole_checkpoint(tmp_path: Path) -> None:
    """Build inside a multimodal checkpoint, for int4 on a CPU and for TensorRT-RTX, whose graphs are driven on the
    CPU."""
    multimodal.save(multimodal.model("gemma4"), tmp_path / "target")
    assistant(tmp_path / "head", zoo.config("gemma4_text"))
    (tmp_path / "recipe.yaml").write_text(
        f"name: tiny\ntarget: {{model: target}}\ndrafter: {{model: head, tokens: 2}}\n{CACHE}\n"
        "engines:\n- {backend: onnxruntime, precision: {target: int4}}\n"
        "- {backend: tensorrt, compute_capability: '8.9', defer: true, precision: {target: float16}}\n"
    )
    build(make_plan(load_recipe(tmp_path)), tmp_path / "bundle")
    bundle = Bundle.open(tmp_path / "bundle", threads=1)
    for prompt in PROMPTS:
        alone = bundle.generate(prompt, max_new_tokens=NEW_TOKENS, autoregressive=True).token_ids
        assert bundle.generate(prompt, max_new_tokens=NEW_TOKENS, adaptive=False).token_ids == alone
