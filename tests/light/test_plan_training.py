"""What a training decides where the recipe does not say, and what it refuses before any work."""

import json
import shutil
from dataclasses import fields

import pytest
from transformers import LlamaConfig

from speccompile.drafters import DRAFTING_METHODS
from speccompile.errors import SpeccompileError
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.training import plan_training
from speccompile.recipe.training_kind import trainable
from speccompile.recipe.training_output import MADE_BY, REPORT
from speccompile.recipe.training_schema import Data, Evaluate, Loss, Save, Schedule
from tests.heads.every import HEADS
from tests.light.conftest import TRAINED as SIZES


def test_everything_is_decided(planned, tmp_path):
    plan = planned()
    assert (plan.kind, plan.output, plan.begin) == ("eagle3", tmp_path / "new", None)
    assert plan.work.as_posix() == "build/t-train"
    assert plan.taps == ("layers.1.output", "layers.3.output", "layers.4.output")  # behind 2, 4 and 5 of 8 layers
    assert plan.sizes["layers"] == 1
    assert plan.sizes["hidden_size"] == SIZES["hidden_size"]
    assert plan.vocabulary is None
    assert plan.data.kind == "text"
    assert plan.data.answers == "given"
    assert plan.data.length <= 64  # the target's positions
    assert (plan.schedule.seconds, plan.schedule.steps) == (60, None)
    assert plan.evaluate.every <= 60
    for part in (plan, plan.data, plan.loss, plan.schedule, plan.evaluate):
        may_be_none = {"begin", "vocabulary", "endpoint", "endpoint_model", "endpoint_key", "drop", "steps", "seconds",
                       "template", "matrix_rate", "prompts"}  # fmt: skip
        assert {each.name for each in fields(part) if getattr(part, each.name) is None} <= may_be_none


def test_the_plan_is_plain_json(planned):
    plan = planned()
    found = json.loads(json.dumps(plan.to_json()))
    assert found["output"].endswith("new")
    assert found["data"]["kind"] == "text"


def test_every_key_of_the_recipe_reaches_the_plan(planned, tmp_path):
    (tmp_path / "rest.md").write_text("if else\n")
    plan = planned(
        seed=3, depth=2, vocabulary=6, taps=["layers.2.input", "layers.4.input", "layers.6.input"],
        shape={"intermediate_size": 48},
        data={"files": ["docs"], "kind": "text", "length": 32, "held_out": "rest.md", "features": "disk",
              "packing": "buckets",
              "answers": {"by": "transformers", "temperature": 0.5, "sampled": 0.75, "max_new_tokens": 9,
                          "batch_size": 3}},
        loss={"kind": "jsd", "beta": 0.25, "hard": 0.125, "depth_weights": "decay", "decay": 0.75},
        schedule={"steps": 40, "batch_size": 6, "accumulate": 2, "optimizer": "muon", "learning_rate": 0.25,
                  "matrix_rate": 0.125, "weight_decay": 0.5, "warmup": 7, "final": 0.5, "clip": 3.0,
                  "precision": "bfloat16", "checkpointing": True},
        evaluate={"every": 5, "texts": 11, "depth": 3, "compiled": False, "prompts": 2, "max_new_tokens": 12},
        save={"every": 4, "keep": 5, "dtype": "float16", "dialect": "speculators"},
    )  # fmt: skip
    assert (plan.seed, plan.depth, plan.vocabulary, plan.sizes["intermediate_size"]) == (3, 2, 6, 48)
    assert plan.taps == ("layers.2.input", "layers.4.input", "layers.6.input")
    data = plan.data
    assert (data.length, data.held_out, data.features) == (32, tmp_path / "rest.md", "disk")
    assert (data.answers, data.temperature, data.sampled, data.max_new_tokens, data.batch_size) == (
        "transformers", 0.5, 0.75, 9, 3
    )  # fmt: skip
    loss = plan.loss
    assert (loss.kind, loss.beta, loss.hard, loss.decay) == ("jsd", 0.25, 0.125, 0.75)
    assert vars(plan.schedule) == {
        "steps": 40, "seconds": None, "batch_size": 6, "accumulate": 2, "optimizer": "muon", "learning_rate": 0.25,
        "matrix_rate": 0.125, "weight_decay": 0.5, "warmup": 7, "final": 0.5, "clip": 3.0, "precision": "bfloat16",
        "checkpointing": True,
    }  # fmt: skip
    assert tuple(vars(plan.evaluate).values()) == (5, 11, 3, False, 2, 12)
    assert (plan.save_every, plan.keep, plan.dtype, plan.dialect) == (4, 5, "float16", "speculators")


