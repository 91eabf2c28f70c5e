"""Kangaroo's adapter in whole bundles, against the published loop over transformers' own hidden states."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRMSNorm, LlamaRotaryEmbedding

from speccompile.compiler.build import build, distribution_proof
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import save
from tests.heads.kangaroo import kangaroo
from tests.light.forced_lengths import forced_lengths

pytestmark = pytest.mark.builds(2)

DRAFTS, THRESHOLD, NEW_TOKENS = 4, 0.4, 30
CACHE = "cache: {max_length: 112, prefill_chunk: 16, batch_size: 2}"
ARCHITECTURE = "mistral"
"""With a sliding window that is shorter than the prompts."""


def make(folder: Path, drafter: str, *sections: str, layers: int = 1, prove: bool = True) -> Bundle:
    """Make the bundle of a target whose last layer says little and whose head is sure: an adapter that says little as
    well is then often right."""
    model = zoo.model(ARCHITECTURE)
    with torch.no_grad():
        for parameter in model.model.layers[1].parameters():
            parameter *= 0.6 if parameter.dim() > 1 else 1.0
        model.get_output_embeddings().weight *= 3
    save(model, folder / "target", tokenizer=False)
    kangaroo(folder / "head", model.config, layers=layers, scale=0.4, exit_layer=1)
    lines = ("name: tiny", "target: {model: target}", f"drafter: {{model: head, {drafter}}}", CACHE, *sections)
    (folder / "recipe.yaml").write_text("\n".join(lines))
    build(make_plan(load_recipe(folder)), folder / "bundle", prove=prove)
    return Bundle.open(folder / "bundle", threads=1)


@dataclass
class Adapter:
    """The published formula with transformers' attention, over a whole text."""

    layers: list[tuple[LlamaAttention, LlamaRMSNorm]]
    norm: LlamaRMSNorm
    rotary: LlamaRotaryEmbedding

    @classmethod
    def load(cls, folder: Path, width: int) -> "Adapter":
        tensors = torch.load(folder / "pytorch_model.bin", weights_only=True)
        count = sum(name.endswith("input_layernorm.weight") for name in tensors)
        config = LlamaConfig(
            hidden_size=width, num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-5, num_hidden_layers=count
        )
        config._attn_implementation = "eager"

        def norm(name: str) -> LlamaRMSNorm:
            made = LlamaRMSNorm(width, 1e-5)
            made.weight.data = tensors[name]
            return made

        layers = []
        for index in range(count):
            attention, prefix = LlamaAttention(config, index), f"layers.{index}.self_attn."
            attention.load_state_dict(
                {f"{each}_proj.weight": tensors[f"{prefix}{each}_proj.weight"] for each in "qkvo"}
            )
            layers.append((attention, norm(f"layers.{index}.input_layernorm.weight")))
        return cls(layers, norm("norm.weight"), LlamaRotaryEmbedding(config))

    def __call__(self, x: Tensor) -> Tensor:
        """Map [1, T, h] to [1, T, h]."""
        size = x.shape[1]
        hidden = torch.full((size, size), float("-inf")).triu(1)[None, None]
        turn = self.rotary(x, torch.arange(size)[None])
        for attention, norm in self.layers:
            x = x + attention(norm(x), turn, hidden)[0]
        return self.norm(x)


