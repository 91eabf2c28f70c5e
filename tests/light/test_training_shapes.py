"""Shapes and taps of new drafters, and heads that cannot be trained on: decided and refused without torch."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.eagle3.taps import boundary, default_taps
from speccompile.drafters.find import read_head
from speccompile.errors import RecipeError
from speccompile.plan.head import HeadRequest, HeadTarget
from speccompile.plan.recipe_source import RecipeSource
from speccompile.recipe.drafter_shape import decide_shape
from speccompile.recipe.initial_drafter import check_initial_drafter
from tests import zoo
from tests.heads.eagle3 import eagle3
from tests.heads.medusa import into_model, vllm

ORIGIN = RecipeSource(Path("recipe.yaml"))
LLAMA = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 128256}  # fmt: skip
GPT2 = {"n_embd": 768, "n_head": 12, "n_layer": 12, "n_inner": None, "vocab_size": 50257}


def sizes_of(kind: str, config: dict, **given):
    return decide_shape(DRAFTING_METHODS[kind].training.sizes, config, given, ORIGIN)


def test_a_heads_layer_is_shaped_as_the_targets():
    found = {"layers": 1, "hidden_size": 4096, "intermediate_size": 14336, "heads": 32, "kv_heads": 8, "head_dim": 128}
    assert sizes_of("eagle3", LLAMA) == found
    found = {"layers": 1, "hidden_size": 768, "intermediate_size": 3072, "heads": 12, "kv_heads": 12, "head_dim": 64}
    assert sizes_of("eagle3", GPT2) == found


def test_what_is_given_shapes_the_rest():
    found = sizes_of("eagle3", LLAMA, hidden_size=2048, heads=16)
    assert (found["intermediate_size"], found["kv_heads"], found["head_dim"]) == (7168, 8, 128)
    assert sizes_of("eagle3", LLAMA, heads=12)["kv_heads"] == 6
    demo = json.loads((Path(__file__).parents[2] / "recipes" / "demo" / "target" / "config.json").read_text())
    drafter = {"layers": 2, "hidden_size": 128, "intermediate_size": 240, "heads": 2, "kv_heads": 1, "head_dim": 64}
    assert sizes_of("model", demo) == drafter


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("eagle3", {"hidden_size": 5120}, "train.shape.hidden_size: received 5120, expected at most 4096"),
        ("model", {"hidden_size": 4100}, "train.shape.hidden_size: received 4100, expected at most 4096"),
        ("eagle3", {"heads": 32, "kv_heads": 5}, "train.shape.kv_heads: received 5, expected a divisor of .* 32"),
        ("eagle3", {"head_dim": 63}, "train.shape.head_dim: received 63, expected a whole number .* multiple of 2"),
        ("eagle3", {"layers": 0}, "train.shape.layers: received 0, expected a whole number from 1 on"),
        ("eagle3", {"layers": True}, "train.shape.layers: received true, expected"),
        ("eagle3", {"layrs": 1}, "train.shape.layrs: received an unknown size, expected one of layers"),
        ("hydra", {"arch": "rnn"}, "train.shape.arch: received 'rnn', expected mlp or prefix-mlp"),
        ("medusa", {"projection": "both"}, "train.shape.projection: received 'both', expected own or shared"),
    ],
)
def test_other_sizes_are_refused(kind, given, message):
    with pytest.raises(RecipeError, match=message):
        sizes_of(kind, LLAMA, **given)


@pytest.mark.parametrize("layers", range(1, 40))
def test_taps_are_places_of_the_target_that_differ(layers):
    found = [boundary(tap) for tap in default_taps(layers)]
    assert len(set(found)) == len(found) == min(3, max(1, layers - 1))
    assert all(1 <= each <= layers for each in found)
    if layers >= 7:
        assert found == [2, layers // 2, layers - 3]


@pytest.mark.parametrize(
    ("dialect", "taps", "layers", "message"),
    [
        ("SpecForge", ("layers.0.output", "layers.4.output"), 1, "SGLang shifts"),
        ("SpecForge", ("layers.1.input",), 1, "SGLang shifts"),
        ("SpecForge", ("layers.1.output",), 2, "1, which is all"),
        ("speculators", ("layers.1.output", "layers.2.input"), 1, "are one"),
        ("speculators", ("norm.output",), 1, "places between layers"),
        ("speculators", ("layers.0.output", "layers.4.output"), 2, None),
        ("SpecForge", ("layers.1.output", "layers.4.output"), 1, None),
    ],
)
def test_taps_that_a_dialect_cannot_say_are_refused(dialect, taps, layers, message):
    found = DRAFTING_METHODS["eagle3"].training.refusal(dialect, taps, {"layers": layers})
    assert (found is None) == (message is None)
    assert message is None or message in found[2]


def request(kind: str, folder: Path, config, **more) -> HeadRequest:
    target = HeadTarget("target", config.vocab_size, config.hidden_size, config.num_hidden_layers, folder)
    return HeadRequest(kind, target, ORIGIN, **more)


def check(asked: HeadRequest, folder: Path) -> None:
    check_initial_drafter(read_head(folder, asked), DRAFTING_METHODS[asked.kind].training, asked, ORIGIN)


def test_heads_inside_a_model_are_not_trained_on(tmp_path):
    zoo.save("llama", tmp_path / "target")
    into_model(tmp_path / "target", zoo.config("llama"))
    with pytest.raises(RecipeError, match=r"train.begin: received .* dialect Medusa-2, expected others: its heads lie"):
        check(request("medusa", tmp_path / "target", zoo.config("llama")), tmp_path / "target")
    vllm(tmp_path / "head", zoo.config("llama"))
    check(request("medusa", tmp_path / "target", zoo.config("llama")), tmp_path / "head")


def test_what_the_recipe_says_in_the_place_of_the_files_is_not_written(tmp_path):
    config = zoo.config("llama", num_hidden_layers=7)
    eagle3(tmp_path / "said", config)
    eagle3(tmp_path / "unsaid", config, "SafeAILab")
    plain, taps = request("eagle3", tmp_path, config), ("layers.3.input", "layers.4.input", "layers.6.input")
    for folder in ("said", "unsaid"):
        check(plain, tmp_path / folder)
        with pytest.raises(
            RecipeError, match=r"drafter.switches: received norm_output in the place of what .*config.json"
        ):
            check(replace(plain, switches={"norm_output": True}), tmp_path / folder)
        check(replace(plain, switches={"norm_output": False}), tmp_path / folder)
    with pytest.raises(RecipeError, match=r"drafter\.taps: received layers\.3\.input"):
        check(replace(plain, taps=taps), tmp_path / "said")
    check(replace(plain, taps=taps), tmp_path / "unsaid")  # it is written