def test_every_field_says_what_is_expected_and_how_it_looks():
    for section in (Data, Loss, Schedule, Evaluate, Save):
        for name, field in section.model_fields.items():
            assert field.description, name
            assert field.examples, name


@pytest.mark.parametrize(("decoding", "hard"), [("greedy", 0.5), ("sampling", 0.0)])
def test_what_is_learnt_is_what_the_rounds_accept_by(written, decoding, hard):
    assert plan_training(written(f"decoding={decoding}")).loss.hard == hard


def test_a_large_target_has_the_defaults_of_published_recipes(written, monkeypatch):
    assert plan_training(written()).schedule.optimizer == "muon"
    monkeypatch.setattr("speccompile.recipe.training_parts.TINY_BYTES", 0)
    plan = plan_training(written())
    assert (plan.schedule.optimizer, plan.schedule.learning_rate, plan.schedule.clip) == ("adamw", 1e-4, 0.5)
    assert (plan.dtype, plan.schedule.precision, plan.evaluate.compiled) == ("bfloat16", "bfloat16", False)


def test_a_tree_is_learnt_to_its_leaves(written):
    assert plan_training(written("drafter.tokens=7")).depth == 7
    assert plan_training(written("drafter.tokens=7", depth=2)).depth == 2


UNTRAINED = [kind for kind in DRAFTING_METHODS if kind not in trainable()]


def test_some_kinds_cannot_be_trained():
    assert {"none", "prompt_lookup", "suffix", "retrieval", "layer_skip", "lookahead"} <= set(UNTRAINED)
    assert {"model", "models", "eagle3", "medusa"} <= set(trainable())


@pytest.mark.parametrize("kind", UNTRAINED)
def test_what_cannot_be_trained_is_refused_by_name_with_the_reason(refused, kind):
    found = refused(kind=kind)
    assert f"drafter.kind: received '{kind}', which cannot be trained: " in found
    assert "eagle3" in found


CASES = [
    ({"schedule": {"steps": 0}}, "train.schedule.steps: received 0"),
    ({"schedule": {"seconds": 0}}, "train.schedule.seconds: received 0"),
    ({"schedule": {}}, "train.schedule: received no budget"),
    ({"schedule": {"steps": 5, "seconds": 5}}, "train.schedule: received steps and seconds"),
    ({"schedule": {"seconds": 5, "optimizer": "adamw", "matrix_rate": 0.1}}, "train.schedule.matrix_rate: received a"),
    ({"schedule": {"seconds": 5, "batch_size": 2, "accumulate": 3}}, "train.schedule.accumulate: received 3"),
    ({"schedule": {"steps": 5, "warmup": 5}}, "train.schedule.warmup: received 5"),
    ({"data": None}, "train.data: received nothing"),
    ({"data": {"files": "gone.jsonl"}}, "gone.jsonl"),
    ({"data": {"files": "docs", "packing": "packed"}}, "train.data.packing: received 'packed'"),
    ({"data": {"files": "docs", "length": 65}}, "train.data.length: received 65, expected at most 64"),
    ({"data": {"files": "docs", "held_out": "gone"}}, "train.data.held_out: received 'gone'"),
    ({"data": {"files": "docs", "answers": "nobody"}}, "train.data.answers.by: received 'nobody'"),
    ({"data": {"files": "docs", "answers": {"temperature": 1}}}, "train.data.answers.temperature: received a key that"),
    (
        {"data": {"files": "docs", "answers": {"by": "bundle", "sampled": 0.5}}},
        "train.data.answers.sampled: received 0.5, expected a temperature above 0 beside it",
    ),
    ({"data": {"files": "docs", "answers": "endpoint"}}, "train.data.answers.endpoint: received nothing"),
    ({"data": {"files": "docs", "template": "docs/a.md"}}, "train.data.template: received a value"),
    ({"loss": {"kind": "kl"}}, "train.loss.kind: received 'kl'"),
    ({"loss": {"beta": 0.5}}, "train.loss.beta: received a key that means nothing"),
    ({"loss": {"anchors": 8}}, "train.loss.anchors: received a key that means nothing"),
    ({"loss": {"drop": "target"}}, "train.loss.drop: received a key that means nothing"),
    ({"loss": {"share": 0.5}}, "train.loss.share: received a key that means nothing"),
    ({"loss": {"contexts": "mixed"}}, "train.loss.contexts: received 'mixed' for a drafter of kind eagle3"),
    ({"shape": {"width": 4}}, "train.shape.width: received an unknown size"),
    ({"shape": {"layers": 0}}, "train.shape.layers: received 0"),
    ({"shape": {"layers": [1]}}, "train.shape.layers: received a list"),
    ({"shape": {"hidden_size": 64}}, "train.shape.hidden_size: received 64, expected at most 32"),
    ({"vocabulary": 9}, "train.vocabulary: received 9, expected at most 8"),
    ({"taps": ["layers.8.input"]}, "train.taps: received 'layers.8.input'"),
    ({"taps": ["layers.2.input", "layers.1.output"]}, "train.taps: received layers.2.input, layers.1.output"),
    ({"save": {"dialect": "z-lab"}}, "train.save.dialect: received 'z-lab', expected 'SpecForge' or 'speculators'"),
    ({"begin": "gone/there/no"}, "train.begin"),
    ({"kind": "medusa", "taps": ["layers.1.input"]}, "train.taps: received layers.1.input, expected norm.output"),
    ({"kind": "hydra", "taps": ["layers.1.input"]}, "train.taps: received layers.1.input, expected norm.output"),
    ({"kind": "eagle", "taps": ["layers.1.input"]}, "train.taps: received layers.1.input, expected norm.output"),
    ({"kind": "medusa", "depth": 2, "evaluate": {"depth": 3}}, "train.evaluate.depth: received 3, expected at most 2"),
    ({"kind": "model", "loss": {"contexts": "drafter"}, "data": {"files": "docs", "features": "disk"}},
     "train.data.features: received 'disk' with train.loss.contexts drafter"),
]  # fmt: skip


