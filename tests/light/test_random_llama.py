"""scripts/random_llama.py: transformers loads what it streams, and no shard or chunk decides about a weight."""

import json
import runpy
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

SCRIPT = Path(__file__).parents[2] / "scripts" / "random_llama.py"
SMALL = (
    *("hidden_size=64", "num_hidden_layers=3", "num_attention_heads=4", "num_key_value_heads=2", "head_dim=16"),
    *("intermediate_size=96", "vocab_size=70000"),  # an embedding of more than one chunk
)


class Done(NamedTuple):
    returncode: int
    stderr: str


def run(folder: Path, *arguments: str) -> Done:
    """Run the script here, where torch and transformers are imported."""
    settings = [part for setting in SMALL for part in ("--set", setting)]
    threads = torch.get_num_threads()
    with redirect_stderr(StringIO()) as said, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(SCRIPT), str(folder), *settings, *arguments])
        try:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        except SystemExit as ended:
            if isinstance(ended.code, str):
                return Done(1, ended.code)
            return Done(int(ended.code or 0), said.getvalue())
        finally:
            torch.set_num_threads(threads)
    return Done(0, said.getvalue())


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random") / "sharded"
    done = run(folder, "--size", "1b", "--shard-size", "100KB")
    assert done.returncode == 0, done.stderr
    return folder


def load(folder: Path) -> LlamaForCausalLM:
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model


def test_transformers_loads_shards_in_their_own_dtype_with_the_head_tied(sharded: Path) -> None:
    model = load(sharded)
    assert model.dtype == torch.bfloat16
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.config.num_hidden_layers == 3
    assert model.config.eos_token_id is None
    assert model.generation_config.eos_token_id is None
    assert bool((model.model.norm.weight == 1).all())
    drawn = model.model.embed_tokens.weight.float()
    assert drawn.std().item() == pytest.approx(0.02, rel=0.01)
    assert drawn.mean().item() == pytest.approx(0, abs=1e-4)


def test_shards_and_index_are_those_of_save_pretrained(sharded: Path, tmp_path: Path) -> None:
    model = LlamaForCausalLM(LlamaConfig.from_pretrained(sharded)).to(
        torch.bfloat16
    )  # saved in another order if loaded
    model.load_state_dict(load(sharded).state_dict())
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    names = sorted(file.name for file in sharded.iterdir())
    assert names == sorted(file.name for file in tmp_path.iterdir())
    assert "model-00001-of-00003.safetensors" in names
    for name in names:
        if name.endswith(".json"):
            assert json.loads((sharded / name).read_text()) == json.loads((tmp_path / name).read_text()), name
            continue
        with safe_open(sharded / name, "pt") as ours, safe_open(tmp_path / name, "pt") as theirs:
            assert ours.metadata() == theirs.metadata()
            assert sorted(ours.keys()) == sorted(theirs.keys())
            assert all(torch.equal(ours.get_tensor(key), theirs.get_tensor(key)) for key in ours.keys())  # noqa: SIM118


@pytest.mark.sweep("writes and loads one more model")
def test_a_weight_depends_on_its_name_alone(sharded: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "one", "--dtype", "bfloat16")  # another size: rotation, positions, a head of its own
    assert done.returncode == 0, done.stderr
    assert [file.name for file in (tmp_path / "one").glob("*.safetensors")] == ["model.safetensors"]
    once, again = load(tmp_path / "one").state_dict(), load(sharded).state_dict()
    same = [name for name, weight in once.items() if torch.equal(weight, again[name])]
    assert sorted(set(once) - set(same)) == ["lm_head.weight"]


def test_a_folder_with_a_model_is_refused(sharded: Path) -> None:
    done = run(sharded)
    assert done.returncode == 1
    assert "expected a folder without a model, it has model-00001-of-00003.safetensors" in done.stderr
