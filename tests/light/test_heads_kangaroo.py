"""Folders of Kangaroo adapters -> their description, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import save_file

from speccompile.recipe import Plan, load_recipe, make_plan
from tests.heads import WIDTH, random_tensors
from tests.heads.kangaroo import kangaroo

TARGET = SimpleNamespace(hidden_size=WIDTH, vocab_size=8)
LAYERS = 4


@pytest.fixture
def plan(make_recipe: Callable[..., Path], make_checkpoint: Callable[..., Path], tmp_path: Path) -> Callable[..., Plan]:
    """Plan a recipe with the adapter in `head` for a target of four layers; keywords go to `drafter`."""

    def plan(layers: int = LAYERS, *, sections: dict[str, Any] | None = None, **drafter: Any) -> Plan:
        folder = tmp_path / f"deep.{layers}"
        if not folder.exists():
            make_checkpoint(folder, num_hidden_layers=layers, hidden_size=WIDTH)
        keys = {"target": {"model": folder.name}, "drafter": {"model": "head"} | drafter} | (sections or {})
        return make_plan(load_recipe(make_recipe(**keys)))

    return plan


def test_the_published_form(plan: Callable[..., Plan], tmp_path: Path) -> None:
    kangaroo(tmp_path / "head", TARGET)
    drafter = plan().drafter
    head = drafter.head
    assert head is not None
    assert (drafter.kind, drafter.tokens, drafter.threshold, drafter.tree.kind) == ("kangaroo", 6, 0.6, "chain")
    assert (head.dialect, head.evidence.split(", ")[0]) == ("Kangaroo", "tensor layers.0.self_attn.q_proj.weight")
    assert head.taps == ("layers.1.output",)
    assert head.layers is not None
    assert (head.layers.heads, head.layers.kv_heads, head.layers.head_dim) == (4, 4, WIDTH // 4)
    assert head.layers.rope == {"rope_type": "default", "rope_theta": 10000.0}
    assert set(head.tensors) == {
        "norm.weight", "layers.0.input_layernorm.weight", *(f"layers.0.self_attn.{name}_proj.weight" for name in "qkvo")
    }  # fmt: skip
    assert plan().graphs == "fused"
    assert "does not say 'exit_layer': 2 is taken" in plan().notes[0]
    assert not plan(40).notes[0].count("2 is taken")
    assert plan(40).drafter.head.taps == ("layers.2.output",)  # type: ignore[union-attr]


def test_safetensors_and_pickles_say_the_same(plan: Callable[..., Plan], tmp_path: Path) -> None:
    found = []
    for pickle in ("pytorch_model.bin", ""):
        kangaroo(tmp_path / "head", TARGET, layers=2, pickle=pickle, exit_layer=3)
        head = plan().drafter.head
        assert head is not None
        found.append((head.taps, head.layers, {name: source.shape for name, source in head.tensors.items()}))
        assert head.notes == ()
    assert found[0] == found[1]
    assert found[0][0] == ("layers.2.output",)
    # what training saves beside it: the target's head, and the state of the optimizer
    save_file(random_tensors({"weight": (8, WIDTH)}), tmp_path / "head" / "model_1.safetensors")
    assert plan().drafter.head.layers == found[0][1]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("tap", "expected"), [("layers.0.output", 0), ("layers.3.input", 2), ("layers.1.input", 0), ("layers.2.output", 2)]
)
def test_the_recipe_names_the_exit(plan: Callable[..., Plan], tmp_path: Path, tap: str, expected: int) -> None:
    kangaroo(tmp_path / "head", TARGET, exit_layer=2)
    head = plan(taps=[tap]).drafter.head
    assert head is not None
    assert (head.taps, head.notes) == ((f"layers.{expected}.output",), ())


@pytest.mark.parametrize(
    "taps", [["norm.output"], ["layers.0.input"], ["layers.3.output"], ["layers.0.output", "layers.1.output"]]
)
def test_taps_where_no_adapter_can_stand(refusal: Callable[..., str], tmp_path: Path, taps: list[str]) -> None:
    kangaroo(tmp_path / "head", TARGET)
    message = refusal(taps=taps)
    assert f"drafter.taps: received [{', '.join(taps)}], expected one place between two layers" in message


def test_what_is_wrong_with_the_exit(refusal: Callable[..., str], tmp_path: Path) -> None:
    for value, received in ((4, "4"), (0, "0"), ("two", "'two'")):
        kangaroo(tmp_path / "head", TARGET, exit_layer=value)
        assert f"config.json: exit_layer: received {received}, expected" in refusal()
    kangaroo(tmp_path / "head", TARGET)
    assert "exit_layer: received nothing, which means 2, expected 1 to 1" in refusal(2)


def test_positions_are_turned_as_the_published_code_does(plan: Callable[..., Plan], tmp_path: Path) -> None:
    kangaroo(tmp_path / "head", TARGET, exit_layer=2, rope_theta=500000.0)
    decided = plan()
    assert decided.drafter.head.layers.rope["rope_theta"] == 10000.0  # type: ignore[union-attr]
    assert "says rope_theta 500000.0, rope_type default; positions are turned by 10000.0" in decided.notes[0]
    head = plan(switches={"rope_theta": 500000.0}).drafter.head
    assert head is not None
    assert head.layers is not None
    assert (head.layers.rope["rope_theta"], head.notes) == (500000.0, ())


def test_adapters_of_other_targets_and_shapes(refusal: Callable[..., str], tmp_path: Path) -> None:
    kangaroo(tmp_path / "head", SimpleNamespace(hidden_size=2 * WIDTH, vocab_size=8))
    assert "a head for a target with a hidden size of 64" in refusal()
    kangaroo(tmp_path / "head", SimpleNamespace(hidden_size=WIDTH, vocab_size=9))
    assert "a head for a target with a vocabulary of 9" in refusal()
    kangaroo(tmp_path / "head", TARGET, num_key_value_heads=2)
    assert "'layers.0.self_attn.k_proj.weight' of shape [32, 32], expected [16, 32]" in refusal()
    kangaroo(tmp_path / "head", TARGET, exit_norm=True)
    assert "received the unknown switch exit_norm: True" in refusal()
    config = json.loads((kangaroo(tmp_path / "head", TARGET, layers=2) / "config.json").read_text())
    (tmp_path / "head" / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    assert "received no tensor 'layers.2." in refusal()


@pytest.mark.parametrize("name", ["layers.0.mlp.up_proj.weight", "lm_head.weight", "fc.weight"])
def test_what_another_head_has(refusal: Callable[..., str], tmp_path: Path, name: str) -> None:
    kangaroo(tmp_path / "head", TARGET, pickle="")
    save_file(random_tensors({name: (WIDTH, WIDTH)}), tmp_path / "head" / "more.safetensors")
    assert "expected a head of drafter.kind kangaroo in one of its dialects (Kangaroo)" in refusal(kind="kangaroo")
    save_file(random_tensors({"layers.0.gate.weight": (4, 4)}), tmp_path / "head" / "more.safetensors")
    assert "received the tensor 'layers.0.gate.weight', which the dialect Kangaroo does not have" in refusal()


def test_what_does_not_go_together(refusal: Callable[..., str], tmp_path: Path) -> None:
    kangaroo(tmp_path / "head", TARGET)
    assert "a static tree, which drafter.kind kangaroo cannot do" in refusal(tree=[2, 1])
    assert "drafter.threshold" in refusal(threshold=1.5)
    rtx = {"backend": "tensorrt_rtx", "compute_capability": "8.9"}
    precision = {"target": "float32", "drafter": "float16"}
    message = refusal(sections={"engines": [rtx | {"precision": precision}]})
    assert (
        "engines.0.precision.drafter: received 'float16', expected one that computes in float32, as target: float32 "
        "does: drafter.kind kangaroo reads the target's caches"
    ) in message


@pytest.mark.parametrize("target", ["float32", "float16", "int8", "int4"])
def test_precisions_in_which_the_caches_are_the_same(plan: Callable[..., Plan], tmp_path: Path, target: str) -> None:
    kangaroo(tmp_path / "head", TARGET)
    rtx = {"backend": "tensorrt_rtx", "compute_capability": "8.9"}
    (engine,) = plan(sections={"engines": [rtx], "precision": {"target": target}}).engines
    assert engine.precision.drafter == ("float32" if target == "float32" else "float16")
    if target != "float16":
        (engine,) = plan(sections={"precision": {"target": target, "drafter": "bfloat16"}}).engines
        assert engine.precision.drafter == "bfloat16"