@pytest.mark.parametrize(("train", "message"), CASES, ids=[message[:40] for _, message in CASES])
def test_what_is_wrong_is_named_before_any_work(written, train, message, tmp_path):
    with pytest.raises(SpeccompileError) as caught:
        plan_training(written(**train))
    assert message in str(caught.value)
    assert caught.value.hint
    assert not (tmp_path / "new").exists()


def test_a_folder_to_go_on_from_is_found_from_the_recipe_s_however_that_is_named(written, make_checkpoint, monkeypatch):
    path = written().origin.path
    make_checkpoint(path.parent / "before", **SIZES)
    monkeypatch.chdir(path.parent.parent)
    overrides = ("drafter.kind=model", "train.begin=before")
    plan = plan_training(load_recipe(path.relative_to(path.parent.parent), overrides))
    assert plan.begin is not None
    assert plan.begin.samefile(path.parent / "before")
    models = ("drafter={kind: models, models: [{model: before}, {model: new}]}", "train.loss={drop: before}")
    dropped = plan_training(load_recipe(path.relative_to(path.parent.parent), models)).loss.drop
    assert (path.parent / "before").samefile(dropped)


@pytest.mark.parametrize(("kind", "why"), [("bita", "stand before those of every layer"), ("pass", "but the target")])
def test_rows_of_a_target_with_states_do_not_learn(refused, make_checkpoint, tmp_path, kind, why):
    make_checkpoint(tmp_path / "hybrid", **SIZES, layer_types=["full_attention", "linear_attention"] * 4)
    found = refused("target.model=hybrid", kind=kind)
    assert f"drafter.kind: received '{kind}'" in found
    assert why in found
    assert "carries states from token to token" in found


@pytest.mark.parametrize("kind", ["medusa", "hydra", "dflash", "dspark", "pass", "bita"])
def test_a_new_drafter_reaches_as_far_as_a_round(planned, refused, kind):
    """Refuse before the work a drafter that `build` would refuse after it."""
    train = {"kind": kind, "depth": 2}
    found = refused("drafter.tokens=3", **train)
    assert "drafter.tokens: received 3 drafts after one another, expected at most 2" in found
    plan = planned(**train)  # and a build takes as many as there are
    assert (plan.depth, plan.evaluate.depth) == (2, 2)
    assert planned("drafter.tokens=2", **train).depth == 2


def test_a_head_is_not_asked_for_more_than_it_drafts(planned, refused, head):
    name = head("medusa")
    most = planned(kind="medusa", begin=name).depth
    found = refused(f"drafter.tokens={most + 1}", kind="medusa", begin=name)
    assert f"drafter.tokens: received {most + 1} drafts after one another, expected at most {most}" in found


@pytest.mark.parametrize("correction", ["drafter.taps=[layers.1.input]", "drafter.switches={norm_output: true}"])
def test_what_corrects_a_folder_is_refused_of_a_new_one(refused, correction):
    """Refuse corrections of a folder that does not exist yet: it would contradict its training."""
    assert f"{correction.partition('=')[0]}: received a value, expected it only with train.begin" in refused(correction)


