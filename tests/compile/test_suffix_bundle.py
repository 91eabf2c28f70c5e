"""Bundles of kind suffix: their tokens are transformers' own, whatever is kept, and kept answers are drafted again."""

import numpy as np
import pytest

from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import NEW_TOKENS, REPEATED, Built, save

pytestmark = pytest.mark.builds(2)

CACHE = "cache: {max_length: 96, prefill_chunk: 16, batch_size: 2}"
RECIPES = {
    "chain": f"drafter: {{kind: suffix, tokens: 4, remember: 512}}\n{CACHE}",
    "tree": f"drafter: {{kind: suffix, tree: {{depth: 4, top_k: 3, nodes: 9}}, remember: 512}}\n{CACHE}\n"
    "decoding: sampling",
}


@pytest.fixture(
    scope="module",
    params=["chain", pytest.param("tree", marks=pytest.mark.sweep("a tree that samples, with its proof"))],
)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the tree with its proof; test_drafters.py compares the graph of a chain with its module."""
    folder = tmp_path_factory.mktemp(request.param)
    save(zoo.model("gpt2"), folder / "target")
    rest = f"{RECIPES[request.param]}\nprove: {{max_new_tokens: 16}}"
    (folder / "recipe.yaml").write_text(f"name: tiny\ntarget: {{model: target}}\n{rest}\n")
    build(make_plan(load_recipe(folder)), folder / "bundle", prove=request.param == "tree")
    return Built(folder)


def kept(bundle: Bundle) -> dict[str, np.ndarray]:
    """Return the states that outlive a generation."""
    graph = next(graph for graph in bundle.manifest.graphs if graph.name == "draft")
    states = [tensor for tensor in graph.inputs if tensor.buffer.startswith("kept.")]
    return {each.buffer: bundle._loop.rounds.engine.host_view(each.buffer, each.concrete_shape({})) for each in states}


def test_tokens_are_those_of_transformers_whatever_was_kept(built: Built) -> None:
    prompts = built.prompts()
    for _ in range(2):
        for pair in (prompts[:2], prompts[2:4], prompts[4:6], prompts[6:]):
            found = built.bundle.generate_batch(pair, max_new_tokens=NEW_TOKENS, adaptive=False)
            assert [each.token_ids for each in found] == [built.reference(prompt) for prompt in pair]


def test_what_is_kept_may_be_anything(built: Built) -> None:
    random = np.random.default_rng(3)
    for state in kept(built.bundle).values():
        state[:] = random.integers(-(2**20), 2**20, state.shape)
    generation = built.bundle.generate(REPEATED, max_new_tokens=NEW_TOKENS, adaptive=False)
    assert generation.token_ids == built.reference(REPEATED)


def test_an_answer_that_is_given_again_takes_fewer_rounds(built: Built) -> None:
    bundle = built.bundle
    temperature = 1.0 if bundle.manifest.decoding == "sampling" else 0.0
    for state in kept(bundle).values():
        state[:] = 0
    prompt = np.random.default_rng(11).integers(3, zoo.VOCABULARY, 20).tolist()
    settings = {"temperature": temperature, "seed": 5} if temperature else {}
    alone = bundle.generate(prompt, max_new_tokens=40, autoregressive=True, **settings)
    first, second = (bundle.generate(prompt, max_new_tokens=40, adaptive=False, **settings) for _ in range(2))
    assert alone.token_ids == first.token_ids == second.token_ids
    assert second.mean_accepted > max(first.mean_accepted, 3.0)
