"""What is wrong with an input is told in one error and one hint, with its exit code; nothing is left behind.

Here is what needs a real build or a real bundle; what recipes, checkpoints and bundles look like is in tests/light.
"""

import json
import os
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from speccompile.bundle import hashes
from tests import zoo
from tests.compile.tiny_bundles import contents
from tests.json_files import merge_json

pytestmark = pytest.mark.builds(8)

RECIPE = """
name: tiny
target: {model: target}
drafter: {kind: model, model: drafter}
cache: {max_length: 64, prefill_chunk: 16}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """Return a target and a drafter, and a bloom, which attends where no hook reaches."""
    folder = tmp_path_factory.mktemp("models")
    for name, row in (("target", "gpt2"), ("drafter", "opt"), ("bloom", "bloom")):
        zoo.save(row, folder / name)
    return folder


@pytest.fixture
def recipe(models, tmp_path) -> Path:
    """Return a folder with models of its own, which a test may damage, and their recipe."""
    shutil.copytree(models, tmp_path / "recipe")
    (tmp_path / "recipe" / "recipe.yaml").write_text(RECIPE)
    return tmp_path / "recipe"


@pytest.fixture
def refused(cli, recipe):
    """Build what must be refused: exit code, and stderr without what transformers has to say."""

    def refused(*arguments: object, output: Path = recipe.parent / "build" / "tiny") -> tuple[int, str]:
        before = contents(recipe.parent), sorted(recipe.parent.rglob("*"))
        code, out, err = cli("build", recipe, "--output", output, *arguments)
        assert out == ""
        assert (contents(recipe.parent), sorted(recipe.parent.rglob("*"))) == before
        assert "Traceback" not in err
        return code, err[err.index("error: ") :]

    return refused


def edit_config(folder: Path, **keys: object) -> None:
    merge_json(folder / "config.json", keys)


def edit_weights(folder: Path, edit) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_length_past_the_positions(refused):
    code, err = refused("--set", "cache.max_length=257")
    assert code == 2
    assert "--set cache.max_length: received 257, expected at most 256, the positions of the target 'target'" in err


@pytest.mark.parametrize("name", ["target", "drafter"])
def test_a_truncated_safetensors_file(recipe, refused, name):
    path = recipe / name / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    code, err = refused()
    assert code == 1
    assert f"error: {path}: truncated or corrupt: received" in err
    assert "\nhint: copy or download the file again" in err


def test_a_safetensors_file_without_all_of_the_model(recipe, refused):
    edit_weights(recipe / "target", lambda tensors: tensors.pop("transformer.h.1.mlp.c_fc.weight"))
    code, err = refused()
    assert code == 1
    assert "target: the checkpoint lacks 1 tensors of GPT2LMHeadModel, first transformer.h.1.mlp.c_fc.weight" in err
    assert "\nhint: check that every shard is there" in err


def test_weights_of_another_size_than_the_config_says(recipe, refused):
    edit_config(recipe / "target", n_inner=100)
    code, err = refused()
    assert code == 1
    assert "tensor 'transformer.h.0.mlp.c_fc.bias' of shape [256], expected [100] by config.json" in err


def test_weights_that_are_no_numbers(recipe, refused):
    edit_weights(recipe / "target", lambda tensors: tensors["transformer.wte.weight"].fill_(float("nan")))
    code, err = refused()
    assert code == 1
    assert "error: GPT2LMHeadModel cannot be compiled: transformers' own logits are not finite" in err
    assert "hint: check the checkpoint for weights that are NaN" in err


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("n_layer", "two", "received n_layer: 'two', expected a whole number"),
        ("activation_function", "nonesuch", "target: the weights cannot be loaded: 'nonesuch'"),
    ],
)
def test_a_config_with_a_wrong_value(recipe, refused, key, value, told):
    edit_config(recipe / "target", **{key: value})
    code, err = refused()
    assert code == 1
    assert told in err


def test_an_architecture_that_attends_elsewhere(refused):
    code, err = refused("--set", "target.model=bloom")
    assert code == 1
    assert "bloom/config.json: model_type: received 'bloom', which cannot be compiled: its layers attend without" in err
    assert "hint: choose another target" in err


def test_an_architecture_that_nobody_knows(recipe, refused):
    edit_config(recipe / "target", model_type="nonesuch", architectures=["NonesuchForCausalLM"])
    code, err = refused()
    assert code == 1
    assert "received 'nonesuch', which this version of transformers does not know" in err
    assert "\nhint: only architectures that come with transformers can be compiled; remote code is never run" in err


@pytest.mark.parametrize("wrong", [{"pre_tokenizer": {"type": "Nonesuch"}}, {"added_tokens": 1}])
def test_a_tokenizer_that_is_none(recipe, refused, wrong):
    merge_json(recipe / "target" / "tokenizer.json", wrong)
    code, err = refused("--set", "drafter={kind: none}")
    assert code == 1
    assert "target: the tokenizer cannot be loaded: " in err
    assert "\nhint: check tokenizer.json and tokenizer_config.json" in err


def test_a_prompt_of_the_proof_that_is_too_long(recipe, refused):
    (recipe / "prompts.jsonl").write_text('{"prompt": "short"}\n' + json.dumps({"prompt": "x" * 65}))
    code, err = refused("--set", "prove.prompts=prompts.jsonl")
    assert code == 2
    expected = "prompts.jsonl: received 65 tokens in prompt 2, expected at most 64, which is cache.max_length"
    assert expected in err
    assert "\nhint: shorten the prompt, or set a larger cache.max_length" in err


def test_outputs_that_cannot_be_used(recipe, refused, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.txt").write_text("")
    for output, told in (
        (Path(os.devnull) / "tiny", "cannot be used: Not a directory\nhint: check the folder's permissions"),
        (Path("/proc/tiny"), "cannot be used: "),
        (tmp_path / "file", "is a file, expected a folder\nhint: give another --output (output=..)"),
        (tmp_path / "thesis", "is not empty and not a bundle: expected manifest.json and hashes.json in it\nhint: "),
    ):
        code, err = refused(output=output)
        assert code == 1
        assert f"error: the output {output} {told}" in err


@pytest.mark.parametrize("name", ["model_4", "lookup_3"])
def test_a_bundle_with_one_flipped_byte(built, cli, tmp_path, name):
    folder = tmp_path / "bundle"
    shutil.copytree(built(name).path, folder)
    for file, data in contents(folder).items():
        if not data:
            continue
        damaged = bytearray(data)
        damaged[len(data) // 2] ^= 1
        (folder / file).write_bytes(damaged)
        code, out, err = cli("generate", folder, "--token-ids", "5,6")
        assert (code, out) == (1, "")
        assert err.startswith(f"error: {folder}/")
        assert file in err or hashes.HASHES in err
        assert [line.partition(": ")[0] for line in err.splitlines()] == ["error", "hint", "help"]
        (folder / file).write_bytes(data)
    assert cli("generate", folder, "--token-ids", "5,6", "--max-new-tokens", 3)[0] == 0


def test_prompts_files_that_cannot_be_proven(built, cli, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    for content, told in (
        (b'{"prompt": "\xff"}', f"{prompts}, line 1: received bytes that are not UTF-8"),
        (b"", f"{prompts}: received no prompts, expected one a line"),
        (json.dumps({"prompt": "x" * 97}).encode(), "the prompt has 97 tokens, more than this bundle's capacity of 96"),
        (b'{"token_ids": [272]}', "token id 272 is out of range: expected 0 to 271"),
    ):
        prompts.write_bytes(content)
        code, out, err = cli("prove", built("model_4").path, "--prompts", prompts)
        assert (code, out) == (2, "")
        assert told in err
