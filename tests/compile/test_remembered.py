"""The build cache: which steps are taken from it, which are not, and that the bundle is the same."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from speccompile.cli import exit_codes
from speccompile.cli.main import group
from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from tests import zoo
from tests.compile.tiny_bundles import contents

pytestmark = pytest.mark.builds(7)

RECIPE = """
name: remembered
target: {model: target}
drafter: {kind: prompt_lookup, tokens: 3}
cache: {max_length: 64, prefill_chunk: 16}
precision: {target: int4}
prove: {prompts: prompts.jsonl, max_new_tokens: 8}
"""
PROMPTS = '{"token_ids": [5, 6, 7, 5, 6]}\n{"token_ids": [9, 8]}\n'


class Project:
    """A recipe with its model, and a cache of its own."""

    def __init__(self, folder: Path, monkeypatch, capsys=None) -> None:
        self.folder, self.cache, self.capsys = folder, folder / "cache", capsys
        monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(self.cache))

    def arguments(self, name: str, *options: str) -> list[str]:
        return [str(each) for each in ("build", self.folder / "recipe.yaml", "--output", self.folder / name, *options)]

    def start(self, name: str) -> subprocess.Popen[str]:
        """Build in a process of its own."""
        command = [sys.executable, "-c", "from speccompile.cli import main; main()", *self.arguments(name)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def said(self, name: str, *options: str) -> str:
        """Build in this process, and return its messages."""
        self.capsys.readouterr()
        code = exit_codes.run(group, self.arguments(name, *options))
        said = self.capsys.readouterr().err
        assert code == 0, said
        return said

    def build(self, name: str, *options: str) -> set[str]:
        """Build, and return the steps that were taken from the cache."""
        lines = self.said(name, *options).splitlines()
        return {line.removesuffix(": from the cache") for line in lines if line.endswith(": from the cache")}

    def digest(self, name: str) -> str:
        return json.loads((self.folder / name / "hashes.json").read_bytes())["digest"]

    def entries(self) -> list[Path]:
        return [path for path in (self.cache / "builds").iterdir() if path.is_dir()]


def model(seed: int = 0) -> PreTrainedModel:
    return zoo.model("llama", seed=seed, num_hidden_layers=1).to(torch.bfloat16)


def write(folder: Path) -> None:
    """Write the recipe, with its model and prompts."""
    model().save_pretrained(folder / "target", max_shard_size="100KB")
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "prompts.jsonl").write_text(PROMPTS)


@pytest.fixture(scope="module")
def built_once(tmp_path_factory) -> Path:
    """Return a project whose bundle has been built into an empty cache, as `first`. Tests copy it."""
    folder = tmp_path_factory.mktemp("project")
    write(folder)
    with pytest.MonkeyPatch.context() as patch:
        Project(folder, patch)
        build(make_plan(load_recipe(folder)), folder / "first")
    return folder


@pytest.fixture
def project(built_once, tmp_path, monkeypatch, capsys) -> Project:
    shutil.copytree(built_once, tmp_path / "project")
    return Project(tmp_path / "project", monkeypatch, capsys)


def test_a_second_build_takes_every_step_and_gives_the_same_bundle(project):
    taken = project.build("second")
    assert {"tracing verify", "tracing draft", "proving tokens on onnxruntime-cpu.int4-32"} <= taken
    assert "writing target.int4-32.native.float32.weights" in taken
    assert contents(project.folder / "second") == contents(project.folder / "first")


@pytest.mark.sweep("as above, built once more without the cache, as test_reproducible.py does for another bundle")
def test_a_build_without_the_cache_gives_the_same_bundle_and_keeps_nothing(project):
    kept = len(project.entries())
    assert project.build("third", "--no-cache") == set()
    assert len(project.entries()) == kept
    assert project.digest("third") == project.digest("first")


def test_other_drafts_leave_the_target_alone(project):
    taken = project.build("second", "--set", "drafter.tokens=5")
    assert {"tracing verify", "proving verify: neutral against eager"} <= taken
    assert "decoding alone on onnxruntime-cpu.int4-32" in taken
    assert "writing target.int4-32.native.float32.weights" in taken
    assert taken.isdisjoint({"tracing draft", "proving tokens on onnxruntime-cpu.int4-32"})
    assert project.digest("second") != project.digest("first")


@pytest.mark.sweep("as above, built once more without the cache")
def test_other_drafts_give_the_same_bundle_with_and_without_the_cache(project):
    project.build("second", "--set", "drafter.tokens=5")
    assert project.build("third", "--set", "drafter.tokens=5", "--no-cache") == set()
    assert project.digest("third") == project.digest("second")


def test_other_prompts_are_proven_alone(project):
    (project.folder / "prompts.jsonl").write_text(PROMPTS + '{"token_ids": [1, 2, 3]}\n')
    taken = project.build("second")
    assert {"tracing verify", "tracing draft", "proving verify: neutral against eager"} <= taken
    assert taken.isdisjoint({"proving tokens on onnxruntime-cpu.int4-32", "measuring quality"})
    proof = json.loads((project.folder / "second" / "proof.json").read_bytes())
    assert [engine["prompts"] for engine in proof["engines"]] == [3]


def test_another_precision_traces_nothing(project):
    taken = project.build("second", "--set", "precision.target=int8")
    assert {"tracing verify", "tracing draft", "proving verify: neutral against eager"} <= taken
    assert not any(step.startswith("writing target") for step in taken)


def test_another_name_changes_no_step(project):
    taken = project.build("second")
    assert project.build("third", "--set", "name=other") == taken
    assert contents(project.folder / "third")["proof.json"] == contents(project.folder / "second")["proof.json"]


def test_another_engine_leaves_the_first_alone(project):
    more = "{backend: tensorrt, defer: true, compute_capability: '8.9', precision: {target: float16}}"
    taken = project.build("second", "--set", f"engines=[{{backend: onnxruntime, provider: cpu}}, {more}]")
    assert {"tracing verify", "tracing draft", "proving verify: neutral against eager"} <= taken
    first = "onnxruntime-cpu.int4-32"
    assert {f"proving tokens on {first}", f"proving verify: {first} against neutral"} <= taken


def test_another_checkpoint_is_another_build(project):
    model(seed=3).save_pretrained(project.folder / "target", max_shard_size="100KB")
    assert "tracing verify" not in project.build("second")
    assert project.digest("second") != project.digest("first")


def test_a_damaged_entry_is_found_and_done_again(project):
    damaged = 0
    for entry in project.entries():
        for file in entry.iterdir():
            data = bytearray(file.read_bytes())
            if file.suffix in (".weights", ".onnx") and data:
                data[len(data) // 2] ^= 1
                file.write_bytes(data)
                damaged += 1
    assert damaged > 3
    taken = project.build("second")
    assert taken.isdisjoint({"tracing verify", "writing target.int4-32.native.float32.weights"})
    assert project.digest("second") == project.digest("first")
    assert "tracing verify" in project.build("third")


@pytest.mark.sweep("two processes that import torch and build")
def test_two_builds_at_once_do_not_harm_each_other(tmp_path, monkeypatch, capsys):
    write(tmp_path)
    project = Project(tmp_path, monkeypatch, capsys)
    running = [project.start(name) for name in ("first", "other")]
    said = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert contents(project.folder / "other") == contents(project.folder / "first")
    assert [path.name for path in (project.cache / "builds").iterdir() if path.name.endswith(".part")] == []
    assert "tracing verify" in project.build("third")


def test_a_cache_that_cannot_be_written_to_costs_a_note(project):
    shutil.rmtree(project.cache)
    project.cache.mkdir()
    (project.cache / "builds").write_text("in the way")
    said = project.said("second", "--skip-prove")
    assert f"note: cannot write the build cache in {project.cache / 'builds'}: " in said
    assert said.count("note: cannot write the build cache") == 1


def test_a_limit_of_none_keeps_nothing(project, monkeypatch):
    shutil.rmtree(project.cache)
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "0")
    assert project.build("second", "--skip-prove") == set()
    assert not (project.cache / "builds").exists()