@torch.no_grad()
def published(model: PreTrainedModel, adapter: Adapter, prompt: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Return the tokens, and of each round its drafts and tokens, as `kangaroo_forward` of the published code does:
    it drafts until it has been unsure of a draft, which is verified too."""

    def run(text: list[int]) -> Any:
        return model(input_ids=torch.tensor([text]), output_hidden_states=True, use_cache=False)

    text = [*prompt, int(run(prompt).logits[0, -1].argmax())]
    n_drafts, n_tokens = list[int](), list[int]()
    while len(text) < len(prompt) + NEW_TOKENS:
        drafts, score = list[int](), 1.0
        while len(drafts) < DRAFTS and score >= THRESHOLD:
            hidden = adapter(run([*text, *drafts]).hidden_states[1])[0, -1]
            probs = functional.softmax(model.get_output_embeddings()(hidden), -1)
            drafts.append(int(probs.argmax()))
            score = float(probs.max())
        best = run([*text, *drafts]).logits[0, len(text) - 1 :].argmax(-1).tolist()
        accepted = next((i for i, draft in enumerate(drafts) if best[i] != draft), len(drafts))
        text += best[: accepted + 1]
        n_drafts.append(len(drafts))
        n_tokens.append(accepted + 1)
    return text[len(prompt) : len(prompt) + NEW_TOKENS], n_drafts, n_tokens


def prompts() -> list[list[int]]:
    random = np.random.default_rng(5)
    return [random.integers(3, zoo.VOCABULARY, length).tolist() for length in (50, 7)]


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bundle]:
    folder = tmp_path_factory.mktemp("kangaroo")
    return folder, make(folder, f"tokens: {DRAFTS}, threshold: {THRESHOLD}", layers=2, prove=False)


def test_rounds_are_those_of_the_published_loop(fused: tuple[Path, Bundle]) -> None:
    folder, bundle = fused
    model = type(zoo.model(ARCHITECTURE)).from_pretrained(folder / "target", attn_implementation="eager").eval()
    adapter = Adapter.load(folder / "head", model.config.hidden_size)
    found = set()
    for generation, prompt in zip(
        bundle.generate_batch(prompts(), max_new_tokens=NEW_TOKENS, adaptive=False), prompts(), strict=True
    ):
        tokens, n_drafts, n_tokens = published(model, adapter, prompt)
        assert generation.token_ids == tokens
        assert (generation.draft_lengths, generation.path_lengths) == (n_drafts, n_tokens)
        found |= set(n_drafts)
        assert generation.mean_accepted > 1.2
    assert len(found) > 2
    assert 0 not in found


def test_the_graph_reads_the_target_s_caches_and_keeps_its_own(fused: tuple[Path, Bundle]) -> None:
    _, bundle = fused
    step = next(graph for graph in bundle.manifest.graphs if graph.name == "step")
    states = [tensor.name for tensor in step.inputs if tensor.role == "state"]
    own = [f"drafter.{kind}.{layer}" for layer in range(2) for kind in ("key", "value")]
    assert states == [f"target.{kind}.{layer}" for layer in range(2) for kind in ("key", "value")] + own
    assert (bundle.manifest.catch_up, "pairs" in {tensor.name for tensor in step.inputs}) == (DRAFTS + 1, False)


def test_rounds_may_stop_drafting_and_begin_again(fused: tuple[Path, Bundle], monkeypatch: pytest.MonkeyPatch) -> None:
    _, bundle = fused
    expected = [one.token_ids for one in bundle.generate_batch(prompts(), max_new_tokens=40, autoregressive=True)]
    lengths = set()
    for wanted in ([9, 9, 2, 1, 1, 9, 9, 2, 1, 9], [1, 1, 1, 9, 9, 1, 2], [9, *[1] * 7, 9]):
        monkeypatch.setattr(bundle._loop.drafting, "policy", forced_lengths(bundle, wanted))
        found = bundle.generate_batch(prompts(), max_new_tokens=40)
        assert [one.token_ids for one in found] == expected
        lengths |= {length for one in found for length in one.path_lengths}
    assert max(lengths) > 2


@pytest.mark.sweep("a bundle that samples, with its proof")
def test_drawn_drafts_of_separate_graphs_are_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prove drafts, stops and probabilities against the formula, and the distribution against the target's."""
    monkeypatch.setattr(distribution_proof, "SMALL_SAMPLES", 300)
    monkeypatch.setattr(distribution_proof, "sample_count", lambda size: 100)
    bundle = make(tmp_path, "tokens: 3, threshold: 0.3", "decoding: sampling", "graphs: separate",
                  "precision: {target: int8}", "prove: {max_new_tokens: 8}")  # fmt: skip
    proof = json.loads((tmp_path / "bundle" / "proof.json").read_text())
    assert ("draft", "neutral against eager") in {(row["graph"], row["level"]) for row in proof["graphs"]}
    assert bundle.manifest.sample
    for settings in ({}, {"temperature": 0.8, "seed": 3}):
        found = bundle.generate_batch(prompts(), max_new_tokens=20, **settings)
        assert bundle.generate_batch(prompts(), max_new_tokens=20, **settings)[1].token_ids == found[1].token_ids
