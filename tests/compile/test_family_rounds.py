"""Heads and draft models that read hidden states of the target: torch modules against references, and bundles.

A reference computes the method's formula over the whole text at once; rounds read a window each.
"""

from functools import partial

import pytest

from tests import zoo
from tests.compile.eager_rounds import check_generation, check_rounds, plan_of
from tests.compile.tiny_bundles import noisy, save
from tests.heads import dflash
from tests.heads.eagle import eagle
from tests.heads.hydra import hydra
from tests.heads.medusa import faster_decoding, vllm
from tests.heads.p_eagle import p_eagle
from tests.heads.pard2 import MASK, pard2
from tests.heads.redrafter import redrafter
from tests.json_files import merge_json

pytestmark = pytest.mark.builds(2)


def pard(folder, target):
    """Write a language model like the target, whose config names a mask token."""
    save(noisy("llama", 0.02), folder, tokenizer=False)
    merge_json(folder / "config.json", {"pard_token": MASK})


def hydra_with_embedding(folder, target):
    """Write the original's state dict, which has the target's embedding."""
    return hydra(folder, target, embedding=zoo.model("llama").get_input_embeddings().weight.data)


HEADS = {
    "domino": {
        "masks alone": dflash.domino,
        "anchor": partial(dflash.domino, own={"shift_label": True, "pure_draft_prefix_len": 0}, prefix="logit_head."),
        "own vocabulary": partial(dflash.speculators, kind="domino", draft_size=64),
    },
    "dspark": {
        "vanilla": partial(dflash.deepspec, markov=dflash.MARKOV),
        "gated, own vocabulary, masks alone": partial(
            dflash.speculators, kind="dspark", draft_size=64, markov_head_type="gated", sample_from_anchor=False
        ),
        "rnn": partial(dflash.specforge, own={"markov_head_type": "rnn"}),
        "neither head": partial(dflash.specforge, own={"markov_rank": 0, "enable_confidence_head": False}),
    },
    "eagle": {"official": eagle, "nested": partial(eagle, dialect="nested", bias=False, layers=2)},
    "hydra": {
        "hydra": partial(hydra, layers=1),
        "own embedding": hydra_with_embedding,
        "hydra++": partial(hydra, prefix=True),
        "without tokens": partial(hydra, grounded=False, hidden_state_offset=1),
    },
    "medusa": {
        "own": faster_decoding,
        "the target's projection": partial(faster_decoding, projections=False, layers=1),
        "shared": partial(vllm, shared=True, own=100),
        "mapped": partial(vllm, own=100, narrowed=False, bias=False),
    },
    "p_eagle": {
        "own vocabulary": partial(p_eagle, dialect="vllm", draft_size=100),
        "norm before": partial(p_eagle, dialect="vllm", norm_before_residual=True),
        "one layer": partial(p_eagle, dialect="specforge", layers=1),
    },
    "pard": {"a language model": pard},
    "pard2": {
        "Llama": pard2,
        "Qwen 3, bias, tied, checkpoint": partial(pard2, model_type="qwen3", bias=True, tied=True, checkpoint=True),
    },
    "redrafter": {
        "cell": redrafter,
        "cell, projected": partial(redrafter, exit_dim=24, layers=1),
        "sum, within a model": partial(redrafter, rnn=False, prefix="drafter."),
    },
}
"""Drafting method -> variant of its head -> what writes one beside a target."""
ROUNDS = [
    *((kind, head, "") for kind in ("domino", "dspark") for head in HEADS[kind]),
    *(("eagle", head, "tokens: 3") for head in HEADS["eagle"]),
    *((kind, head, f"tokens: {n}") for kind in ("hydra", "medusa") for head in HEADS[kind] for n in (3, 1)),
    *(("p_eagle", head, f"tokens: {n}") for head, n in zip(HEADS["p_eagle"], (4, 1, 3), strict=True)),
    *((kind, head, f"tokens: {n}") for kind in ("pard", "pard2", "redrafter") for head in HEADS[kind] for n in (4, 1)),
]


@pytest.mark.parametrize(("kind", "head", "drafter"), ROUNDS)
def test_drafts_of_rounds_are_those_of_the_whole_text(kind, head, drafter, tmp_path):
    plan = plan_of(tmp_path, HEADS[kind][head], f"kind: auto, {drafter}")
    assert plan.drafter.kind == kind
    check_rounds(plan)


@pytest.mark.sweep(
    "trees and proofs of bundles are the same code for all kinds", but=["medusa-the target's projection"]
)
@pytest.mark.parametrize(
    ("kind", "head", "drafter", "more", "graphs"),
    [
        ("domino", "anchor", "tree: {kind: blocks, nodes: 9}", "", "fused"),
        ("domino", "anchor", "tokens: 4", "decoding: sampling", "fused"),
        ("eagle", "official", "tree: {depth: 3, top_k: 3, nodes: 7}", "", "fused"),
        ("hydra", "hydra++", "tree: [2, 2, 1]", "graphs: separate", "separate"),
        ("hydra", "hydra++", "tree: {depth: 3, top_k: 3, nodes: 7}", "", "fused"),
        ("medusa", "shared", "tree: [3, 2, 1]", "", "separate"),
        ("medusa", "the target's projection", "tree: [2, 2]", "graphs: fused", "fused"),
        ("p_eagle", "own vocabulary", "tokens: 3", "", "fused"),
        ("pard", "a language model", "tokens: 4", "", "separate"),
        ("pard2", "Llama", "tokens: 4", "", "fused"),
        ("pard2", "Llama", "tokens: 4", "decoding: sampling\ngraphs: separate", "separate"),
        ("redrafter", "cell", "tokens: 3", "decoding: sampling\ngraphs: separate", "separate"),
        ("redrafter", "cell", "tree: {depth: 3, top_k: 3, nodes: 7}", "", "fused"),
    ],
)
def test_generates_what_the_target_generates(kind, head, drafter, more, graphs, tmp_path):
    plan = plan_of(tmp_path, HEADS[kind][head], f"kind: auto, {drafter}", more)
    assert (plan.drafter.kind, plan.graphs) == (kind, graphs)
    check_generation(plan, tmp_path)
