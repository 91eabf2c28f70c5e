"""Early exit: the target's first layers draft over the target's own caches. TensorRT: some of its halves do."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from speccompile.bundle import open_bundle
from speccompile.compiler.build import build
from speccompile.compiler.lower.signatures import draft_graph
from speccompile.compiler.step.draft.dynamic import DynamicDrafter
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.target_layers import LayersReader
from speccompile.contract import BATCH, Graph
from speccompile.drafters.layer_skip.drafter import skip_layers
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from speccompile.tree import from_branching
from tests import zoo
from tests.compile.drafter_graphs import ROWS, decoder
from tests.compile.tiny_bundles import save
from tests.heads.every import HEADS

pytestmark = pytest.mark.builds(3)

DRAFTS, EXIT, NEW_TOKENS = 3, 1, 30


def target() -> PreTrainedModel:
    """Return one with a sliding window that is shorter than the prompts, and a last layer that says little."""
    model = zoo.model("mistral")
    with torch.no_grad():
        for parameter in model.model.layers[1].parameters():
            parameter *= 0.7 if parameter.dim() > 1 else 1.0
    return model


def make(folder: Path, drafter: str, *sections: str, layers: str = "[0]", prove: bool = True) -> Path:
    save(target(), folder / "target", tokenizer=False)
    cache = "cache: {max_length: 112, prefill_chunk: 16, batch_size: 2}"
    written = f"drafter: {{kind: layer_skip, layers: {layers}, {drafter}}}"
    (folder / "recipe.yaml").write_text("\n".join(("name: tiny", "target: {model: target}", written, cache, *sections)))
    build(make_plan(load_recipe(folder)), folder / "bundle", prove=prove)
    return folder / "bundle"


def prompts() -> list[list[int]]:
    random = np.random.default_rng(5)
    return [random.integers(3, zoo.VOCABULARY, length).tolist() for length in (50, 7)]


@torch.no_grad()
def rounds(model: PreTrainedModel, cut: PreTrainedModel, prompt: list[int]) -> tuple[list[int], list[int]]:
    """Return tokens, and tokens of each round, where a model that was cut behind its first layers drafts; no caches."""

    def best(which: PreTrainedModel, text: list[int]) -> list[int]:
        found: list[int] = which(input_ids=torch.tensor([text]), use_cache=False).logits[0].argmax(-1).tolist()
        return found

    text, n_tokens = [*prompt, best(model, prompt)[-1]], list[int]()
    while len(text) < len(prompt) + NEW_TOKENS:
        drafts = list[int]()
        for _ in range(DRAFTS):
            drafts.append(best(cut, [*text, *drafts])[-1])
        verified = best(model, [*text, *drafts])[len(text) - 1 :]
        accepted = next((i for i, draft in enumerate(drafts) if verified[i] != draft), DRAFTS)
        text += verified[: accepted + 1]
        n_tokens.append(accepted + 1)
    return text[len(prompt) : len(prompt) + NEW_TOKENS], n_tokens


@pytest.mark.sweep("a bundle each", but=["fused"])
@pytest.mark.parametrize("graphs", ["fused", "separate"])
def test_drafts_are_those_of_the_model_cut_to_its_first_layers(tmp_path: Path, graphs: str) -> None:
    """Compare tokens with transformers' own early exit, and with greedy decoding."""
    path = make(tmp_path, f"tokens: {DRAFTS}", f"graphs: {graphs}", prove=graphs == "separate")
    bundle, model, cut = Bundle.open(path, threads=1), target().eval(), target().eval()
    cut.model.layers = cut.model.layers[:EXIT]
    found = bundle.generate_batch(prompts(), max_new_tokens=NEW_TOKENS, adaptive=False)
    for generation, prompt in zip(found, prompts(), strict=True):
        tokens, n_tokens = rounds(model, cut, prompt)
        assert (generation.token_ids, generation.path_lengths) == (tokens, n_tokens)
        ids = torch.tensor([prompt])
        early = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS,
            assistant_early_exit=EXIT,
        )  # fmt: skip
        assert early[0, len(prompt) :].tolist() == tokens
        assert max(n_tokens) > 2
    if graphs == "separate":
        assert [tensor.name for tensor in draft_of(bundle).inputs] == [
            "path", "n_path", "length", "target.key.0", "target.value.0"
        ]  # fmt: skip
        assert draft_of(bundle).aliases == {}


