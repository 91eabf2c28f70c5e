"""New DFlash, DSpark, Kangaroo, PaSS and BiTA drafters: what is written is read, learns, and is built."""

from dataclasses import replace

import pytest
import torch

from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.initialization import mask_token
from speccompile.drafters.sizes import UNUSED
from speccompile.drafters.trainable import NewDrafter
from speccompile.drafters.weights import TargetEmbeddings
from speccompile.errors import RecipeError
from speccompile.plan.recipe_source import RecipeSource
from speccompile.recipe.drafter_shape import decide_shape
from tests import zoo
from tests.train import tiny_drafters
from tests.train.students import BUILT, check_computed_again, check_learns, check_said, check_saved

NEW = {
    "dflash": ("dflash", {"sizes": {"layers": 2}}, ("layers.1.output",), 3),
    "dflash, more taps": ("dflash", {"taps": ("layers.0.input", "layers.0.output", "layers.1.output")}, None, 3),
    "dspark": ("dspark", {"sizes": {"heads": 8, "kv_heads": 2, "head_dim": 8}}, ("layers.1.output",), 3),
    "dspark, DeepSpec": ("dspark", {"dialect": "DeepSpec", "sizes": {"markov_head_type": "rnn"}}, None, 3),
    "domino": ("domino", {"sizes": {"gru_hidden_dim": 12, "layers": 2}}, None, 3),
    "kangaroo": ("kangaroo", {"sizes": {"layers": 2}}, ("layers.0.output",), None),
    "pass": ("pass", {}, (), 3),
    "bita": ("bita", {"sizes": {"prompts": 3}}, (), 3),
}

LATER = ("markov_w1", "joint_proj", "gate_proj")
"""Behind a matrix of zeros."""


@pytest.fixture(params=NEW)
def begun(request, tmp_path):
    """Return the plan of a drafter that has just begun, and what is expected of it."""
    kind, asked, taps, tokens = NEW[request.param]
    model = tiny_drafters.target(tmp_path)
    tiny_drafters.begin(tmp_path, model, kind, **asked)
    plan = tiny_drafters.planned(tmp_path, kind)
    return plan, asked.get("taps", taps), tokens, asked.get("dialect", DRAFTING_METHODS[kind].training.dialects[0])


def test_what_is_written_is_read(begun):
    plan, taps, tokens, dialect = begun
    head = plan.drafter.head
    assert (head.kind, head.dialect, head.tokens) == (plan.drafter.kind, dialect, tokens)
    assert head.taps == taps or taps is None
    assert not any("sample_from_anchor" in note for note in head.notes)


def test_it_says_what_the_reference_says_and_learns(begun):
    plan, *_ = begun
    check_said(plan, 3)
    check_computed_again(plan, 3)
    check_saved(plan, check_learns(plan, 3, LATER), 3)


