"""`speccompile tune` over toy bundles: what is tried, what goes where, what is refused, the recipe that it writes."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from speccompile.cli import main
from speccompile.cli.tune import command
from speccompile.errors import PromptError
from speccompile.measure.bench.costs import GraphCosts
from speccompile.measure.tune import Options
from speccompile.measure.tune.write import _moved, _references, write_recipe
from speccompile.recipe import load_recipe, make_plan
from tests.light.fake_bundle import toy_manifest, write_toy_bundle
from tests.light.toy_engine import STATIC, ToyEngine

PROMPTS = '{"token_ids": [3, 1, 4]}\n{"token_ids": [1, 5, 6, 2]}\n'
DRAFTER = {"kind": "model", "model": "drafter"}
LOOKUP = {"kind": "prompt_lookup"}
KEYS = [
    "recipe", "engine", "prompts", "max_new_tokens", "temperature", "context",
    "choice", "set", "candidates", "draft_lines", "check", "layers",
]  # fmt: skip


@pytest.fixture
def recipe(make_recipe, tmp_path):
    """Return a recipe with prompts; keywords are keys of it."""
    (tmp_path / "prompts.jsonl").write_text(PROMPTS)

    def make(drafter=DRAFTER, **keys):
        return make_recipe(**{"drafter": drafter, "prove": {"prompts": "prompts.jsonl", "max_new_tokens": 9}} | keys)

    return make


@pytest.fixture
def plans(monkeypatch):
    """Plan toy bundles in place of builds. Return the plans that were built."""
    built = []

    def build(plan, output, *, prove):
        assert not prove
        built.append(plan)
        changes = {
            "tokens": plan.drafter.tokens,
            "speculative": plan.drafter.tokens > 0,
            "fused": plan.graphs == "fused",
        }
        if plan.drafter.tree.kind == "static":
            assert plan.drafter.tree.parents == STATIC.parents
            changes["tree"] = "static"
        made = toy_manifest(tokenizer=False, **changes)
        engines = tuple(replace(made.engines[0], name=engine.name) for engine in plan.engines)
        build.manifest = toy_manifest(tokenizer=False, engines=engines, prefill_chunk=plan.prefill_chunk, **changes)
        return write_toy_bundle(output, tokenizer=False, engines=engines, **changes)

    def opened(folder, entry, threads, *_, **__):
        assert (folder / "manifest.json").is_file()
        engine = ToyEngine(build.manifest)
        engine.threads = threads
        return engine

    monkeypatch.setitem(sys.modules, "speccompile.compiler.build", SimpleNamespace(build=build))
    monkeypatch.setitem(
        sys.modules, "speccompile.compiler.models.load", SimpleNamespace(quiet_transformers=lambda: None)
    )
    monkeypatch.setattr("speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", opened)
    return built


@pytest.fixture
def tune(capsys, plans, monkeypatch, tmp_path):
    """Run the command; returns exit code, stdout and stderr. Nothing may be left in the folder for temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))

    def invoke(path, *arguments):
        with pytest.raises(SystemExit) as leaving:
            main(["tune", str(path), "--repeats", "1", *arguments])
        assert list((tmp_path / "temporary").iterdir()) == []
        return leaving.value.code, *capsys.readouterr()

    return invoke


