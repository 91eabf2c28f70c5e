"""Folders of Medusa heads, in every dialect -> one description; and what is refused, by file and name."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from speccompile.drafters.weights import draft_vocabulary, read_tensors
from speccompile.errors import SpeccompileError
from speccompile.plan.head import HeadPlan
from speccompile.recipe import Plan, load_recipe, make_plan
from tests.heads import WIDTH
from tests.heads.medusa import faster_decoding, into_model, vllm
from tests.json_files import merge_json
from tests.light.read_heads import change_tensors

TARGET = SimpleNamespace(hidden_size=WIDTH, vocab_size=8)
BLOCKS = {
    f"blocks.{head}.layers.{layer}.{word}" for head in range(3) for layer in range(2) for word in ("weight", "bias")
}
OWN = {f"lm_heads.{head}.weight" for head in range(3)}


@pytest.fixture
def plan(make_recipe: Callable[..., Path], make_checkpoint: Callable[..., Path], tmp_path: Path) -> Callable[..., Plan]:
    """Plan a recipe with the heads in `head`; sizes go to the target's config, keywords to `drafter`."""

    def plan(*, sizes: dict[str, int] | None = None, **drafter: Any) -> Plan:
        if not (tmp_path / "wide").exists():
            make_checkpoint(tmp_path / "wide", num_hidden_layers=2, **({"hidden_size": WIDTH} | (sizes or {})))
        keys = {"target": {"model": "wide"}, "drafter": {"model": "head"} | drafter}
        return make_plan(load_recipe(make_recipe(**keys)))

    return plan


DIALECTS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "pickle": ("FasterDecoding", lambda folder: faster_decoding(folder, TARGET)),
    "safetensors": ("FasterDecoding", lambda folder: faster_decoding(folder, TARGET, pickle=False, version="2")),
    "vllm": ("vLLM", lambda folder: vllm(folder, TARGET)),
    "vllm linear": ("vLLM", lambda folder: vllm(folder, TARGET, middle="linear.", medusa_fc_bias=None)),
    "vllm prefix": ("vLLM", lambda folder: vllm(folder, TARGET, prefix="medusa_heads.", architectures=None)),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_is_the_same_head(name: str, plan: Callable[..., Plan], tmp_path: Path) -> None:
    dialect, write = DIALECTS[name]
    write(tmp_path / "head")
    drafter = plan().drafter
    head = drafter.head
    assert head is not None
    assert (drafter.kind, head.dialect, drafter.tree.kind, drafter.tokens) == ("medusa", dialect, "chain", 3)
    assert (head.taps, head.layers, head.switches, head.tokens, head.notes) == (("norm.output",), None, {}, 3, ())
    assert set(head.tensors) == BLOCKS | OWN
    assert plan().graphs == "separate"
    expected = read_tensors(plan_of_pickle(plan, tmp_path))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in read_tensors(head).items())


def plan_of_pickle(plan: Callable[..., Plan], tmp_path: Path) -> HeadPlan:
    faster_decoding(tmp_path / "expected", TARGET)
    head = plan(model="expected").drafter.head
    assert head is not None
    return head


def test_all_heads_of_the_file_are_used_where_the_config_says_fewer(read: Any, tmp_path: Path) -> None:
    faster_decoding(tmp_path / "head", TARGET, said=2)
    head = read()
    assert head.tokens == 3
    assert head.notes == (
        "head/config.json: medusa_num_heads: received 2, but the weights hold 3 heads: all of them are used",
    )


def test_more_heads_than_the_file_holds_are_refused(refusal: Any, tmp_path: Path) -> None:
    faster_decoding(tmp_path / "head", TARGET, said=4)
    message = refusal()
    assert f"{tmp_path / 'head' / 'config.json'}: medusa_num_heads: received 4, expected at most 3" in message


def test_heads_without_projections_use_the_targets(read: Any, tmp_path: Path) -> None:
    faster_decoding(tmp_path / "head", TARGET, projections=False)
    assert set(read().tensors) == BLOCKS


def test_the_demos_head_shares_one_projection(read: Any, tmp_path: Path) -> None:
    vllm(tmp_path / "head", TARGET, shared=True, base_model_name_or_path="demo/wide", max_paths=None)
    head = read()
    assert set(head.tensors) == BLOCKS | {"lm_head.weight"}
    assert (head.base, head.notes, head.draft_vocabulary_size) == ("demo/wide", (), 8)


def test_vllm_finds_the_shared_projection_in_the_first_heads_place(read: Any, tmp_path: Path) -> None:
    folder = vllm(tmp_path / "head", TARGET, shared=True)
    shared = load_file(folder / "model.safetensors")["lm_head.weight"]
    change_tensors(folder, {"lm_head.weight": None, "lm_heads.0.weight": shared})
    assert set(read().tensors) == BLOCKS | {"lm_head.weight"}


@pytest.mark.parametrize("narrowed", [True, False])
def test_a_map_holds_ids_of_the_target(*, narrowed: bool, read: Any, tmp_path: Path) -> None:
    vllm(tmp_path / "head", TARGET, own=5, narrowed=narrowed)
    head = read()
    assert (head.draft_vocabulary_size, head.tensors["lm_heads.0.weight"].shape) == (5, (5 if narrowed else 8, WIDTH))
    vocabulary = draft_vocabulary(head)
    assert vocabulary is not None
    assert vocabulary.ids.tolist() == load_file(tmp_path / "head" / "model.safetensors")["token_map"].tolist()


