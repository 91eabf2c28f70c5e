"""Pairs whose vocabularies differ in padding alone: what is drafted, proven, generated and drawn, either way round."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from speccompile.compiler.build import build
from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.tiny_model import PADDING, VOCABULARY, tiny_round
from speccompile.compiler.models.load import load_model
from speccompile.compiler.prove.drafts import check_dynamic, check_tree, teacher
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.dynamic import DynamicDrafter
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.drafters.model.reference import paired
from speccompile.drafters.models.drafter import SeveralDrafters
from speccompile.drafters.pard.drafter import PardReader
from speccompile.errors import ProofError
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from speccompile.tree import chain, from_branching
from tests import zoo
from tests.compile.drafter_graphs import MAX_LENGTH, decoder, driven, model
from tests.compile.tiny_bundles import save
from tests.json_files import merge_json

pytestmark = pytest.mark.builds(5)

ROWS = zoo.VOCABULARY
LESS, MORE = ROWS - 90, ROWS + 40
"""Targets of a drafter of so many rows. The common range is short: a drafter that left it would do so at once."""
TREE, CHAIN = from_branching([2, 1]), chain(2)
DEPTH, TOP_K, NODES = 2, 3, 8
MASK = ROWS - 1

MAKERS: dict[str, Callable[[int], Drafter]] = {
    "chain": lambda size: FixedDrafter(DecoderReader(decoder("llama"), target_size=size), CHAIN),
    "BiLD": lambda size: FixedDrafter(DecoderReader(decoder("llama"), target_size=size), CHAIN, fallback=0.1),
    "chain, drawn": lambda size: FixedDrafter(DecoderReader(decoder("llama"), target_size=size), CHAIN, sample=True),
    "tree": lambda size: FixedDrafter(DecoderReader(decoder("llama"), target_size=size), TREE),
    "tree, drawn": lambda size: FixedDrafter(DecoderReader(decoder("llama"), target_size=size), TREE, sample=True),
    "dynamic": lambda size: DynamicDrafter(DecoderReader(decoder("llama"), target_size=size), DEPTH, TOP_K, NODES),
    "several": lambda size: SeveralDrafters([decoder("llama"), decoder("gpt2")], TREE, size),
    "masks": lambda size: FixedDrafter(PardReader(decoder("llama"), size, MASK, CHAIN.drafts - 1), CHAIN, sample=True),
}


def check(name: str, found, size: int) -> int:
    """Return values that the proof compares."""
    teachers = [paired(teacher(model(each)), ROWS, size) for each in ("llama", "gpt2")[: 1 + (name == "several")]]
    if name == "dynamic":
        return check_dynamic(found, teachers[0], DEPTH, TOP_K, MAX_LENGTH)["values"]
    if name == "masks":
        teachers = [lambda fed, drafts, each=teachers[0]: each(fed, [MASK] * len(drafts))]
    tree = TREE if name in ("tree", "tree, drawn", "several") else CHAIN
    return check_tree(found, teachers, tree, MAX_LENGTH, 0.1 if name == "BiLD" else None)["values"]


@pytest.mark.sweep("a trace each", but=["tree, drawn-312"])
@pytest.mark.parametrize("size", [LESS, MORE])
@pytest.mark.parametrize("name", MAKERS)
def test_drafts_are_those_of_transformers_among_the_common_tokens(tmp_path, name, size):
    common = min(size, ROWS)
    found = driven(MAKERS[name](size), tmp_path, size, common)
    assert check(name, found.of_proof, size) >= 30
    assert max(max(text) for text in found.script.texts) >= size - 40
    for run in filter(lambda each: "next_window" in each, found.outputs):
        assert run["next_window"][:, 1:].max() < common
        if "next_ids" in run:
            assert run["next_ids"].max() < common
            sums = run["next_probs"].sum(2)
            assert ((abs(sums - 1) < 1e-5) | (sums == 0)).all()


@pytest.mark.sweep("a trace each", but=["drawn"])
@pytest.mark.parametrize("name", ["chain", "chain, drawn"])
def test_the_proof_finds_drafts_outside_of_the_target(tmp_path, name):
    found = driven(MAKERS[name](ROWS), tmp_path, LESS)
    with pytest.raises(ProofError, match=rf"chooses among \[.*\], expected tokens of the target, 0 to {LESS - 1}$"):
        check(name, found.of_proof, LESS)


@pytest.mark.sweep("a trace each", but=["drawn"])
@pytest.mark.parametrize("name", ["chain", "chain, drawn", "dynamic"])
def test_the_proof_finds_a_token_that_is_read_as_another(tmp_path, monkeypatch, name):
    """Read a table of tokens modulo its rows: the proof fails."""
    monkeypatch.setattr(DecoderReader, "known", lambda self, tokens: tokens % ROWS)
    found = driven(MAKERS[name](MORE), tmp_path, MORE, ROWS)
    with pytest.raises(ProofError):
        check(name, found.of_proof, MORE)


TARGET, SMALLER, LARGER = 300, 280, 330
"""Rows of models with the zoo's tokenizer of 272 tokens."""