def sets(line):
    words = shlex.split(line)
    assert words[::2] == ["--set"] * (len(words) // 2)
    return words[1::2]


def test_of_chains_the_longest_and_the_shortest_are_built(tune, plans, recipe):
    code, out, _ = tune(recipe(), "--drafts", "2,6,3", "--precision", "int8", "--threads", "1,2", "--json")
    assert code == 0
    assert [plan.drafter.tokens for plan in plans] == [6, 2]
    found = json.loads(out)
    assert list(found) == KEYS
    assert found["context"] == 8  # behind three and four tokens, the middle of nine
    rows = {(each["drafts"], each["precision"], each["threads"]) for each in found["candidates"]}
    assert rows == {(drafts, "int8", threads) for drafts in (2, 3, 6) for threads in (1, 2)} | {
        (0, None, 1),
        (0, None, 2),
    }
    assert [each["threads"] for each in found["draft_lines"]] == [2, 1]
    assert found["choice"] == found["candidates"][0]
    speeds = [each["tokens_per_second"] for each in found["candidates"]]
    assert speeds == sorted(speeds, reverse=True)
    chain = next(each for each in found["candidates"] if each["drafts"] == 3)
    assert chain["settings"] == ["drafter.tokens=3", "precision.drafter=int8"]
    assert len(chain["accepted_at_depth"]) == chain["depth"] == 3
    assert (chain["drafter"], chain["width"], chain["catch_up"]) == ("chain of 3", 4, 2)


def test_one_bundle_holds_an_engine_for_every_precision(tune, plans, recipe):
    _, out, _ = tune(recipe(), "--drafts", "4", "--threads", "1", "--json")
    (plan,) = plans
    assert [(each.name, each.precision.drafter) for each in plan.engines] == [
        (word, word) for word in ("float32", "bfloat16", "int8", "int4")
    ]
    assert [each["precision"] for each in json.loads(out)["draft_lines"]] == ["float32", "bfloat16", "int8", "int4"]


def test_a_tree_has_a_bundle_of_its_own(tune, plans, recipe):
    _, out, _ = tune(recipe(), "--tree", "[2,2,1]", "--precision", "float32", "--threads", "1", "--json")
    assert [plan.drafter.tree.parents for plan in plans] == [STATIC.parents]
    found = json.loads(out)
    tree = next(each for each in found["candidates"] if each["drafts"])
    assert (tree["drafts"], tree["depth"], tree["width"], tree["catch_up"]) == (STATIC.drafts, 3, STATIC.drafts + 1, 4)
    assert (tree["drafter"], tree["settings"][0]) == ("tree [2,2,1]", "drafter.tree=[2,2,1]")
    assert found["draft_lines"] == []


def test_fused_bundles_and_drafters_without_weights(tune, plans, recipe):
    code, out, _ = tune(recipe(LOOKUP, graphs="fused"), "--drafts", "1,2", "--threads", "1", "--json")
    found = json.loads(out)
    assert code == 0
    assert {each["precision"] for each in found["candidates"]} == {None}
    assert all(each["draft_seconds"] is None for each in found["candidates"])
    assert [plan.engines[0].name for plan in plans] == ["tuned", "tuned"]
    none = next(each for each in found["candidates"] if not each["drafts"])
    assert none["settings"] == ["drafter={kind: none}", "graphs=separate"]


def test_windows_wider_than_the_prefill_chunk_can_be_measured(tune, plans, recipe):
    path = recipe(LOOKUP, cache={"prefill_chunk": 2})
    assert tune(path, "--drafts", "1,4", "--threads", "1")[0] == 0
    assert [plan.prefill_chunk for plan in plans] == [5, 5]


def test_settings_are_one_line_on_stdout_and_otherwise_the_tables_last(tune, recipe):
    path = recipe()
    arguments = ("--drafts", "2,3", "--precision", "int8", "--threads", "1", "--set", "cache.max_length=40")
    code, out, err = tune(path, *arguments, "--settings")
    assert code == 0
    (line,) = out.splitlines()
    settings = sets(line)
    assert settings[0] == "cache.max_length=40"
    make_plan(load_recipe(path, settings))
    assert "prompts, up to 9 new tokens; costs over" in err
    assert err.count("\n* ") == 1
    assert "draft of a chain of K, int8, threads 1: " in err
    assert "catch-up: tokens that the drafter reads again in a round; kind and shape decide it" in err
    assert "--threads 1" in err
    code, out, err = tune(path, *arguments)
    assert code == 0
    assert "prompts, up to 9 new tokens; costs over" not in err
    assert out.splitlines()[0].endswith("tokens of context")
    words = shlex.split(out.splitlines()[-1])
    assert words[:3] == ["speccompile", "build", str(path)]
    make_plan(load_recipe(path, sets(shlex.join(words[3:]))))


def test_a_choice_is_told_in_words(tune, recipe, monkeypatch):
    costs = {}
    monkeypatch.setattr("speccompile.measure.tune.trial.measure_costs", lambda *_, **__: costs["now"])
    arguments = (recipe(LOOKUP), "--drafts", "2", "--threads", "1", "--settings")
    costs["now"] = GraphCosts({1: 1.0, 3: 100.0}, 0.25, 0.0)
    _, out, err = tune(*arguments)
    assert out == "--set 'drafter={kind: none}'\n"
    assert "speculation does not pay here: the choice is no drafter; run it with --threads 1" in err
    costs["now"] = GraphCosts({1: 1.0, 2: 1e-6, 3: 1e-6}, 0.0, 0.0)
    _, out, err = tune(*arguments)
    assert out == "--set drafter.tokens=2\n"
    assert "chosen: chain of 2, " in err
    assert "times as fast as without drafts; run it with --threads 1" in err


def test_the_check_builds_the_choice_and_compares(tune, plans, recipe):
    engines = [{"backend": "tensorrt_rtx", "compute_capability": "8.9"}, {"backend": "onnxruntime"}]
    arguments = (recipe(LOOKUP, engines=engines), "--drafts", "2", "--threads", "1", "--check", "--json")
    code, out, err = tune(*arguments)
    found = json.loads(out)
    assert code == 0
    assert plans[-1].drafter.tokens == found["choice"]["drafts"]
    assert [engine.backend for engine in plans[-1].engines] == ["onnxruntime"]
    check = found["check"]
    assert check["predicted"] == found["choice"]["tokens_per_second"]
    assert check["error"] == pytest.approx(check["predicted"] / check["measured"] - 1)
    plain = next(each for each in found["candidates"] if not each["drafts"])
    assert check["predicted_speedup"] == pytest.approx(check["predicted"] / plain["tokens_per_second"])
    assert check["measured_speedup"] == pytest.approx(check["measured"] / check["measured_autoregressive"])
    assert check["speedup_error"] == pytest.approx(check["predicted_speedup"] / check["measured_speedup"] - 1)
    assert err.count("check: predicted ") == 2


def test_costs_are_those_of_a_machine_as_fast_as_without_drafts(tune, recipe, monkeypatch):
    """Slow the machine by ten while bundles are measured: no cost changes."""
    found = []
    for slower in (1.0, 10.0):
        costs = GraphCosts({1: slower, 2: 2 * slower, 3: 3 * slower}, slower / 2, slower / 4)
        monkeypatch.setattr("speccompile.measure.tune.trial.measure_costs", lambda *_, costs=costs, **__: costs)
        _, out, _ = tune(recipe(LOOKUP), "--drafts", "2", "--threads", "1", "--json")
        (chain,) = (each for each in json.loads(out)["candidates"] if each["drafts"])
        found.append([chain["draft_seconds"], chain["host_seconds"]] / np.float64(chain["verify_seconds"]))
        assert chain["verify_seconds"] < 1
    np.testing.assert_allclose(found, [[1 / 6, 1 / 12]] * 2)


def test_the_written_recipe_plans_the_choice_from_another_folder(tune, recipe, tmp_path):
    path = recipe(DRAFTER | {"tree": "eagle-25"}, cache={"max_length": 40})
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "elsewhere" / "tuned.yaml"
    code, out, _ = tune(
        path, "--drafts", "3", "--precision", "int4", "--threads", "1", "--write", str(file), "--settings"
    )
    assert code == 0
    written = yaml.safe_load(file.read_text())
    assert written["target"] == {"model": "../target"}
    assert written["prove"] == {"prompts": "../prompts.jsonl", "max_new_tokens": 9}
    chosen, found = make_plan(load_recipe(path, sets(out))), make_plan(load_recipe(file))
    assert (found.drafter.kind, found.drafter.tokens) == (chosen.drafter.kind, chosen.drafter.tokens)
    assert (found.engines, found.max_length) == (chosen.engines, 40)
    code, _, err = tune(path, "--drafts", "3", "--write", str(file))
    assert code == 2
    assert f"--write: received '{file}', expected the name of a new file" in err
    code, _, err = tune(path, "--drafts", "3", "--write", str(tmp_path / "gone" / "tuned.yaml"))
    assert (code, "expected a file in a folder that is there" in err) == (2, True)


def test_every_path_of_a_recipe_is_found(tmp_path):
    models = [{"model": "a"}, {"model": "b"}]
    data = {"target": {"model": "t"}, "drafter": {"models": models}, "prove": {"held_out": "h", "prompts": "p"}}
    assert [section[key] for section, key in _references(data)] == ["t", "a", "b", "p", "h"]
    assert [section[key] for section, key in _references({"target": {"model": "t"}})] == ["t"]


@pytest.mark.parametrize(
    ("drafter", "setting", "written"),
    [
        ("{kind: layer_skip, layers: [0]}", "layers={attention: [0, 1], mlp: [1]}", {"attention": [0, 1], "mlp": [1]}),
        ("{kind: model, model: drafter}", "tree={depth: 3, top_k: 2, nodes: 6}", {"depth": 3, "top_k": 2, "nodes": 6}),
    ],
)
def test_mappings_are_written_without_a_word(make_recipe, tmp_path, drafter, setting, written, recwarn):
    settings = [f"drafter={drafter}", f"drafter.{setting}"]
    write_recipe(make_recipe(), SimpleNamespace(settings=settings), tmp_path / "tuned.yaml")
    assert yaml.safe_load((tmp_path / "tuned.yaml").read_text())["drafter"][setting.split("=")[0]] == written
    assert list(recwarn) == []


def test_what_is_no_relative_path_is_written_as_it_is(tmp_path):
    assert _moved("org/model", tmp_path / "org/model", tmp_path) == "org/model"
    assert _moved(str(tmp_path), tmp_path, tmp_path / "deep") == str(tmp_path)
    assert _moved("~", Path.home(), tmp_path) == "~"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--drafts", "0"), "received '0', expected whole numbers from 1 to 16 such as 1,2,4"),
        (("--drafts", "2,x"), "received '2,x', expected whole numbers from 1 to 16"),
        (("--threads", "1,,2"), "received '1,,2', expected whole numbers from 1 to 1024"),
    ],
)
def test_lists_of_numbers_are_checked(tune, recipe, arguments, message):
    code, _, err = tune(recipe(), *arguments)
    assert code == 2
    assert message in err


