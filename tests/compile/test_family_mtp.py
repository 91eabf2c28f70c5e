"""MTP: its reference against transformers' own MtpModel, its drafter against the reference, and bundles."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Glm4MoeForCausalLM
from transformers.generation.candidate_generator import MTPCandidateGenerator

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.compiler.weights.checkpoint import checkpoint_sources
from speccompile.compiler.weights.tensor import whole
from speccompile.drafters.mtp import reference
from speccompile.drafters.mtp.layer import load_layers
from speccompile.errors import CheckpointError
from speccompile.recipe import Plan, load_recipe, make_plan
from tests import multimodal, quantized_models, zoo
from tests.compile.eager_rounds import check_generation, check_rounds
from tests.compile.tiny_bundles import save
from tests.heads.mtp import LAYERS, behind, mtp_head, mtp_target
from tests.json_files import edit_config

CACHE = "cache: {max_length: 96, prefill_chunk: 16, batch_size: 2}"


def plan_of(folder: Path, drafter: str = "tokens: 3", more: str = "") -> Plan:
    """Return a recipe that drafts with the MTP layers of the target beside it."""
    text = f"name: tiny\ntarget: {{model: target}}\ndrafter: {{kind: mtp, {drafter}}}\n{CACHE}\n{more}\n"
    (folder / "recipe.yaml").write_text(text)
    return make_plan(load_recipe(folder))


@pytest.fixture
def numbered(monkeypatch):
    """Number the layers, as only transformers knows them in published checkpoints."""
    pattern = [rf"model\.layers\.[{LAYERS}-9].*"]
    monkeypatch.setattr(Glm4MoeForCausalLM, "_keys_to_ignore_on_load_unexpected", pattern)


@pytest.mark.usefixtures("numbered")
@pytest.mark.parametrize(("name", "n_mtp"), [("glm4_moe", 1), ("glm4_moe", 3), ("mellum", 1)])
def test_drafts_are_those_of_transformers(tmp_path, monkeypatch, name, n_mtp):
    mtp_target(tmp_path / "target", name, n_mtp)
    (teacher,) = reference.teachers(drafter_context(open_round(plan_of(tmp_path, f"tokens: {n_mtp}")).draft))
    target = AutoModelForCausalLM.from_pretrained(tmp_path / "target", attn_implementation="eager").eval()
    rounds, own = [], MTPCandidateGenerator.get_candidates

    def candidates(self, input_ids, **given):
        ids, logits = own(self, input_ids, **given)
        if logits is not None:
            rounds.append((input_ids[0].tolist(), logits[0], ids[0, input_ids.shape[1] :].tolist()))
        return ids, logits

    monkeypatch.setattr(MTPCandidateGenerator, "get_candidates", candidates)
    prompt = torch.tensor([[5, 9, 200, 17, 30, 31, 77]])
    target.generate(prompt, use_mtp=True, max_new_tokens=24, do_sample=False)
    assert len(rounds) > 5
    for text, logits, drafts in rounds:
        assert len(drafts) == n_mtp
        with torch.no_grad():
            features = target.model(torch.tensor([text[:-1]]), use_cache=False).last_hidden_state[0].numpy()
        torch.testing.assert_close(
            torch.tensor(teacher(DrafterInputs(text, features, text[1:]), drafts[:-1])), logits, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(
    "name", ["glm4_moe", "mimo", "ernie", "hy_v3", "qwen3_next", "qwen3_5", "mellum", "exaone_moe"]
)
def test_drafts_of_rounds_are_those_of_the_whole_text(tmp_path, name):
    mtp_target(tmp_path / "target", name)
    check_rounds(plan_of(tmp_path))


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 3), marks=pytest.mark.sweep("more weights"))])
@pytest.mark.parametrize(
    ("name", "n_mtp", "tokens"), [("mimo", 2, 2), ("mimo", 3, 5), ("qwen3_5", 3, 3), ("ernie", 4, 3)]
)
def test_several_layers_draft_in_turn(tmp_path, name, n_mtp, tokens, seeds):
    mtp_target(tmp_path / "target", name, n_mtp)
    for seed in seeds:
        check_rounds(plan_of(tmp_path, f"tokens: {tokens}"), seed)


def test_a_folder_of_their_own(tmp_path):
    """Read layers of classes that nobody trains them with: sliding windows, layer norms with biases."""
    for name in ("mistral", "gpt2"):
        model = zoo.model(name)
        save(model, tmp_path / name / "target", tokenizer=False)
        mtp_head(tmp_path / name / "head", model.config, 2)
        check_rounds(plan_of(tmp_path / name, "model: head, tokens: 3"))


def add_ends(folder: Path, other_head: bool) -> None:
    """Add what DeepSeek's files repeat: the embedding, and the head, here perhaps another one."""
    tensors = load_file(folder / "model.safetensors")
    head = tensors["lm_head.weight"].clone()
    tensors[behind(0, "embed_tokens.weight")] = tensors["model.embed_tokens.weight"].clone()
    tensors[behind(0, "shared_head.head.weight")] = head.flip(0) if other_head else head
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("other_head", [False, True])
def test_ends_are_the_targets_unless_they_differ(tmp_path, other_head):
    mtp_target(tmp_path / "target", "glm4_moe")
    add_ends(tmp_path / "target", other_head)
    plan = plan_of(tmp_path)
    (layer,) = load_layers(plan.drafter.head, plan.target.folder, plan.max_length)
    stored = load_file(tmp_path / "target" / "model.safetensors")
    offsets = checkpoint_sources(tmp_path / "target").weights
    used = layer.model.get_output_embeddings().weight
    name = behind(0, "shared_head.head.weight") if other_head else "lm_head.weight"
    assert torch.equal(whole(used.data), stored[name])
    assert used.data.source.place == offsets[name].place
    embedding = layer.model.get_input_embeddings().weight.data
    assert embedding.source.place == offsets["model.embed_tokens.weight"].place
    check_rounds(plan)


