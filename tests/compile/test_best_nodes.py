"""Trees of the best nodes of one pass (DDTree): against all paths, tried one by one, and a bundle that draws."""

import numpy as np
import pytest
import torch

from speccompile.runtime import Bundle
from tests.compile.eager_rounds import PROMPTS, check_generation, each_round, plan_of
from tests.compile.test_family_dflash import WRITERS as DFLASH
from tests.compile.test_family_rounds import HEADS

NODES, DEPTH = 5, 3
TREE = f"tree: {{kind: blocks, nodes: {NODES}, depth: {DEPTH}}}"
WRITERS = {
    "dflash": DFLASH["plain"],
    "dflash, own vocabulary": DFLASH["own vocabulary, window from the anchor"],
    "dflash2": DFLASH["DFlash2"],
    "domino": HEADS["domino"]["anchor"],
    **{f"dspark, {name}": writer for name, writer in HEADS["dspark"].items()},
    "medusa": HEADS["medusa"]["own"],
    "medusa, own vocabulary": HEADS["medusa"]["mapped"],
    "p_eagle": HEADS["p_eagle"]["own vocabulary"],
    "pard": HEADS["pard"]["a language model"],
    "pard2": HEADS["pard2"]["Llama"],
}


def all_paths(teacher, fed):
    """Return path -> joint log-probability of all paths through the NODES best tokens of every node."""
    found, level = {}, {(): 0.0}
    for _ in range(DEPTH):
        below = {}
        for path, score in level.items():
            logits = teacher(fed, list(path))[-1].astype(np.float64)
            logs = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
            for token in np.argsort(-logs)[:NODES].tolist():
                below[*path, token] = score + logs[token]
        found |= below
        level = below
    return found


@torch.no_grad()
@pytest.mark.parametrize("name", WRITERS)
def test_the_nodes_are_the_best_of_all_paths(tmp_path, name):
    kind = name.partition(",")[0]
    plan = plan_of(tmp_path, WRITERS[name], f"kind: {'dflash' if kind == 'dflash2' else kind}, {TREE}")
    for teacher, fed, (tokens, parents) in each_round(plan, windows=(7, 4)):
        paths = [()]
        for token, parent in zip(tokens[1:], parents[1:], strict=True):
            paths.append((*paths[parent], token))
        scores = all_paths(teacher, fed)
        wanted = sorted(scores, key=lambda path: -scores[path])[:NODES]
        assert sorted(scores[path] for path in paths[1:]) == pytest.approx(
            sorted(scores[path] for path in wanted), abs=1e-4
        )


@pytest.mark.sweep("a bundle each, with its proof")
@pytest.mark.parametrize("kind", ["medusa", "p_eagle", "pard"])
def test_a_bundle_of_logits_that_are_independent(tmp_path, kind):
    check_generation(plan_of(tmp_path, WRITERS[kind], f"kind: {kind}, {TREE}"), tmp_path)


@pytest.mark.sweep("a bundle with its proof, which draws")
def test_a_bundle_that_draws_is_exact(tmp_path):
    """Compare distributions in the proof; at temperature 0, compare tokens with those of the target alone."""
    plan = plan_of(tmp_path, WRITERS["dspark, vanilla"], f"kind: dspark, {TREE}", "decoding: sampling")
    check_generation(plan, tmp_path)
    bundle = Bundle.open(tmp_path / "bundle", threads=1)
    drawn = [bundle.generate(PROMPTS[0], max_new_tokens=8, temperature=1.0, seed=seed).token_ids for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