def test_only_a_recipe_that_samples_has_a_temperature(tune, recipe):
    code, _, err = tune(recipe(), "--temperature", "0.8")
    assert code == 2
    assert "--temperature: received 0.8, expected 0: the recipe's decoding is greedy" in err


def test_an_interruption_leaves_nothing_behind(tune, recipe, monkeypatch):
    def build(plan, output, *, prove):
        output.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["speccompile.compiler.build"], "build", build)
    code, out, err = tune(recipe(), "--drafts", "2")  # which looks into the folder for temporary files
    assert (code, out) == (130, "")
    assert "interrupted; nothing was kept" in err


def test_prompts_are_needed_and_compared_with_the_target(tune, recipe, tmp_path):
    code, _, err = tune(recipe(prove={}))
    assert code == 2
    assert "prove.prompts: received nothing, expected a file with the prompts to tune for" in err
    assert "hint: add it, or give --prompts FILE" in err
    file = tmp_path / "others.jsonl"
    file.write_text('{"token_ids": [8]}\n')
    code, _, err = tune(recipe(), "--prompts", str(file))
    assert (code, "received token id 8 in prompt 1" in err) == (2, True)
    file.write_text('{"token_ids": [7]}\n')
    assert tune(recipe(LOOKUP, prove={}), "--prompts", str(file), "--drafts", "2", "--max-new-tokens", "5")[0] == 0