def test_a_language_model_may_not_be_wider_than_its_target(refused, make_checkpoint, tmp_path):
    assert "train.shape.hidden_size: received 64" in refused(kind="model", shape={"hidden_size": 64})
    make_checkpoint(tmp_path / "wide", hidden_size=64)
    assert "train.begin: received 'wide', 64 wide, expected at most 32" in refused(kind="model", begin="wide")
    assert "train.vocabulary" in refused(kind="model", vocabulary=4)
    assert "train.taps" in refused(kind="model", taps=["norm.output"])
    assert "train.loss.decay" in refused(kind="model", loss={"decay": 0.5})


def test_a_drafter_with_another_tokenizer_is_not_trained(refused):
    assert "drafter.tokenizer: received 'map', expected none: a training teaches the target's tokens" in refused(
        "drafter.tokenizer=map", kind="model"
    )


def test_a_language_model_must_have_the_targets_tokens(refused, make_checkpoint, tmp_path):
    words = ("<s>", "</s>", "other", "return", "self", "import", "if", "else")
    make_checkpoint(tmp_path / "other", words=words, hidden_size=16)
    assert "train.begin: received a drafter whose tokenizer has 'other' as token 2" in refused(
        kind="model", begin="other"
    )


@pytest.fixture
def head(tmp_path):
    def head(kind, target=None):
        folder = tmp_path / f"{kind}-head"
        shutil.rmtree(folder, ignore_errors=True)
        HEADS[kind](folder, target or LlamaConfig(vocab_size=8, **SIZES))
        return folder.name

    return head


def test_a_head_goes_on_as_it_was(planned, refused, head):
    name = head("eagle3")
    plan = planned(begin=name)
    assert plan.begin is not None
    assert (plan.begin.name, plan.dialect, plan.vocabulary) == (name, "SpecForge", 6)
    assert len(plan.taps) == 3
    assert plan.sizes == {}
    assert "train.save.dialect: received 'speculators'" in refused(begin=name, save={"dialect": "speculators"})
    for key, value in (("shape", {"layers": 1}), ("vocabulary", 6), ("taps", ["norm.output"])):
        found = refused(begin=name, **{key: value})
        assert f"train.{key}: received a value, expected it only for a new drafter" in found


def test_a_head_of_another_kind_or_target_is_refused(refused, head):
    assert "received a folder of drafter.kind medusa" in refused(begin=head("medusa"))
    wide = head("eagle3", LlamaConfig(vocab_size=8, **(SIZES | {"hidden_size": 64})))
    found = refused(begin=wide)
    assert "train.begin: received a head for a target with a hidden size of 64" in found
    assert "drafter.model" not in found


def test_the_kind_may_be_that_of_the_folder(planned, refused, head):
    assert planned(kind="auto", begin=head("medusa")).kind == "medusa"
    assert "drafter.kind: received 'auto', expected the kind of the new drafter" in refused(kind="auto")


def test_an_output_that_holds_something_else_is_refused(planned, refused, tmp_path):
    output = tmp_path / "new"
    output.mkdir()
    assert planned().output == output  # nothing is in it
    (output / "thesis.tex").write_text("all of it")
    assert "a folder that holds something else" in refused()
    (output / REPORT).write_text("{}")
    assert "a folder that holds something else" in refused()
    (output / REPORT).write_text(json.dumps({"made_by": MADE_BY}))
    assert planned().output == output
    assert (output / "thesis.tex").read_text() == "all of it"


def test_what_is_read_is_not_written(refused, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "new", hidden_size=16)
    assert "which is read at train.begin" in refused(kind="model", begin="new")
    assert "which is read at target.model" in refused("drafter.model=target")
    several = "drafter={kind: models, models: [target, new]}"
    assert "which is read at train.loss.drop" in refused(several, loss={"drop": "new"})


def test_col_bt_is_of_several_models(written, make_checkpoint, head, tmp_path):
    make_checkpoint(tmp_path / "first", hidden_size=16)
    recipe = written("drafter={kind: models, models: [first, second]}", loss={"drop": "first"})
    plan = plan_training(recipe)
    assert (plan.kind, plan.output, plan.loss.drop) == ("model", tmp_path / "second", str(tmp_path / "first"))
    with pytest.raises(SpeccompileError, match="expected a whole language model"):
        plan_training(written("drafter={kind: models, models: [first, second]}", loss={"drop": head("medusa")}))


def test_a_build_says_that_the_drafter_is_still_to_be_trained(written):
    with pytest.raises(SpeccompileError, match=r"drafter\.model: received a folder that is not there yet") as caught:
        make_plan(written())
    assert str(caught.value.hint).startswith("train it first: speccompile train ")


def test_a_training_changes_nothing_of_a_build(written, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "new", hidden_size=16)
    recipe = written(kind="model")
    without = recipe.model_copy(update={"train": None})
    without._origin = recipe.origin
    assert make_plan(recipe).to_json() == make_plan(without).to_json()
