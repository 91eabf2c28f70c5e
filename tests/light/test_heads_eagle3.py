"""EAGLE-3 heads in every dialect become one description; what is wrong with one is said by file and key."""

from dataclasses import replace

import pytest
import torch
import yaml
from transformers import LlamaConfig

from speccompile.cli.heads import found_rows
from speccompile.errors import CheckpointError, RecipeError, SpeccompileError
from speccompile.recipe import load_recipe, make_plan
from tests.heads.eagle3 import DIALECTS, eagle3, of_norms
from tests.json_files import merge_json
from tests.light.read_heads import change_tensors

VOCABULARY, DRAFTED = 8, 6
TARGET = LlamaConfig(hidden_size=32, num_hidden_layers=8, vocab_size=VOCABULARY)


@pytest.fixture
def plan(tmp_path, make_checkpoint):
    """Return the plan of a recipe with the head in the folder `head`."""
    make_checkpoint(tmp_path / "target", hidden_size=32, num_hidden_layers=8, num_attention_heads=4)

    def plan(**drafter):
        path = tmp_path / "recipe.yaml"
        keys = {"name": "t", "target": {"model": "target"}, "drafter": {"model": "head", **drafter}}
        path.write_text(yaml.safe_dump(keys))
        return make_plan(load_recipe(path))

    return plan


@pytest.fixture
def written(tmp_path):
    return lambda *args, **more: eagle3(tmp_path / "head", TARGET, *args, **{"draft_size": DRAFTED, **more})


def refusal(plan, **drafter) -> SpeccompileError:
    with pytest.raises((CheckpointError, RecipeError)) as caught:
        plan(**drafter)
    assert caught.value.hint
    return caught.value


TAPS = {
    "SafeAILab": ("layers.2.input", "layers.4.input", "layers.5.input"),
    "AngelSlim": ("layers.2.input", "layers.4.input", "layers.5.input"),
    "nebius": ("layers.2.input", "layers.4.input", "layers.5.input"),
    "speculators": ("layers.2.input", "layers.3.input", "layers.5.input"),
    "SpecForge": ("layers.1.output", "layers.2.output", "layers.4.output"),
    "ModelOpt": ("layers.1.output", "layers.2.output", "layers.4.output"),
    "DeepSpec": ("layers.1.output", "layers.2.output", "layers.4.output"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_one_description(plan, written, dialect):
    written(dialect)
    found = plan()
    head = found.drafter.head
    assert (found.drafter.kind, head.dialect, head.taps) == ("eagle3", dialect, TAPS[dialect])
    assert (head.draft_vocabulary_size, head.vocabulary_size, head.hidden_size) == (DRAFTED, VOCABULARY, 32)
    names = {"fc.weight", "norm.weight", "lm_head.weight", "d2t", "layers.0.self_attn.q_proj.weight"}
    assert names <= set(head.tensors)
    assert found.drafter.tokens == (3 if dialect == "speculators" else 4)
    shown = dict(found_rows(head))
    assert shown["  dialect"].startswith(f"{dialect}, by ")
    assert ("made for 'someone/other'" in " ".join(found.notes)) == (dialect == "speculators")


def test_descriptions_differ_in_nothing_but_their_files(plan, written, tmp_path):
    heads = []
    for dialect in ("SafeAILab", "AngelSlim", "nebius"):
        written(dialect)
        heads.append(plan(kind="eagle3").drafter.head)
        for file in (tmp_path / "head").iterdir():
            file.unlink()
    plain = [replace(each, dialect="", evidence="", tensors=sorted(each.tensors)) for each in heads]
    assert plain[0] == plain[1] == plain[2]


def test_pickled_weights_are_the_same(plan, written, tmp_path):
    written("SafeAILab")
    expected = {name: source.shape for name, source in plan().drafter.head.tensors.items()}
    (tmp_path / "head" / "model.safetensors").unlink()
    written("SafeAILab", pickle="pytorch_model.bin")
    assert {name: source.shape for name, source in plan().drafter.head.tensors.items()} == expected


def test_switches_layers_and_norms(plan, written):
    config = {"norm_before_residual": True, "norm_output": True, "norm_before_fc": True, "fc_norm": True}
    written("speculators", layers=2, qk_norm=True, tensors=of_norms(TARGET), **config)
    head = plan().drafter.head
    assert (head.layers.count, head.layers.qk_norm) == (2, True)
    assert {name: head.switches[name] for name in config} == config
    changed = plan(
        kind="eagle3", switches={"norm_output": False}, taps=["layers.0.input", "layers.1.output", "norm.output"]
    )
    assert changed.drafter.head.switches == dict(head.switches) | {"norm_output": False}
    assert changed.drafter.head.taps == ("layers.0.input", "layers.1.output", "norm.output")


def test_absent_switches_are_read_as_their_publishers_do(plan, written):
    written("speculators", norm_before_residual=None)
    assert plan().drafter.head.switches["norm_before_residual"] is True
    written("ModelOpt")
    assert plan().drafter.head.switches["norm_before_residual"] is False


def test_ids_that_reach_the_last_layer_are_boundaries(plan, written):
    written("ModelOpt", boundaries=(3, 5, 9))  # written as 2, 4 and 8
    assert plan().drafter.head.taps == ("layers.2.input", "layers.4.input", "layers.7.output")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"boundaries": (2, 3, 10)}, r"eagle_config.eagle_aux_.*: received layer id 9, expected ids from -1 to 7"),
        ({"boundaries": (2, 3, 5), "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3, 4]}},
         r"config.json: received 4 taps .*expected 3, which is what fc.weight reads"),
        ({"norm_before_magic": True}, r"config.json: received the unknown switch norm_before_magic: True"),
        ({"eagle_config": {"use_rope_magic": 2}}, r"json: received the unknown switch eagle_config.use_rope_magic: 2"),
        ({"tensors": {"enorm.weight": torch.ones(32)}}, r"safetensors: received the tensor 'enorm.weight', which"),
        ({"tensors": {"midlayer.mlp.extra.weight": torch.ones(3)}}, r"safetensors: received the tensor 'midlayer.mlp"),
        ({"rope_scaling": {"type": "magic"}}, r"config.json: rope_scaling: received 'magic', expected one of default"),
        ({"num_key_value_heads": "two"}, r"json: num_key_value_heads: received 'two', expected a whole number"),
        ({"norm_output": "yes"}, r"config.json: norm_output: received 'yes', expected true or false"),
        ({"intermediate_size": 64}, r"safetensors: received tensor 'midlayer.mlp.gate_proj.weight' of shape \[48, "),
        ({"num_experts": 4}, r"config.json: num_experts: received 4, expected nothing: only dense"),
        ({"vocab_size": 9}, r"model: received a head for a target with a vocabulary of 9 .*expected one for 8"),
        ({"target_hidden_size": 64}, r"drafter.model: received a head for a target with a hidden size of 64"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_folder_is_said_by_file_and_key(plan, written, how, message):
    written("SpecForge", **how)
    with pytest.raises((CheckpointError, RecipeError), match=message):
        plan(kind="eagle3")


def test_a_head_for_another_hidden_size_is_refused_before_any_work(plan, tmp_path):
    eagle3(
        tmp_path / "head",
        LlamaConfig(hidden_size=48, num_attention_heads=4, num_hidden_layers=8, vocab_size=VOCABULARY),
        target_hidden_size=None,
    )
    error = refusal(plan)
    assert "hidden size" in str(error)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("lm_head.weight", "received no tensor 'lm_head.weight'"),
        ("midlayer.self_attn.k_proj.weight", "received no tensor 'layers.0.self_attn.k_proj.weight'"),
        ("norm.weight", "received no tensor 'norm.weight'"),
        ("d2t", "'lm_head.weight' over 6 tokens and no 'd2t'"),
    ],
)
def test_missing_tensors_are_named(plan, written, missing, message):
    change_tensors(written("SpecForge"), {missing: None})
    with pytest.raises(CheckpointError, match=message):
        plan()


