"""Folders of Gemma 4's assistants -> their description, and what is refused before any work."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from speccompile.drafters.assistant.network import load_assistant
from speccompile.errors import CheckpointError
from speccompile.recipe import Plan, load_recipe, make_plan
from tests import zoo
from tests.heads.assistant import CENTROIDS, TOP_K, assistant
from tests.json_files import edit_config
from tests.multimodal import model as multimodal
from tests.multimodal import save as save_multimodal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Gemma 4 whose last layers share, one whose layers do not, and one inside a multimodal checkpoint."""
    folder = tmp_path_factory.mktemp("targets")
    zoo.save("gemma4_text", folder / "shared", tokenizer=False)
    zoo.save("gemma4_text_moe", folder / "own", tokenizer=False)
    zoo.save("gemma3_text", folder / "gemma3", tokenizer=False)
    zoo.save("llama", folder / "llama", tokenizer=False)
    save_multimodal(multimodal("gemma4"), folder / "whole")
    return folder


@pytest.fixture
def plan(folder: Path, tmp_path: Path) -> Callable[..., Plan]:
    """Plan a recipe with the assistant in `tmp_path/head`; keywords go to `drafter`."""

    def plan(target: str = "shared", **drafter: Any) -> Plan:
        keys = "".join(f", {key}: {value}" for key, value in drafter.items())
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(
            f"name: tiny\ntarget: {{model: {folder / target}}}\ndrafter: {{model: {tmp_path / 'head'}{keys}}}\n"
            "cache: {max_length: 64}\n"
        )
        return make_plan(load_recipe(recipe))

    return plan


def test_the_published_form(plan: Callable[..., Plan], tmp_path: Path) -> None:
    assistant(tmp_path / "head", zoo.config("gemma4_text"), sparse=True)
    decided = plan()
    drafter, head = decided.drafter, decided.drafter.head
    assert head is not None
    assert (drafter.kind, drafter.tree.kind, decided.graphs) == ("assistant", "chain", "fused")
    assert head.evidence == "architecture Gemma4AssistantForCausalLM"
    assert head.taps == ("norm.output",)
    assert (head.hidden_size, head.vocabulary_size) == (64, zoo.VOCABULARY)
    # Layers 2 and 3 of four have no keys of their own.
    sparse = {"centroids": CENTROIDS, "top_k": TOP_K}
    assert head.switches == {"sliding_attention": 0, "full_attention": 1, **sparse}
    assert head.tensors["masked_embedding.token_ordering"].shape == (zoo.VOCABULARY,)


@pytest.mark.parametrize(("target", "name"), [("own", "gemma4_text_moe"), ("whole", "gemma4_text")])
def test_targets_without_sharing_and_inside_a_whole(
    plan: Callable[..., Plan], tmp_path: Path, target: str, name: str
) -> None:
    assistant(tmp_path / "head", zoo.config(name))
    head = plan(target, tokens=5).drafter.head
    assert head is not None
    assert (head.switches["sliding_attention"], head.switches["full_attention"]) == (0, 1)
    assert (head.switches["centroids"], head.switches["top_k"]) == (None, None)


def test_drafts_are_as_many_as_the_publisher_proposes(plan: Callable[..., Plan], tmp_path: Path) -> None:
    assistant(tmp_path / "head", zoo.config("gemma4_text"))
    (tmp_path / "head" / "generation_config.json").write_text('{"num_assistant_tokens": 7}')
    assert (plan().drafter.tokens, plan(tokens=2).drafter.tokens) == (7, 2)


