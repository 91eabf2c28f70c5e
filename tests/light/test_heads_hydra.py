"""Folders of Hydra and Hydra++ heads -> their description; and what is refused, by file and name."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from speccompile.drafters.weights import read_tensors
from speccompile.recipe import Plan, load_recipe, make_plan
from tests.heads import WIDTH
from tests.heads.hydra import hydra
from tests.json_files import merge_json

SIZES = {"hidden_size": WIDTH, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 5e5,
         "intermediate_size": 48, "rms_norm_eps": 1e-5, "num_hidden_layers": 4}  # fmt: skip
TARGET = SimpleNamespace(vocab_size=8, **SIZES)
MLPS = {
    f"mlps.{head}.{name}.{word}"
    for head in range(3)
    for name in ("0.linear", "0.res_connection", "1.linear")
    for word in ("weight", "bias")
} | {f"lm_heads.{head}.{word}" for head in range(3) for word in ("weight", "bias")}


@pytest.fixture
def plan(make_recipe: Callable[..., Path], make_checkpoint: Callable[..., Path], tmp_path: Path) -> Callable[..., Plan]:
    """Plan a recipe with the heads in `head`; keywords go to `drafter`."""

    def plan(**drafter: Any) -> Plan:
        if not (tmp_path / "wide").exists():
            make_checkpoint(tmp_path / "wide", **SIZES)
        return make_plan(load_recipe(make_recipe(target={"model": "wide"}, drafter={"model": "head"} | drafter)))

    return plan


def test_hydra(plan: Callable[..., Plan], tmp_path: Path) -> None:
    hydra(tmp_path / "head", TARGET)
    drafter, head = plan().drafter, plan().drafter.head
    assert head is not None
    assert (drafter.kind, drafter.tree.kind, drafter.tokens, plan().graphs) == ("hydra", "chain", 3, "fused")
    assert (head.dialect, head.taps, head.layers, head.tokens) == ("Hydra", ("norm.output",), None, 3)
    assert head.switches == {"grounded_heads": True}
    assert set(head.tensors) == MLPS
    assert head.tensors["mlps.2.0.linear.weight"].shape == (WIDTH, 4 * WIDTH)
    assert head.notes == ("the head says that it was made for 'target'; the target is 'wide'",)


def test_hydra_plus_plus_has_one_more_layer_of_the_target(read: Any, tmp_path: Path) -> None:
    hydra(tmp_path / "head", TARGET, prefix=True)
    head = read()
    layers = head.layers
    assert (layers.heads, layers.kv_heads, layers.head_dim, layers.rope["rope_theta"]) == (4, 2, 8, 5e5)
    assert (layers.count, layers.eps, head.layers.positions) == (1, 1e-5, 64)
    assert {name for name in head.tensors if not name.startswith("layers.0.")} == MLPS | {"norm.weight"}
    assert head.tensors["mlps.1.1.linear.weight"].name == "hydra_mlp.1.3.linear.weight"  # dropout counts


def test_numbers_without_dropout_are_the_same_head(read: Any, tmp_path: Path) -> None:
    folder = hydra(tmp_path / "head", TARGET, prefix=True)
    expected = read_tensors(read())
    state = torch.load(folder / "hydra_lm_head.pt", weights_only=True)
    closer = {name.replace(".1.linear", ".0.linear").replace(".1.res_", ".0.res_").replace(".3.linear", ".1.linear")
              .replace("head.0.1.", "head.0.").replace("head.1.1.", "head.1.").replace("head.2.1.", "head.2."): tensor
              for name, tensor in state.items()}  # fmt: skip
    assert closer.keys() != state.keys()
    torch.save(closer, folder / "hydra_lm_head.pt")
    found = read_tensors(read())
    assert found.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_an_embedding_in_the_file_is_read(read: Any, tmp_path: Path) -> None:
    hydra(tmp_path / "head", TARGET, embedding=torch.ones(8, WIDTH))
    assert set(read().tensors) == MLPS | {"embed_tokens.weight"}


def test_heads_that_read_no_tokens(read: Any, tmp_path: Path) -> None:
    hydra(tmp_path / "head", TARGET, grounded=False, embedding=torch.ones(8, WIDTH))
    head = read()
    assert head.switches == {"grounded_heads": False}
    assert set(head.tensors) == {name for name in MLPS if "res_connection" not in name}
    assert head.tensors["mlps.2.0.linear.weight"].shape == (WIDTH, WIDTH)


def test_taps(read: Any, refusal: Any, tmp_path: Path) -> None:
    hydra(tmp_path / "head", TARGET, hidden_state_offset=1)
    assert read().taps == ("layers.3.input",)
    assert read(taps=["layers.2.output"]).taps == ("layers.2.output",)
    assert "drafter.taps: received 2 taps" in refusal(taps=["layers.2.output", "norm.output"])
    hydra(tmp_path / "head", TARGET, hidden_state_offset=5)
    assert f"{tmp_path / 'head' / 'config.json'}: hidden_state_offset: received layer id -1" in refusal()


def test_heads_are_counted_in_the_file(read: Any, refusal: Any, tmp_path: Path) -> None:
    hydra(tmp_path / "head", TARGET, said=2)
    assert (read().tokens, read().notes[0]) == (
        3, "head/config.json: hydra_num_heads: received 2, but the weights hold 3 heads: all of them are used"
    )  # fmt: skip
    assert "expected at most 3" in refusal(tokens=4)
    hydra(tmp_path / "head", TARGET, said=4)
    assert "config.json: hydra_num_heads: received 4, expected at most 3" in refusal()


@pytest.mark.parametrize("arch", ["cross-attn", "eagle-attn"])
def test_other_forms_are_refused_by_name(arch: str, refusal: Any, tmp_path: Path) -> None:
    hydra(tmp_path / "head", TARGET, hydra_head_arch=arch)
    assert f"received Hydra ({arch}) (key hydra_head_arch={arch}), which this version does not compile" in refusal()


@pytest.mark.parametrize(
    ("form", "config", "expected"),
    [
        ({}, {"hydra_num_layers": 3}, "received no tensor 'mlps.0.2.linear.weight' in hydra_lm_head.pt"),
        ({}, {"grounded_heads": False}, "received tensor 'hydra_mlp.0.0.linear.weight' of shape [32, 64], expected"),
        ({}, {"hydra_head_arch": "prefix-mlp"}, "received no tensor 'layers.0.self_attn.q_proj.weight'"),
        ({"prefix": True}, {"hydra_head_arch": "mlp"}, "received the tensor 'prefix_embeding_layer.layers.0."),
        ({"prefix": True}, {"grounded_heads": False}, "config.json: grounded_heads: received False, expected true"),
        (
            {},
            {"hydra_head_arch": "rnn"},
            "config.json: hydra_head_arch: received 'rnn', expected one of mlp, prefix-mlp",
        ),
        ({}, {"hydra_tricks": 1}, "config.json: received the unknown switch hydra_tricks: 1"),
        ({}, {"hidden_size": 48}, "drafter.model: received a head for a target with a hidden size of 48"),
    ],
)
def test_what_is_not_these_heads_is_refused(
    form: dict[str, Any], config: dict[str, Any], expected: str, refusal: Any, tmp_path: Path
) -> None:
    merge_json(hydra(tmp_path / "head", TARGET, **form) / "config.json", config)
    assert expected in refusal()