def test_beside_the_text_decoder_of_a_multimodal_checkpoint(tmp_path):
    built = multimodal.model("qwen3_5")
    multimodal.save(built, tmp_path / "target", "inner")
    mtp_target(tmp_path / "text", "qwen3_5")
    layers = load_file(tmp_path / "text" / "model.safetensors")
    tensors = load_file(tmp_path / "target" / "model.safetensors")
    tensors |= {name: each for name, each in layers.items() if name.startswith("mtp.")}
    save_file(tensors, tmp_path / "target" / "model.safetensors", {"format": "pt"})
    edit_config(tmp_path / "target", lambda config: config["text_config"].update(mtp_num_hidden_layers=1))
    check_rounds(plan_of(tmp_path))


@pytest.mark.sweep("every quantizer; test_quantized_models.py reads them all in the first tier", but=["awq"])
@pytest.mark.parametrize("method", quantized_models.CONFIGS)
def test_quantized_layers_are_read_as_floats(tmp_path, method):
    """Read the matrix that joins embedding and hidden state too, by which layers are found."""
    mtp_target(tmp_path / "target", "mimo")
    quantized_models.quantize(tmp_path / "target", method)
    check_rounds(plan_of(tmp_path))


def test_tensors_of_another_layer_are_refused(tmp_path):
    mtp_target(tmp_path / "target", "mimo")
    tensors = load_file(tmp_path / "target" / "model.safetensors")
    tensors["model.mtp_layers.0.self_attn.gate.weight"] = torch.zeros(4, 4)
    save_file(tensors, tmp_path / "target" / "model.safetensors", {"format": "pt"})
    plan = plan_of(tmp_path)
    with pytest.raises(
        CheckpointError, match="1 tensors of MTP layer 0 that the decoder layer of Qwen2ForCausalLM doe"
    ):
        load_layers(plan.drafter.head, plan.target.folder, plan.max_length)


@pytest.mark.sweep("trees and proofs of bundles are the same code for all kinds; rounds are in the first tier")
@pytest.mark.parametrize(
    ("name", "n_mtp", "drafter", "more"),
    [
        ("glm4_moe", 1, "tree: {depth: 3, top_k: 3, nodes: 7}", ""),
        ("mimo", 2, "tree: [2, 1]", "precision: {target: int4, drafter: int8}"),
    ],
)
def test_generates_what_the_target_generates(tmp_path, name, n_mtp, drafter, more):
    mtp_target(tmp_path / "target", name, n_mtp)
    check_generation(plan_of(tmp_path, drafter, more), tmp_path)
