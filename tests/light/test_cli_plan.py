"""`speccompile plan`, as its user sees it."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from speccompile.machine.system import MemoryLimit
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.resource_estimate import estimate_resources
from speccompile.recipe.resources import AvailableResources


@pytest.fixture
def plan(command_line):
    return partial(command_line, "plan")


def test_the_table_shows_every_value_and_who_decided_it(plan, make_recipe):
    recipe = make_recipe(drafter={"kind": "model", "model": "drafter"})
    code, out, err = plan(recipe, "--set", "drafter.tokens=6")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if not line.startswith(" ")}
    assert rows["name"] == ["demo", "recipe"]
    assert rows["drafter.tokens"] == ["6", "--set"]
    assert rows["cache.max_length"] == ["64", "default"]
    assert rows["engines.0.provider"] == ["cpu", "default"]
    assert rows["precision.drafter"] == ["float32", "checkpoint"]
    assert ["vocabulary", "8", "checkpoint"] in [line.split() for line in out.splitlines()]
    assert rows["engines.0.precision.drafter"] == ["float32", "checkpoint"]


def test_the_table_ends_with_the_notes(plan, make_recipe, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "mute", words=None)
    code, out, _ = plan(make_recipe(drafter={"kind": "model", "model": "mute"}))
    assert code == 0
    assert out.endswith("note: no tokenizer.json in drafter: only the sizes of the vocabularies were compared\n")


def test_lookup_drafters_and_hub_models_have_their_rows(plan, make_recipe, make_checkpoint, tmp_path, monkeypatch):
    commit = make_checkpoint(tmp_path / "abc123")
    monkeypatch.setattr("speccompile.recipe.resolve.fetch_snapshot", lambda *_: (commit, "abc123"))
    code, out, _ = plan(make_recipe(target={"model": "organisation/name"}, drafter={"kind": "prompt_lookup"}))
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert ["drafter.ngram", "3", "default"] in rows
    assert ["target.revision", "main", "default"] in rows
    assert ["commit", "abc123", "Hub"] in rows


def rows_of(out):
    return {line.split("  ")[0]: line.split()[1:] for line in out.splitlines() if not line.startswith(" ")}


def test_trees_rules_and_sampling_have_their_rows(plan, make_recipe):
    drafter = {"kind": "models", "models": ["drafter", "drafter"], "tree": [2, 1]}
    code, out, _ = plan(make_recipe(drafter=drafter), "--set", "verify={method: typical, delta: 0.25}")
    assert code == 0
    rows = rows_of(out)
    assert rows["drafter.models.1.model"] == ["drafter", "recipe"]
    assert rows["drafter.models.1.model"] == rows["drafter.models.0.model"]
    assert rows["drafter.tree"] == ["static,", "depth", "2", "recipe"]
    assert rows["drafter.tokens"] == ["8", "(2", "models)", "recipe"]
    assert rows["drafter.sample"] == ["false", "default"]
    assert rows["verify.method"] == ["typical", "(not", "exact)", "--set"]
    assert (rows["verify.epsilon"], rows["verify.delta"]) == (["0.09", "default"], ["0.25", "--set"])
    assert rows["precision.drafter"] == ["float32", "checkpoint"]


def test_layers_and_dynamic_trees_have_their_rows(plan, make_recipe, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "deep", num_hidden_layers=4)
    drafter = {"kind": "layer_skip", "layers": [0, 2], "tree": {"depth": 3, "top_k": 2, "nodes": 6}}
    recipe = make_recipe(target={"model": "deep"}, drafter=drafter, decoding="sampling")
    code, out, _ = plan(recipe, "--set", "drafter.sample=false")
    assert code == 0
    rows = rows_of(out)
    assert rows["drafter.layers"] == ["0,", "2", "recipe"]
    assert rows["drafter.tree"] == ["dynamic,", "top_k", "2,", "depth", "3", "recipe"]
    assert (rows["drafter.tokens"], rows["graphs"]) == (["6", "recipe"], ["fused", "default"])
    assert (rows["decoding"], rows["drafter.sample"]) == (["sampling", "recipe"], ["false", "--set"])
    assert rows["engines.0.precision.drafter"] == ["float32", "default"]
    assert ["layers", "4", "checkpoint"] in [line.split() for line in out.splitlines()]
    _, out, _ = plan(recipe, "--set", "drafter.sample=false", "--set", "drafter.layers={attention: [1, 3]}")
    assert rows_of(out)["drafter.layers"] == ["attention", "1,", "3;", "mlp", "none", "--set"]


def test_the_texts_of_the_proof_have_their_rows(plan, make_recipe, tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"prompt": "def self"}\n')
    for prove, prompts, held_out in (
        ({}, "(the build's own) default", "(none) default"),
        ({"prompts": "texts.jsonl"}, "texts.jsonl recipe", "(the prompts) default"),
        ({"held_out": "texts.jsonl"}, "(the build's own) default", "texts.jsonl recipe"),
    ):
        code, out, _ = plan(make_recipe(prove=prove))
        assert code == 0
        rows = rows_of(out)
        assert [" ".join(rows[f"prove.{key}"]) for key in ("prompts", "held_out")] == [prompts, held_out]


def test_json_is_the_plans_own_and_what_it_needs(plan, make_recipe):
    recipe = make_recipe()
    code, out, _ = plan(recipe, "--json", "--set", "cache.max_length=32")
    assert code == 0
    data, made = json.loads(out), make_plan(load_recipe(recipe, ["cache.max_length=32"]))
    beside = {key: data.pop(key) for key in ("needs", "room", "lacking", "context")}
    assert data == made.to_json()
    assert beside["needs"] == estimate_resources(made).to_json()
    assert beside["needs"]["disk"] == beside["needs"]["bundle"] + beside["needs"]["temporary"] > 0
    assert Path(beside["room"]["folder"]).is_dir()
    assert beside["room"]["disk"] > 0
    assert beside["room"]["memory"] > 0
    assert beside["lacking"] == []
    assert beside["context"]["memory"] == 10**9


def test_the_longest_text_is_that_for_the_memory_that_is_given(plan, make_recipe, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "layers", num_hidden_layers=3, num_attention_heads=2, hidden_size=8)
    recipe = make_recipe(target={"model": "layers"})
    token = 3 * 2 * 2 * 4 * 4  # layers, keys and values, heads, numbers of a head, bytes
    for options, memory in (((), 1e9), (("--cache-gb", "0.001"), 1e6)):
        context = json.loads(plan(recipe, "--json", *options)[1])["context"]
        assert (context["bytes_per_token"], context["memory"]) == (token, memory)
        assert memory / token - 1000 < context["tokens"] < memory / token
        assert f"{memory / 1e9:g} GB holds" in plan(recipe, *options)[1]
    assert plan(recipe, "--cache-gb", "0")[0] == 2


def test_the_table_shows_what_is_needed_of_what_there_is(plan, make_recipe):
    _, out, _ = plan(make_recipe())
    rows = rows_of(out)
    assert re.fullmatch(r"[\d.]+ [MG]B, [\d.]+ [MG]B free in /.* estimate", " ".join(rows["needs.disk"]))
    assert re.fullmatch(r"[\d.]+ [MG]B of [\d.]+ [MG]B estimate", " ".join(rows["needs.memory"]))


def test_too_little_is_noted_by_plan_and_refused_by_build(plan, make_recipe, monkeypatch, tmp_path, command_line):
    recipe = make_recipe(drafter={"kind": "none"})
    lacking = AvailableResources(tmp_path, 100_000, (MemoryLimit("`ulimit -v`", "address space", 10**8, "raise it"),))
    monkeypatch.setattr("speccompile.recipe.resources.find_resources", lambda output: lacking)
    code, out, _ = plan(recipe)
    notes = [line for line in out.splitlines() if line.startswith("note: ")]
    assert code == 0
    assert [note.partition(" is too small")[0].partition(": received")[0] for note in notes] == [
        f"note: not enough disk space in {tmp_path}",
        "note: `ulimit -v`",
    ]
    assert json.loads(plan(recipe, "--json")[1])["lacking"] == [note.removeprefix("note: ") for note in notes]
    output = tmp_path / "bundle"
    code, _, err = command_line("build", recipe, "--output", output)
    assert code == 1
    assert err.startswith(f"error: not enough disk space in {tmp_path}: received 0.1 MB free, expected about ")
    assert err.splitlines()[1] == "hint: free some disk space, or give an --output (output=..) on another disk"
    assert not output.exists()


def break_config(folder):
    (folder / "target" / "config.json").unlink()


def truncate_weights(folder):
    path = folder / "target" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:50])


def write_wrong_prompts(folder):
    (folder / "prompts.jsonl").write_bytes(b'{"prompt": "\xff"}')


BAD_INPUTS = [
    ("name: [", None, 2, "received text that is not YAML"),
    ("name: a\ntarget: {model: target}\ncach: {}", None, 2, "cach: received an unknown key"),
    (
        "name: a\ntarget: {model: target}\ncache: {max_length: long}",
        None,
        2,
        "received 'long', expected a whole number",
    ),
    ("name: a\ntarget: {model: target}\ndrafter: {tokens: 0}", None, 2, "drafter.tokens: received 0"),
    ("name: a\ntarget: {model: target}\ncache: {max_length: -1}", None, 2, "cache.max_length: received -1"),
    ("name: a\ntarget: {model: target}\ncache: {batch_size: 0}", None, 2, "cache.batch_size: received 0"),
    ("name: a\ntarget: {model: ./gone}", None, 2, "target.model: received './gone' (nothing lies at"),
    ("name: a\ntarget: {model: target}", break_config, 1, "received a folder without config.json"),
    ("name: a\ntarget: {model: target}", truncate_weights, 1, "model.safetensors: truncated or corrupt"),
    ("name: a\ntarget: {model: target}\ncache: {max_length: 99}", None, 2, "received 99, expected at most 64"),
    (
        "name: a\ntarget: {model: target}\nengines: [{backend: x}]",
        None,
        2,
        "engines.0.backend: received 'x', which is unk",
    ),
    (
        "name: a\ntarget: {model: target}\nengines: [{provider: x}]",
        None,
        2,
        "engines.0.provider: received 'x', which is",
    ),
    (
        "name: a\ntarget: {model: target}\nprove: {prompts: prompts.jsonl}",
        write_wrong_prompts,
        2,
        "line 1: received bytes",
    ),
]


@pytest.mark.parametrize(("text", "damage", "code", "message"), BAD_INPUTS)
def test_bad_input_ends_in_one_error_and_a_hint(plan, make_recipe, tmp_path, text, damage, code, message):
    recipe = make_recipe(text)
    if damage:
        damage(tmp_path)
    left = sorted(tmp_path.rglob("*"))
    received, out, err = plan(recipe)
    assert (received, out) == (code, "")
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["error", "hint", "help"]
    assert message in err
    assert sorted(tmp_path.rglob("*")) == left