def test_configs_of_before_layers_had_their_own(plan: Callable[..., Plan], tmp_path: Path) -> None:
    """Read configs as Google published them: `global_head_dim`, not `per_layer_config`."""
    assistant(tmp_path / "head", zoo.config("gemma4_text"))
    expected = plan().drafter.head

    def old(config: dict[str, Any]) -> None:
        del config["text_config"]["per_layer_config"]
        config["text_config"] |= {"global_head_dim": 24, "num_global_key_value_heads": 1}

    edit_config(tmp_path / "head", old)
    head = plan().drafter.head
    assert head is not None
    assert expected is not None
    assert (head.tensors, head.switches) == (expected.tensors, expected.switches)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 280}, r"a vocabulary of 280 .*expected one for 272, the vocabulary of the target"),
        ({"global_head_dim": 32}, r"a width of key heads of 32 .*expected 24, as layer 1 of the target"),
        ({"head_dim": 8}, r"a width of key heads of 8 .*expected 16, as layer 0 of the target"),
        ({"num_key_value_heads": 4}, r"a number of key heads of 4 .*expected 2, as layer 0 of the target"),
    ],
)
def test_an_assistant_of_another_target_is_refused_by_name(
    plan: Callable[..., Plan], tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    assistant(tmp_path / "head", zoo.config("gemma4_text"), **settings)
    with pytest.raises(Exception, match=message) as caught:
        plan()
    assert type(caught.value).__name__ == "RecipeError"


def test_targets_of_another_hidden_size_and_other_layers(plan: Callable[..., Plan], tmp_path: Path) -> None:
    assistant(tmp_path / "head", zoo.config("gemma4_text", hidden_size=48))
    with pytest.raises(Exception, match=r"a head for a target with a hidden size of 48 .*expected one for 64"):
        plan()
    assistant(tmp_path / "head", zoo.config("gemma4_text"))
    with pytest.raises(Exception, match=r"layers of type sliding_attention .*keys and values of: full_attention$"):
        plan("llama")
    with pytest.raises(Exception, match=r"a number of key heads of 1 .*expected 2, as layer 3 of the target"):
        plan("gemma3")


def drop_kind(config: dict[str, Any]) -> None:
    config["text_config"]["layer_types"][0] = "linear_attention"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_kind, r"text_config.layer_types: received \['linear_attention', .*, expected 4 times sliding_attention"),
        (
            lambda c: c["text_config"].update(layer_types=4 * [zoo.SLIDING]),
            "received 'sliding_attention', expected full",
        ),
        (lambda c: c["text_config"].update(enable_moe_block=True), "enable_moe_block: received True, expected False"),
        (
            lambda c: c["text_config"].update(num_kv_shared_layers=2),
            "num_kv_shared_layers: received 2, expected 0 or 4",
        ),
        (lambda c: c["text_config"].update(altup=3), "the unknown switch text_config.altup: 3"),
        (lambda c: c.update(tie_word_embeddings=False), "tie_word_embeddings: received False, expected True"),
        (lambda c: c.update(num_centroids=7), "num_centroids: received 7, expected a divisor of the 272 tokens"),
        (lambda c: c.update(centroid_intermediate_top_k=17), "received 17, expected at most the 16 centroids"),
        (lambda c: c.update(backbone_hidden_size="64"), "backbone_hidden_size: received '64', expected a whole number"),
        (lambda c: c["text_config"].update(intermediate_size=40), r"of shape \[48, 32\], expected \[40, 32\]"),
    ],
)
def test_what_is_wrong_with_the_folder(
    plan: Callable[..., Plan], tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    assistant(tmp_path / "head", zoo.config("gemma4_text"), sparse=True)
    edit_config(tmp_path / "head", change)
    with pytest.raises(CheckpointError, match=message):
        plan()


def test_an_order_that_names_a_token_twice(plan: Callable[..., Plan], tmp_path: Path) -> None:
    assistant(tmp_path / "head", zoo.config("gemma4_text"), sparse=True)
    file = tmp_path / "head" / "model.safetensors"
    tensors = load_file(file)
    tensors["masked_embedding.token_ordering"] = torch.arange(zoo.VOCABULARY).clamp(max=zoo.VOCABULARY - 2)
    save_file(tensors, file)
    head = plan().drafter.head
    assert head is not None
    with pytest.raises(CheckpointError, match="received token 270 2 times, expected each of the 272 tokens once"):
        load_assistant(head)