def test_what_the_recipe_asks_of_a_head(plan, written):
    written("SpecForge")
    assert "drafter.taps: received 2 taps" in str(
        refusal(plan, kind="eagle3", taps=["layers.0.input", "layers.1.input"])
    )
    wrong = ["layers.0.input", "layers.1.input", "layers.8.input"]
    assert "drafter.taps: received 'layers.8.input'" in str(refusal(plan, kind="eagle3", taps=wrong))
    assert "drafter.switches.norm: received an unknown switch" in str(
        refusal(plan, kind="eagle3", switches={"norm": True})
    )
    assert "drafter.switches.norm_output: received 1" in str(refusal(plan, kind="eagle3", switches={"norm_output": 1}))


def test_the_kind_that_is_asked_for_is_the_kind_that_is_there(plan, written, tmp_path, make_checkpoint):
    written("SpecForge")
    assert plan(kind="auto").drafter.kind == "eagle3"
    error = refusal(plan, kind="eagle")
    assert "received a folder of drafter.kind eagle3 (dialect SpecForge" in str(error)
    assert error.hint == "set drafter.kind to eagle3, or to auto"
    error = refusal(plan, kind="model")
    assert str(tmp_path / "head") in str(error)
    assert "received a head of drafter.kind eagle3" in str(error)


def test_a_folder_without_config_or_weights(plan, written, tmp_path):
    written("SpecForge")
    (tmp_path / "head" / "model.safetensors").rename(tmp_path / "weights")
    assert "received no weights" in str(refusal(plan, kind="eagle3"))
    (tmp_path / "head" / "config.json").unlink()
    assert "without config.json" in str(refusal(plan, kind="eagle3"))
    (tmp_path / "head" / "head.gguf").write_bytes(b"GGUF")
    assert "head.gguf: truncated or corrupt" in str(refusal(plan, kind="eagle3"))


@pytest.mark.parametrize("keep", [0.5, 0.98])
def test_a_truncated_pickle_is_named(plan, written, tmp_path, keep):
    written("SafeAILab", pickle="pytorch_model.bin")
    path = tmp_path / "head" / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    assert str(path) in str(refusal(plan, kind="eagle3"))


def test_a_pickle_of_more_than_tensors_is_refused(plan, written, tmp_path):
    written("SafeAILab", pickle="pytorch_model.bin")
    path = tmp_path / "head" / "pytorch_model.bin"
    torch.save({"fc.weight": torch.nn.Linear(2, 2)}, path)
    assert "not only tensors" in str(refusal(plan, kind="eagle3"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["Eagle3DeepseekV2ForCausalLM"]}, "MLA"),
        ({"jetspec_config": {"width": 4}}, "JetSpec"),
        ({"architectures": ["XPressDraftModel"]}, "XPress"),
    ],
)
def test_what_is_not_compiled_is_refused_by_name(plan, written, tmp_path, config, message):
    written("SpecForge")
    merge_json(tmp_path / "head" / "config.json", config)
    error = refusal(plan, kind="auto")
    assert message in str(error)
    assert "which this version does not compile" in str(error)
