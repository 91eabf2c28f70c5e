"""Folders of PaSS's and BiTA's trained rows -> their description, and what is refused."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from speccompile.errors import CheckpointError, RecipeError
from speccompile.recipe import load_recipe, make_plan
from tests.heads import WIDTH, random_tensors, write
from tests.heads.every import bita, masks

LAYERS = 2
TARGET = SimpleNamespace(hidden_size=WIDTH, vocab_size=8, num_hidden_layers=LAYERS, num_attention_heads=4, head_dim=8)
GROUPED = SimpleNamespace(**vars(TARGET), num_key_value_heads=2)


@pytest.fixture
def plan(make_recipe, make_checkpoint, tmp_path):
    """Plan a recipe with the rows in `masks`; keywords go to `drafter`."""
    make_checkpoint(tmp_path / "deep", num_hidden_layers=LAYERS, hidden_size=WIDTH)

    def plan(sections=(), **drafter):
        keys = {"target": {"model": "deep"}, "drafter": {"model": "masks"} | drafter} | dict(sections)
        return make_plan(load_recipe(make_recipe(**keys)))

    return plan


@pytest.mark.parametrize(("kind", "made"), [("pass", masks), ("bita", bita)])
@pytest.mark.parametrize("written", ["auto", "own"])
def test_as_many_drafts_as_there_are_rows_and_one(plan, tmp_path, kind, made, written):
    made(tmp_path / "masks", TARGET, 5)
    decided = plan(kind=kind if written == "own" else "auto")
    drafter = decided.drafter
    assert (drafter.kind, drafter.tokens, drafter.tree.kind, drafter.sample) == (kind, 6, "chain", False)
    assert (decided.graphs, decided.engines[0].precision.drafter) == ("fused", "float32")
    assert plan(kind=kind, tokens=2).drafter.tokens == 2
    with pytest.raises(RecipeError, match=r"drafter.tokens: received 7 drafts after one another, expected at most 6"):
        plan(kind=kind, tokens=7)


def test_they_have_the_target_s_precision(plan, tmp_path):
    masks(tmp_path / "masks", TARGET)
    assert plan({"precision": {"target": "int8"}}, kind="pass").engines[0].precision.drafter == "int8"
    with pytest.raises(RecipeError, match=r"precision.drafter: received 'int8', expected 'float32', the target's"):
        plan({"precision": {"drafter": "int8"}}, kind="pass")


def test_rows_of_another_target(plan, tmp_path):
    masks(tmp_path / "masks", SimpleNamespace(hidden_size=WIDTH // 2))
    with pytest.raises(RecipeError, match=r"received a head for a target with a hidden size of 16"):
        plan(kind="pass")
    write(tmp_path / "masks", {}, {"mask_embeddings": torch.ones(3, WIDTH // 2)})
    with pytest.raises(RecipeError, match=r"received a head for a target with a hidden size of 16"):
        plan(kind="pass")
    bita(tmp_path / "masks", SimpleNamespace(**vars(TARGET) | {"num_hidden_layers": 3}))
    with pytest.raises(CheckpointError, match=r"num_hidden_layers: received 3, expected 2, as the target 'deep' has"):
        plan(kind="bita")


def test_a_tensor_without_rows(plan, tmp_path):
    write(tmp_path / "masks", {}, {"mask_embeddings": torch.ones(WIDTH)})
    with pytest.raises(CheckpointError, match=r"tensor 'mask_embeddings' of shape \[32\], expected one row for each"):
        plan(kind="pass")


def test_what_a_target_of_the_published_code_holds_beside(plan, tmp_path):
    """Read a whole saved model: the target's own weights come from the target."""
    folder = bita(tmp_path / "masks", TARGET, projection=6)
    more = {"model.layers.0.self_attn.q_proj.weight": (WIDTH, WIDTH), "lm_head.weight": (8, WIDTH)}
    save_file(random_tensors(more), folder / "more.safetensors")
    found = plan(kind="bita").drafter.head
    assert {name: source.shape for name, source in found.tensors.items()} == {
        "mask_tokens.weight": (3, WIDTH),
        "prefix_encoder.embedding.weight": (2, WIDTH),
        "prefix_encoder.trans.0.weight": (6, WIDTH),
        "prefix_encoder.trans.0.bias": (6,),
        "prefix_encoder.trans.2.weight": (2 * LAYERS * WIDTH, 6),
        "prefix_encoder.trans.2.bias": (2 * LAYERS * WIDTH,),
    }


def test_a_prefix_for_every_head_beside_grouped_keys(plan, tmp_path):
    bita(tmp_path / "masks", GROUPED)
    assert plan(kind="bita").drafter.head.switches["key_heads"] == 2
    wide = {"mask_tokens.weight": (3, WIDTH), "prefix_encoder.embedding.weight": (2, 2 * LAYERS * WIDTH)}
    config = {
        "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2,
        "mask_num": 3, "mask_diff": True, "prompt_num": 2,
    }  # fmt: skip
    write(tmp_path / "masks", config, random_tensors(wide))
    with pytest.raises(CheckpointError, match=r"with keys of 4 heads, expected 2, as many as the target's caches have"):
        plan(kind="bita")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("mask_num", None, "config.json: mask_num: received nothing, expected a whole number from 1 on"),
        ("prompt_num", 3, "received tensor 'model.prefix_encoder.embedding.weight' of shape"),
        ("mask_diff", False, r"received tensor 'model.mask_tokens.weight' of shape \[3, 32\], expected \[1, 32\]"),
        ("gate", 1, "received the unknown switch gate: 1"),
    ],
)
def test_configs_that_do_not_fit(plan, tmp_path, key, value, message):
    folder = bita(tmp_path / "masks", TARGET)
    config = json.loads((folder / "config.json").read_text()) | {key: value}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        plan(kind="bita")