def test_a_map_is_read_where_the_config_asks_for_it(read: Any, tmp_path: Path) -> None:
    vllm(tmp_path / "head", TARGET, own=5, narrowed=False, truncated_vocab_size=8)
    assert (read().draft_vocabulary_size, "token_map" in read().tensors) == (8, False)


def test_wrong_maps_are_refused(read: Any, refusal: Any, tmp_path: Path) -> None:
    folder = vllm(tmp_path / "head", TARGET, own=5)
    change_tensors(folder, {"token_map": torch.tensor([0, 1, 2, 3, 9])})
    with pytest.raises(SpeccompileError, match="token_map: received token 9, expected tokens from 0 to 7"):
        draft_vocabulary(read())
    change_tensors(folder, {"token_map": torch.tensor([0, 1, 2, 3, 3])})
    with pytest.raises(SpeccompileError, match="token_map: received a token of the target twice"):
        draft_vocabulary(read())
    change_tensors(folder, {"token_map": torch.ones(5)})
    assert "received 'token_map' of dtype F32, expected token ids" in refusal()
    change_tensors(folder, {"token_map": None})
    assert "received no tensor 'token_map' in model.safetensors, expected one of shape [5]" in refusal()


def test_heads_in_a_model_fit_that_model_alone(
    refusal: Any, make_recipe: Callable[..., Path], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    into_model(make_checkpoint(tmp_path / "head", num_hidden_layers=2, hidden_size=WIDTH), TARGET)
    message = refusal()
    assert f"{tmp_path / 'head'}: received the heads of a Medusa-2 model" in message
    assert "its weights were trained with the heads, which fit no other" in message
    recipe = {"target": {"model": "head"}, "drafter": {"kind": "medusa", "model": "head"}}
    head = make_plan(load_recipe(make_recipe(**recipe))).drafter.head
    assert head is not None
    assert (head.dialect, set(head.tensors)) == ("Medusa-2", BLOCKS | OWN)


def test_trees_are_no_deeper_than_the_heads(refusal: Any, plan: Callable[..., Plan], tmp_path: Path) -> None:
    faster_decoding(tmp_path / "head", TARGET)
    assert plan(kind="medusa", tree=[2, 2, 1]).drafter.tokens == 10
    assert "drafter.tree: received 4 drafts after one another, expected at most 3" in refusal(tree=[1, 1, 1, 1])
    assert "drafter.tokens: received 4 drafts after one another" in refusal(tokens=4)
    assert plan(kind="medusa", tree={"depth": 2, "top_k": 2, "nodes": 4}).drafter.tokens == 4
    assert "received 4 drafts after one another" in refusal(tree={"depth": 4, "top_k": 2, "nodes": 8})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"logit_scale": 0.5}, "config.json: logit_scale: received 0.5, expected 1 or 1.0: scaled logits"),
        ({"heads_mix": 1}, "config.json: received the unknown switch heads_mix: 1, expected none"),
        (
            {"medusa_fc_bias": False},
            "model.safetensors: received the tensor 'blocks.0.layers.0.bias', which nothing of",
        ),
        ({"num_hidden_layers": 3}, "received no tensor 'blocks.0.layers.2.weight' in model.safetensors"),
        ({"num_heads": 5}, "config.json: num_heads: received 5, expected at most 3"),
        ({"hidden_size": 48}, "drafter.model: received a head for a target with a hidden size of 48"),
        ({"vocab_size": 9}, "a head for a target with a vocabulary of 9"),
        ({"truncated_vocab_size": 9}, "config.json: truncated_vocab_size: received 9, expected at most 8"),
        (
            {"original_lm_head": True},
            "model.safetensors: received the tensor 'lm_heads.1.weight', which nothing of this",
        ),
        (
            {"tensors": {f"lm_heads.{head}.weight": None for head in range(3)}},
            "received no tensor 'lm_heads.0.weight', expected what turns hidden states into logits",
        ),
        ({"tensors": {"lm_heads.2.weight": None}}, "received no tensor 'lm_heads.2.weight' in model.safetensors"),
        ({"tensors": {"blocks.1.layers.1.bias": None}}, "received no tensor 'blocks.1.layers.1.bias'"),
        ({"tensors": {"blocks.0.gate.weight": torch.ones(1)}}, "received the tensor 'blocks.0.gate.weight', which the"),
        (
            {"tensors": {"blocks.0.layers.0.linear.weight": torch.ones(1)}},
            "which are both blocks.0.layers.0.weight; expected one of them",
        ),
        (
            {"tensors": {"lm_heads.0.weight": torch.ones(7, WIDTH)}},
            f"received tensor 'lm_heads.0.weight' of shape [7, {WIDTH}], expected [8, {WIDTH}]",
        ),
    ],
)
def test_what_is_not_these_heads_is_refused(
    changes: dict[str, Any], expected: str, refusal: Any, tmp_path: Path
) -> None:
    folder = change_tensors(vllm(tmp_path / "head", TARGET), changes.get("tensors", {}))
    merge_json(folder / "config.json", {key: value for key, value in changes.items() if key != "tensors"})
    assert expected in refusal()


def test_a_pickle_that_runs_something_is_refused(refusal: Any, tmp_path: Path) -> None:
    folder = faster_decoding(tmp_path / "head", TARGET)
    torch.save({"0.0.linear.weight": Path("here")}, folder / "medusa_lm_head.pt")
    assert f"{folder / 'medusa_lm_head.pt'}: truncated, corrupt or not only tensors: it asks for pathlib" in refusal()
