"""What a build leaves: the files of a bundle, and what they say of it."""

import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file

from speccompile.bundle.hashes import hash_file
from speccompile.cli import exit_codes
from speccompile.cli.main import group
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import contents, each

pytestmark = pytest.mark.builds(2)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
COMMAND_LINE = "from speccompile.cli import main; main()"
TARGET_WEIGHTS = "target.float32.native.float32.weights"
PROMPTS = '{"prompt": "def größe(self)"}\n{"token_ids": [5, 6, 7]}\n'
HUB_RECIPE = """
name: from-the-hub
target: {model: organisation/name}
drafter: {kind: prompt_lookup, tokens: 2}
cache: {max_length: 64, prefill_chunk: 16}
"""


def read(folder: Path, name: str):
    return json.loads((folder / name).read_bytes())


@pytest.mark.parametrize("name", each())
def test_a_bundle_holds_its_graphs_their_weights_and_no_more(built, name):
    folder = built(name).path
    manifest = read(folder, "manifest.json")
    expected = {"manifest.json", "lock.json", "proof.json", "hashes.json", f"graphs/{TARGET_WEIGHTS}"}
    expected |= {f"graphs/{graph['name']}.onnxruntime-cpu.onnx" for graph in manifest["graphs"]}
    expected |= {"graphs/drafter.float32.native.float32.weights"} if name.startswith("model") else set()
    expected |= {"tokenizer/tokenizer.json"} if name != "none" else set()
    assert set(contents(folder)) == expected
    assert [graph["name"] for graph in manifest["graphs"]] == (["verify"] if name == "none" else ["verify", "draft"])


@pytest.mark.parametrize("name", each())
def test_nothing_in_a_bundle_names_the_machine_that_built_it(built, name):
    case = built(name)
    for path in (case.folder, Path(__file__).parents[2]):
        assert [file for file, data in contents(case.path).items() if bytes(path) in data] == []


def test_tied_weights_are_stored_once(built):
    case = built("model_8")
    (graph,) = (file for file in contents(case.path) if file.startswith("graphs/verify"))
    stored = onnx.load(case.path / graph, load_external_data=False).graph.initializer
    sizes = [int(np.prod(tensor.dims)) for tensor in stored]
    assert sizes.count(zoo.VOCABULARY * 64) == 1
    weights = sum(value.nbytes for value in load_file(case.folder / "target" / "model.safetensors").values())
    assert (case.path / "graphs" / TARGET_WEIGHTS).stat().st_size < 1.05 * weights


def test_the_lock_holds_every_input_and_version(built):
    case = built("model_1")
    lock = read(case.path, "lock.json")
    assert set(lock["inputs"]) == {"target", "drafter"}
    for role, record in lock["inputs"].items():
        assert (record["reference"], record["commit"]) == (role, None)
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(record["files"])
        assert record["files"] == {file: hash_file(case.folder / role / file) for file in record["files"]}
    assert {"speccompile", "torch", "transformers", "onnxruntime"} <= set(lock["versions"])


def test_the_proof_says_what_was_compared(built):
    proof = read(built("model_1").path, "proof.json")
    assert proof["proven"]
    compared = [(row["graph"], row["level"]) for row in proof["graphs"]]
    eager, weights, lowered = "neutral against eager", "weights against the model's", "onnxruntime-cpu against neutral"
    assert compared == [
        ("verify", eager), ("verify", f"{eager}, nodes"), ("draft", eager), ("verify", weights), ("draft", weights),
        ("verify", lowered), ("draft", lowered),
    ]  # fmt: skip
    assert all(row.get("values") or row["weights"] for row in proof["graphs"])
    (engine,) = proof["engines"]
    assert engine["engine"] == "onnxruntime-cpu"
    assert engine["prompts"] == engine["equal"] == engine["transformers"]["equal"] == 3
    assert engine["new_tokens"] == 3 * 16
    assert engine["near_ties"] == engine["transformers"]["near_ties"] == []
    assert "quality" not in proof, "the perplexity of random tokens says nothing"


def test_a_proof_that_was_left_out_is_not_claimed(built, cli):
    assert read(built("none").path, "proof.json") == {"proven": False}
    code, out, _ = cli("inspect", built("none").path)
    assert code == 0
    assert "proof (proof.json)\n  proven  false" in out