DRAFTERS = {
    "greedy, smaller": (SMALLER, "drafter: {kind: model, model: smaller, tokens: 3}"),
    "greedy, larger": (LARGER, "drafter: {kind: model, model: larger, tree: [2, 1]}"),
    "dynamic, smaller": (SMALLER, "drafter: {kind: model, model: smaller, tree: {depth: 3, top_k: 2, nodes: 6}}"),
    "several": (LARGER, "drafter: {kind: models, models: [{model: smaller}, {model: larger}], tokens: 2}"),
    "masks": (LARGER, "drafter: {kind: pard, model: larger, tokens: 3}"),
    "drawn, smaller": (SMALLER, "drafter: {kind: model, model: smaller, tree: [2, 1]}\ndecoding: sampling"),
    "drawn, larger": (LARGER, "drafter: {kind: model, model: larger, tokens: 2}\ndecoding: sampling"),
}


@cache
def with_rows(rows: int, noise: float = 0.0) -> PreTrainedModel:
    """Return the same model with more or less padding, cut by transformers itself."""
    made = zoo.model("llama", vocab_size=LARGER)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for parameter in made.parameters():
            parameter += noise * parameter.std() * torch.randn_like(parameter)
    made.resize_token_embeddings(rows)
    return made


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("padded")
    for name, rows, noise in (("target", TARGET, 0.0), ("smaller", SMALLER, 0.01), ("larger", LARGER, 0.01)):
        save(with_rows(rows, noise), folder / name)
    merge_json(folder / "larger" / "config.json", {"pard_token": LARGER - 1})
    return folder


@pytest.mark.sweep("what differs is the map of ids, which driven drafters show", but=["greedy, smaller"])
@pytest.mark.parametrize("name", DRAFTERS)
def test_a_pair_is_built_proven_and_generates_what_transformers_generates(pair, tmp_path, name):
    rows, rest = DRAFTERS[name]
    recipe = pair / f"{name}.yaml"
    recipe.write_text(
        f"name: padded\ntarget: {{model: target}}\n{rest}\n"
        f"cache: {{max_length: 96, prefill_chunk: 16, batch_size: {32 if 'drawn' in name else 2}}}\n"  # draws are many
        "prove: {max_new_tokens: 16}\n"
    )
    plan = make_plan(load_recipe(recipe))
    common = min(rows, TARGET)
    assert f"vocabularies of 300 rows in the target and {rows} in the drafter: drafts are tokens below {common}" in (
        " ".join(plan.notes)
    )
    bundle = Bundle.open(build(plan, tmp_path / "bundle"), threads=1)
    target = AutoModelForCausalLM.from_pretrained(pair / "target", attn_implementation="eager").eval()
    beyond, accepted = 0, 0.0
    for prompt in ([5, 290, 17, 299] * 3, [*range(271, 300)], [299], [9, 11, 13]):
        found = bundle.generate(prompt, max_new_tokens=40, adaptive=False)
        ids = torch.tensor([prompt])
        expected = target.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=40, eos_token_id=None
        )
        assert found.token_ids == expected[0, len(prompt) :].tolist()
        assert bundle.generate(prompt, max_new_tokens=40, autoregressive=True).token_ids == found.token_ids
        beyond += sum(token >= common for token in found.token_ids)
        accepted += found.mean_accepted / 4
    assert rows > TARGET or beyond
    assert accepted > 1.3 or name == "masks"  # the model was never taught to read them


def test_the_small_model_of_the_distribution_proof_has_the_same_padding(pair, tmp_path):
    (pair / "small.yaml").write_text(f"name: padded\ntarget: {{model: target}}\n{DRAFTERS['several'][1]}\n")
    small = tiny_round(open_round(make_plan(load_recipe(pair / "small.yaml"))), tmp_path)
    sizes = [each.vocabulary_size for each in (small.target, *small.models)]
    assert sizes == [VOCABULARY, VOCABULARY - PADDING, VOCABULARY + PADDING]
    for each in small.models:
        load_model(each.folder, small.max_length)