def draft_of(bundle: Bundle) -> Graph:
    return next(graph for graph in bundle.manifest.graphs if graph.name == "draft")


def test_shapes_of_every_kind_borrow_and_catch_up_on_nothing() -> None:
    reader = LayersReader(skip_layers(decoder("gemma2"), [0, 1]))
    for drafter in (FixedDrafter(reader, from_branching([2, 1])), DynamicDrafter(reader, 3, 2, 6)):
        assert (drafter.states(), drafter.catch_up) == ([], 0)
        graph = draft_graph(drafter, 2)
        borrowed = [tensor for tensor in graph.inputs if tensor.role == "state"]
        assert [tensor.name for tensor in borrowed] == [f"target.{k}.{i}" for i in range(2) for k in ("key", "value")]
        assert {tensor.shape for tensor in borrowed} == {(BATCH, 2, ROWS, 16)}
        assert "catch_up" not in {tensor.name for tensor in graph.inputs}


@pytest.mark.sweep("engines take longest")
@pytest.mark.parametrize(
    ("graphs", "drafter", "layers"),
    [
        ("separate", "tree: {depth: 2, top_k: 2, nodes: 4}", "[0]"),
        ("separate", "tokens: 2", "{attention: [0], mlp: [1]}"),
        ("fused", "tree: [2, 1]", "[0]"),
    ],
)
def test_tensorrt_reads_caches_that_another_graph_or_it_itself_updates(
    tmp_path: Path, graphs: str, drafter: str, layers: str
) -> None:
    rtx = "engines: [{backend: tensorrt_rtx, compute_capability: '8.6', precision: {target: float16}}]"
    opened = open_bundle(make(tmp_path, drafter, f"graphs: {graphs}", rtx, layers=layers, prove=False))
    (entry,) = opened.manifest.engines
    name = "step" if graphs == "fused" else "draft"
    (graph,) = (each for each in entry.graphs if each.name == name)
    assert {t.name: t.dtype for t in graph.inputs if t.role == "state"}["target.key.0"] == "float16"
    assert entry.build is not None
    assert entry.build.reports[name]["aliases"] == graph.aliases
    assert len(graph.aliases) == (4 if graphs == "fused" else 0)


@pytest.mark.sweep("a bundle each, with its proof; combinations.py has pairs on states in the first tier")
@pytest.mark.parametrize(
    ("name", "drafter"),
    [
        ("mamba2", "kind: layer_skip, layers: [0]"),
        ("falcon_h1", "kind: layer_skip, layers: [0]"),
        ("lfm2", "kind: assistant, model: head"),
    ],
)
def test_what_drafts_over_caches_of_a_target_with_states_is_proven(tmp_path: Path, name: str, drafter: str) -> None:
    """transformers reads on from its own states: alone, beside keys and values, and between them."""
    save(zoo.model(name), tmp_path / "target", tokenizer=False)
    if "head" in drafter:
        HEADS["assistant"](tmp_path / "head", zoo.config(name))
    cache = "cache: {max_length: 64, prefill_chunk: 16}\nprove: {max_new_tokens: 4}"
    (tmp_path / "recipe.yaml").write_text(
        f"name: tiny\ntarget: {{model: target}}\ndrafter: {{{drafter}, tokens: 2}}\n{cache}"
    )
    build(make_plan(load_recipe(tmp_path)), tmp_path / "bundle")
    proof = open_bundle(tmp_path / "bundle").proof
    assert "draft" in {row["graph"] for row in proof["graphs"]}
