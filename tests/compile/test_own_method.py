"""A drafting method that another package brings: nothing of ours knows it, and every command does with it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from transformers import PreTrainedModel

from speccompile import drafters
from speccompile.compiler.build import cached_steps
from tests import zoo
from tests.compile.tiny_bundles import save

METHOD = Path(__file__).parents[1] / "own_method"
RECIPE = "name: own\ntarget: {model: target}\ndrafter: {kind: echo, tokens: 4}\ncache: {max_length: 64}\n"
COMMANDS = """
import json, sys
from speccompile.cli import exit_codes
from speccompile.cli.main import group

for command in json.loads(sys.argv[1]):
    print(f"== {command[0]}", flush=True)
    assert exit_codes.run(group, ["-q", *command]) == int(sys.argv[2]), command
"""


def target() -> PreTrainedModel:
    return zoo.model("llama", num_hidden_layers=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a recipe that names the method, and a package that is installed with its entry point."""
    folder = tmp_path_factory.mktemp("own")
    save(target(), folder / "target", tokenizer=False)
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "prompts.jsonl").write_text('{"token_ids": [5, 6, 7]}\n{"token_ids": [9, 8]}\n')
    installed = folder / "site" / "echo_drafter-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-drafter\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[speccompile.drafters]\necho = echo_drafter\n")
    return folder


def run(folder: Path, *commands: list[str], code: int = 0) -> "subprocess.CompletedProcess[str]":
    own = {"PYTHONPATH": os.pathsep.join([str(METHOD), str(folder / "site"), *sys.path])}
    line = [sys.executable, "-c", COMMANDS, json.dumps(commands), str(code)]
    done = subprocess.run(line, cwd=folder, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def said(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    """Return what each command has printed."""
    parts = done.stdout.split("== ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def test_another_code_of_it_is_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build again after a change of the method's code: the cache gives no trace of the earlier version."""
    package = ModuleType("echo_drafter")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(drafters._FOLDER_OF, "echo", package)
    found = []
    for text in ("PERIOD = 2", "PERIOD = 3", "PERIOD = 2"):
        (tmp_path / "drafter.py").write_text(text)
        cached_steps.toolchain_key.cache_clear()
        found.append(cached_steps.toolchain_key()["code"])
    cached_steps.toolchain_key.cache_clear()
    assert found[0] == found[2] != found[1]


PROMPTS = ("--prompts", "prompts.jsonl", "--max-new-tokens", "6", "--repeats", "1", "--threads", "1", "--json")


@pytest.mark.builds(2)
def test_it_is_planned_built_proven_generated_with_and_benched(folder: Path) -> None:
    done = run(
        folder,
        ["plan", "recipe.yaml"],
        ["plan", "recipe.yaml", "--json"],
        ["build", "recipe.yaml", "--output", "bundle", "--set", "prove.prompts=prompts.jsonl"],
        ["generate", "bundle", "--token-ids", "5,6,7", "--max-new-tokens", "12", "--fixed-draft-length", "--json"],
        ["bench", "bundle", *PROMPTS],
    )
    outputs = said(done)
    assert re.search(r"^drafter\.period +2 +default$", done.stdout, re.M)
    drafter = json.loads(outputs["plan"])["drafter"]
    assert (drafter["kind"], drafter["tokens"], drafter["options"]) == ("echo", 4, {"period": 2})
    manifest = json.loads((folder / "bundle" / "manifest.json").read_bytes())
    assert manifest["plan"]["drafter"]["options"] == {"period": 2}
    proof = json.loads((folder / "bundle" / "proof.json").read_bytes())
    assert [engine["prompts"] for engine in proof["engines"]] == [2]
    made = json.loads(outputs["generate"])
    text = torch.tensor([[5, 6, 7]])
    expected = target().generate(text, attention_mask=torch.ones_like(text), do_sample=False, max_new_tokens=12)[0, 3:]
    assert made["token_ids"] == expected.tolist()
    assert made["mode"] == "speculative"
    assert json.loads(outputs["bench"])["equal_prompts"] == 2


@pytest.mark.sweep("builds two bundles, and measures each in a process of its own")
def test_it_is_compared_and_tuned(folder: Path) -> None:
    (folder / "ways.yaml").write_text("echo-3: {kind: echo, tokens: 3, period: 1}\n")
    done = run(
        folder,
        ["compare", "recipe.yaml", "--ways", "ways.yaml", "--output", "ways", "--minutes", "0", *PROMPTS],
        ["tune", "recipe.yaml", "--drafts", "2,4", *PROMPTS[:4], "--threads", "1", "--json"],
    )
    outputs = said(done)
    compared = json.loads(outputs["compare"])
    assert [way["name"] for way in compared["ways"]] == ["autoregressive", "echo-3"]
    assert compared["refused"] == []
    tried = {each["drafter"] for each in json.loads(outputs["tune"])["candidates"]}
    assert tried == {"none", "chain of 2", "chain of 4"}


def test_its_own_keys_are_checked_and_mean_nothing_elsewhere(folder: Path) -> None:
    wrong = {
        "drafter.period: received 9, expected a whole number from 1 to 8": ["drafter.period=9"],
        "received 4, expected at most 3, the drafts of a round": ["drafter.period=4", "drafter.tokens=3"],
        "it only with drafter.kind echo, not jacobi": ["drafter.kind=jacobi", "drafter.period=2"],
        "did you mean 'echo'?": ["drafter.kind=ecko"],
    }
    commands = [["plan", "recipe.yaml", *(f"--set={each}" for each in settings)] for settings in wrong.values()]
    errors = run(folder, *commands, code=2).stderr.split("error: ")[1:]
    assert len(errors) == len(wrong)
    assert [words for words, said in zip(wrong, errors, strict=True) if words not in said] == []