def test_prompts_that_end_at_once_say_nothing(tune, recipe):
    code, _, err = tune(recipe(LOOKUP), "--drafts", "2", "--threads", "1", "--max-new-tokens", "1")
    assert code == PromptError.exit_code
    assert "received 2 prompts whose generations end with their first token, expected one that goes on" in err


def test_a_search_for_layers_is_refused_where_none_draft(tune, recipe):
    code, _, err = tune(recipe(LOOKUP), "--search-seconds", "5")
    assert code == 2
    assert (
        "--search-seconds: received 5, expected nothing: drafter.kind prompt_lookup has no layers to search for" in err
    )
    assert "hint: leave --search-seconds out, or tune a recipe whose drafter.kind is layer_skip" in err


def test_a_prompt_that_does_not_fit_is_named(tune, recipe, tmp_path):
    (tmp_path / "long.jsonl").write_text('{"token_ids": [1]}\n' + json.dumps({"token_ids": [1] * 161}) + "\n")
    code, _, err = tune(recipe(LOOKUP), "--drafts", "2", "--threads", "1", "--prompts", str(tmp_path / "long.jsonl"))
    assert code == 2
    assert "prompt 2: the prompt has 161 tokens, more than this bundle's capacity of 160" in err


def test_the_command_and_the_library_repeat_as_often():
    """Compare the number with the command's copy: help must not wait for the library's imports."""
    (option,) = (each for each in command.params if each.name == "repeats")
    assert option.default == Options().repeats