@pytest.mark.parametrize("kind", ["pass", "bita"])
def test_a_target_that_is_read_while_rows_of_it_learn_drops_nothing_out(kind, tmp_path):
    """GPT-2 says in its config what its own training dropped."""
    model = tiny_drafters.target(tmp_path, "gpt2", resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    tiny_drafters.begin(tmp_path, model, kind)
    student = tiny_drafters.student(tiny_drafters.context(tmp_path, model, kind))
    seen = tiny_drafters.seen(model, student.taps)
    with torch.no_grad():
        learning, evaluated = (student.train(mode)(seen, torch.tensor([[3, 6], [4, 8]]), 3) for mode in (True, False))
    assert all(map(torch.equal, learning, evaluated))


@pytest.mark.sweep(BUILT)
@pytest.mark.parametrize("kind", ["dflash", "dspark", "kangaroo", "pass", "bita"])
def test_it_is_built(kind, tmp_path):
    model = tiny_drafters.target(tmp_path)
    tiny_drafters.begin(tmp_path, model, kind)
    tiny_drafters.check_built(tmp_path, kind)


@pytest.mark.parametrize("layers", [2, 3, 5, 7, 8, 12, 36])
def test_default_taps_differ_and_are_there(layers):
    for kind in ("dflash", "dspark", "kangaroo"):
        taps = DRAFTING_METHODS[kind].training.taps(layers)
        assert len(set(taps)) == len(taps)
        assert all(0 <= int(tap.split(".")[1]) < layers for tap in taps)


def test_default_taps_are_those_of_published_heads():
    """z-lab's for Qwen3-8B and its 36 layers, and Kangaroo's for Vicuna 7B and 13B."""
    taps = DRAFTING_METHODS["dflash"].training.taps(36)
    assert taps == tuple(f"layers.{layer}.output" for layer in (1, 9, 17, 25, 33))
    kangaroo = DRAFTING_METHODS["kangaroo"].training.taps
    assert (kangaroo(32), kangaroo(40)) == (("layers.1.output",), ("layers.2.output",))


@pytest.fixture
def wanted():
    """Return a DFlash head for a target whose padding is token 0."""
    model = zoo.model("llama")
    sizes = {"mask_token": UNUSED}
    return NewDrafter(
        model.config.to_dict(), TargetEmbeddings(lambda: model), 3, sizes, (), None, "z-lab", "some/target", 0
    )


def test_masks_are_a_token_that_no_text_has(wanted):
    assert mask_token(wanted) == zoo.PAD
    counts = torch.ones(zoo.VOCABULARY, dtype=torch.int64)
    counts[[7, 9, 30]] = 0
    table = wanted.ends.embed.table
    assert mask_token(replace(wanted, counts=counts)) == min((7, 9, 30), key=lambda token: float(table[token].norm()))
    counts[zoo.PAD] = 0
    assert mask_token(replace(wanted, counts=counts)) == zoo.PAD
    assert mask_token(replace(wanted, sizes={"mask_token": 44}, counts=counts)) == 44


def test_a_token_that_ends_texts_is_none(wanted):
    ended = replace(wanted, config=wanted.config | {"eos_token_id": [7, zoo.PAD]})
    with pytest.raises(RecipeError, match=r"train.shape.mask_token: received 'unused' and no padding in config.json"):
        mask_token(ended)
    counts = torch.ones(zoo.VOCABULARY, dtype=torch.int64)
    counts[7] = 0
    with pytest.raises(RecipeError, match="texts that have every token of the target"):
        mask_token(replace(ended, counts=counts))


def test_what_a_mask_token_may_be(tmp_path):
    sizes, config, origin = (
        DRAFTING_METHODS["dflash"].training.sizes,
        zoo.config("llama").to_dict(),
        RecipeSource(tmp_path),
    )
    assert decide_shape(sizes, config, {}, origin)["mask_token"] == UNUSED
    assert decide_shape(sizes, config, {"mask_token": 5}, origin)["mask_token"] == 5
    for wrong, expected in (("other", UNUSED), (zoo.VOCABULARY, "at most"), (True, UNUSED), (-1, "from 0 on")):
        with pytest.raises(RecipeError, match=rf"train.shape.mask_token: received .*{expected}"):
            decide_shape(sizes, config, {"mask_token": wrong}, origin)


@pytest.mark.parametrize(
    ("kind", "taps", "received"),
    [
        ("dflash", ("norm.output",), "'norm.output'"),
        ("dspark", ("layers.1.input", "layers.0.output"), "layers.1.input, layers.0.output"),
        ("kangaroo", ("layers.0.output", "layers.1.output"), "[layers.0.output, layers.1.output]"),
        ("kangaroo", ("layers.1.input",), "[layers.1.input]"),
    ],
)
def test_taps_that_the_dialect_cannot_say_are_refused(kind, taps, received):
    training = DRAFTING_METHODS[kind].training
    assert training.refusal(training.dialects[0], training.taps(4), {}) is None
    assert training.refusal(training.dialects[0], taps, {})[:2] == ("taps", received)


def test_a_block_of_fewer_drafts_is_refused(tmp_path):
    model = tiny_drafters.target(tmp_path)
    tiny_drafters.begin(tmp_path, model, "dflash", depth=2)
    with pytest.raises(RecipeError, match=r"train.depth: received 3 drafts, expected at most 2"):
        tiny_drafters.student(tiny_drafters.context(tmp_path, model, "dflash", ", tokens: 2"), 3)


def test_one_draft_needs_no_mask(tmp_path):
    with pytest.raises(RecipeError, match=r"train.depth: received 1, expected 2 or more"):
        tiny_drafters.begin(tmp_path, tiny_drafters.target(tmp_path), "pass", depth=1)