@pytest.fixture(scope="module")
def from_hub(tmp_path_factory):
    """Build a sharded model in the Hub's cache, built by the command line, in another process, into the default
    folder."""
    folder = tmp_path_factory.mktemp("hub")
    repository = folder / "cache" / "models--organisation--name"
    zoo.model("llama").save_pretrained(repository / "snapshots" / COMMIT, max_shard_size="100KB")
    zoo.byte_tokenizer().save_pretrained(repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (folder / "prompts.jsonl").write_text(PROMPTS)
    (folder / "recipe.yaml").write_text(HUB_RECIPE)
    arguments = ["build", "recipe.yaml", "--dump-graphs", "dumped", "--set", "prove.prompts=prompts.jsonl"]
    # A cache of its own: what other tests have built would be taken from theirs, and not be traced.
    own = {"HF_HUB_CACHE": str(folder / "cache"), "SPECCOMPILE_CACHE_DIR": str(folder / "builds")}
    environment = os.environ | {"HF_HUB_OFFLINE": "1"} | own
    command = [sys.executable, "-c", COMMAND_LINE, *arguments, "--set", "prove.max_new_tokens=8"]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return folder, run


@pytest.mark.sweep("a process of its own that imports torch")
def test_a_model_of_the_hub_is_built_with_its_commit(from_hub):
    folder, run = from_hub
    assert run.stdout == "build/from-the-hub\n"
    record = read(folder / "build" / "from-the-hub", "lock.json")["inputs"]["target"]
    assert (record["reference"], record["commit"]) == ("organisation/name", COMMIT)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """Build the same model from a folder, in this process. Return the folder, and the text on stderr."""
    folder = tmp_path_factory.mktemp("sharded")
    zoo.model("llama").save_pretrained(folder / "target", max_shard_size="100KB")
    zoo.byte_tokenizer().save_pretrained(folder / "target")
    (folder / "prompts.jsonl").write_text(PROMPTS)
    (folder / "recipe.yaml").write_text(HUB_RECIPE.replace("organisation/name", "target"))
    arguments = ["build", folder, "--output", folder / "bundle", "--dump-graphs", folder / "dumped", "--no-cache"]
    arguments += ["--set", "prove.prompts=prompts.jsonl", "--set", "prove.max_new_tokens=8"]
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
        assert exit_codes.run(group, [str(each) for each in arguments]) == 0, said.getvalue()
    return folder, said.getvalue()


def test_sharded_weights_are_built(sharded):
    folder, _ = sharded
    files = read(folder / "bundle", "lock.json")["inputs"]["target"]["files"]
    assert len([file for file in files if file.endswith(".safetensors")]) > 1
    assert "model.safetensors.index.json" in files


def test_progress_goes_to_stderr(sharded):
    _, said = sharded
    lines = said.splitlines()
    assert [line for line in lines if line.startswith("tracing")][:1] == ["tracing draft ..."]
    assert lines[-1].startswith("writing the bundle")


def test_the_graphs_of_a_build_can_be_kept(sharded):
    folder, _ = sharded
    forms = {"neutral", "onnxruntime-cpu"}
    graphs = {f"{graph}.{form}.onnx" for graph in ("verify", "draft") for form in forms}
    assert graphs <= set(contents(folder / "dumped"))
    for graph in graphs:
        onnx.checker.check_model(folder / "dumped" / graph)


def test_quality_is_measured_on_the_recipes_prompts(sharded):
    """Measure a random model in float32, which loses nothing."""
    folder, _ = sharded
    quality = read(folder / "bundle", "proof.json")["quality"]
    (engine,) = quality.pop("engines")
    perplexity = quality.pop("perplexity")
    tokens = Bundle.open(folder / "bundle", threads=1).token_ids("def größe(self)")
    assert quality == {"file": "prompts.jsonl", "texts": 2, "tokens": len(tokens) + 1, "kl_tokens": len(tokens) + 1}
    assert engine.pop("perplexity") == pytest.approx(perplexity, rel=1e-4)
    assert engine == {
        "engines": ["onnxruntime-cpu"], "executed_by": "onnxruntime cpu", "precision": "float32", "block_size": None,
        "same_argmax": 1.0, "kl_divergence": 0.0,
    }  # fmt: skip


def test_the_recipes_prompts_are_proven(sharded):
    folder, _ = sharded
    (engine,) = read(folder / "bundle", "proof.json")["engines"]
    assert (engine["prompts"], engine["equal"], engine["new_tokens"]) == (2, 2, 16)
    bundle = Bundle.open(folder / "bundle", threads=1)
    assert bundle.generate("def größe(self)").prompt_tokens == len(bundle.token_ids("def größe(self)"))
