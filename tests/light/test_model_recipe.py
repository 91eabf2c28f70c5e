"""Recipes for models that have none: what is decided, written down, and read again as the same."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import save_file

from speccompile.errors import CheckpointError, SpeccompileError, UsageError
from speccompile.machine.system import MemoryLimit
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.model_recipe import make_model_recipe
from speccompile.recipe.model_request import ModelRequest, is_model, model_files
from tests import vision
from tests.heads import WIDTH
from tests.heads.medusa import faster_decoding
from tests.heads.mtp import mtp_target


@pytest.fixture
def model(make_checkpoint, tmp_path):
    return make_checkpoint(tmp_path / "models" / "tiny model")


def decided(plan):
    """Return decisions of a plan, without the names of its models and without notes."""
    models = [replace(each, reference="") for each in (plan.target, *plan.drafter.models)]
    head = plan.drafter.head and replace(plan.drafter.head, reference="")
    drafter = replace(plan.drafter, models=(), head=head)
    return models, replace(plan, target=None, drafter=drafter, notes=())


def test_a_model_alone_drafts_from_its_text(model):
    made = make_model_recipe(ModelRequest(str(model)))
    assert (made.plan.name, made.plan.target.precision) == ("tiny-model", "float32")
    assert (made.plan.drafter.kind, made.plan.drafter.tokens) == ("prompt_lookup", 8)
    assert made.plan.target.folder.samefile(model)
    assert made.notes == [
        "drafter.kind is prompt_lookup, which needs no training: the checkpoint carries no draft layers; name another "
        "drafter, or none for no drafts"
    ]


def test_the_text_is_read_as_the_same_plan_and_explains_every_value(model, tmp_path):
    made = make_model_recipe(ModelRequest(str(model)), relative_to=tmp_path)
    (tmp_path / "written.yaml").write_text(made.text)
    assert decided(make_plan(load_recipe(tmp_path / "written.yaml"))) == decided(made.plan)
    assert 'model: "models/tiny model"' in made.text
    assert "LlamaForCausalLM" in made.text
    values = [line for line in made.text.splitlines() if line.partition("#")[0].strip(" -").partition(":")[2]]
    assert all("#" in line for line in values if "provider" not in line), made.text


@pytest.mark.parametrize("asked", ["eagle-3", "medusa", "draft"])
def test_a_method_without_its_weights_asks_for_the_folder_behind_the_option(model, asked):
    with pytest.raises(UsageError, match=f"^--drafter: received '{asked}', .* expected their folder") as caught:
        make_model_recipe(ModelRequest(str(model), drafter=asked))
    assert "--drafter DIR" in caught.value.hint


def test_overrides_are_written_down(model, tmp_path):
    made = make_model_recipe(ModelRequest(str(model)), overrides=["cache.batch_size=3", "drafter.tokens=2"])
    (tmp_path / "written.yaml").write_text(made.text)
    plan = make_plan(load_recipe(tmp_path / "written.yaml"))
    assert (plan.batch_size, plan.drafter.tokens) == (made.plan.batch_size, made.plan.drafter.tokens) == (3, 2)


@pytest.mark.parametrize("overrides", [(), ["cache.batch_size=2"]])
def test_a_text_with_absolute_paths_says_what_to_set_elsewhere(model, make_checkpoint, tmp_path, overrides):
    drafter = make_checkpoint(tmp_path / "smaller")
    made = make_model_recipe(ModelRequest(str(model), str(drafter)), overrides=overrides)
    _, _, told = made.text.splitlines()[1].partition("Elsewhere: ")
    settings = told.replace("--set ", "").split()
    assert settings == ["target.model=FOLDER", "drafter.model=FOLDER"]
    elsewhere = tmp_path / "elsewhere" / "recipe.yaml"
    elsewhere.parent.mkdir()
    elsewhere.write_text(made.text.replace(str(tmp_path), "/gone"))
    given = [each.replace("FOLDER", str(folder)) for each, folder in zip(settings, (model, drafter), strict=True)]
    assert decided(make_plan(load_recipe(elsewhere, given))) == decided(made.plan)
    assert "Elsewhere" not in make_model_recipe(ModelRequest(str(model), str(drafter)), relative_to=tmp_path).text


@pytest.mark.parametrize("place", ["models/drafter", "models/tiny model-draft", "models/tiny model/assistant"])
def test_a_drafter_beside_the_model_drafts(model, make_checkpoint, tmp_path, place):
    make_checkpoint(tmp_path / place)
    made = make_model_recipe(ModelRequest(str(model)))
    assert (made.plan.drafter.kind, made.plan.drafter.models[0].folder) == ("model", (tmp_path / place).resolve())
    assert made.notes[0] == f"the drafter lies in {(tmp_path / place).resolve()} (drafter.kind model)"
    written = yaml.safe_load(made.text)["precision"]
    assert written == {"target": "float32", "drafter": "int8"}, "drafts cost less, and no token changes"
    assert made.plan.engines[0].precision.drafter == "int8"


def test_one_that_does_not_fit_is_told_and_left(model, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "models" / "drafter", words=("other", "words", "a", "b", "c", "d", "e", "f"))
    made = make_model_recipe(ModelRequest(str(model)))
    assert made.plan.drafter.kind == "prompt_lookup"
    assert "is no drafter for this model: " in made.notes[0]


def test_another_kind_of_model_beside_it_is_left(model, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "models" / "head", architectures=["BertForSequenceClassification"])
    made = make_model_recipe(ModelRequest(str(model)))
    assert made.plan.drafter.kind == "prompt_lookup"
    assert "received 'BertForSequenceClassification', which does not predict the next token" in made.notes[0]


def test_layers_of_the_checkpoint_come_before_a_folder_beside_it(tmp_path, make_checkpoint):
    mtp_target(tmp_path / "target", "qwen3")
    make_checkpoint(tmp_path / "drafter")
    made = make_model_recipe(ModelRequest(str(tmp_path / "target")))
    assert (made.plan.drafter.kind, made.plan.drafter.head.folder) == ("mtp", tmp_path / "target")
    assert "drafter.model" not in made.text


@pytest.mark.parametrize(("drafter", "kind"), [("none", "none"), ("ngram", "prompt_lookup"), ("drafter", "model")])
def test_a_drafter_is_named_by_folder_or_method(model, make_checkpoint, tmp_path, monkeypatch, drafter, kind):
    monkeypatch.chdir(model.parent)
    make_checkpoint(tmp_path / "models" / "drafter")
    assert make_model_recipe(ModelRequest(str(model), drafter)).plan.drafter.kind == kind


def test_an_unknown_drafter_is_told_the_nearest(model):
    with pytest.raises(UsageError, match="--drafter: received 'promptlookup', expected a drafter's folder") as caught:
        make_model_recipe(ModelRequest(str(model), "promptlookup"))
    assert caught.value.hint == "did you mean prompt_lookup?"
    with pytest.raises(UsageError) as caught:
        make_model_recipe(ModelRequest(str(model), "ngrm"))
    assert caught.value.hint == "did you mean prompt_lookup?", "ngram is another name of it"
    with pytest.raises(SpeccompileError, match=r"the recipe for tiny-model: precision\.target: received 'int5'"):
        make_model_recipe(ModelRequest(str(model), precision="int5"))


def test_what_does_not_fit_into_the_memory_becomes_smaller(model, monkeypatch):
    weights = {"model.layers.0.mlp.up_proj.weight": torch.zeros(16384, 1024, dtype=torch.bfloat16)}
    save_file(weights | {"embed.weight": torch.zeros(8, 4)}, model / "model.safetensors")

    def with_memory(megabytes):
        limit = MemoryLimit("this machine", "memory", megabytes * 10**6, "")
        monkeypatch.setattr("speccompile.recipe.model_recipe.memory_limits", lambda: [limit])
        return make_model_recipe(ModelRequest(str(model), drafter="none"))

    fits, smaller, smallest = (with_memory(size) for size in (1000, 30, 1))
    assert (fits.plan.target.precision, fits.notes) == ("bfloat16", [])
    assert [each.plan.target.precision for each in (smaller, smallest)] == ["int8", "int4"]
    assert "precision.target is int4: in bfloat16 it would take" in smallest.notes[0]
    monkeypatch.undo()
    assert make_model_recipe(ModelRequest(str(model), precision="int4")).plan.target.precision == "int4"


def test_a_head_beside_a_model_that_becomes_smaller_stays(make_checkpoint, tmp_path, monkeypatch):
    folder = make_checkpoint(tmp_path / "wide", num_hidden_layers=2, hidden_size=WIDTH)
    faster_decoding(tmp_path / "head", SimpleNamespace(hidden_size=WIDTH, vocab_size=8))
    monkeypatch.setattr("speccompile.recipe.model_recipe.memory_limits", lambda: [MemoryLimit("m", "memory", 1, "")])
    plan = make_model_recipe(ModelRequest(str(folder))).plan
    assert (plan.target.precision, plan.drafter.kind, plan.drafter.head.folder) == ("int4", "medusa", tmp_path / "head")


def test_sampling_is_asked_for(model):
    assert make_model_recipe(ModelRequest(str(model))).plan.decoding == "greedy"
    assert make_model_recipe(ModelRequest(str(model), sampling=True)).plan.decoding == "sampling"


def test_pictures_are_asked_for(tmp_path):
    folder = vision.save(vision.model("smolvlm"), "smolvlm", tmp_path / "seeing")
    made = make_model_recipe(ModelRequest(str(folder), images=True))
    assert made.plan.images is not None
    assert "images: true" in made.text
    assert make_model_recipe(ModelRequest(str(folder))).plan.images is None


def test_what_is_a_model(model, make_recipe, tmp_path):
    make_recipe()
    (tmp_path / "empty").mkdir()
    assert [is_model(str(each)) for each in (model, tmp_path, tmp_path / "recipe.yaml", tmp_path / "empty")] == [
        True, False, False, False
    ]  # fmt: skip
    assert [is_model(each) for each in ("organisation/name", "recipes/other.yaml", "word", "a/b/c")] == [
        True, False, False, False
    ]  # fmt: skip
    (model / "recipe.yaml").write_text("name: t")
    assert not is_model(str(model))


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda path: None, "nothing lies there"),
        (lambda path: path.mkdir(), "a folder without config.json or a GGUF file"),
        (lambda path: path.write_text(""), "a file"),
    ],
)
def test_what_is_no_model_is_told_what_it_is(tmp_path, make, found):
    make(tmp_path / "thing")
    with pytest.raises(UsageError) as caught:
        ModelRequest(str(tmp_path / "thing"))
    assert f"({found}), expected a model in Hugging Face layout" in str(caught.value)
    assert caught.value.hint


def test_a_file_of_a_model_leads_to_its_folder(make_checkpoint, tmp_path):
    folder = make_checkpoint(tmp_path / "model")
    for name in ("config.json", "model.safetensors"):
        with pytest.raises(UsageError) as caught:
            ModelRequest(str(folder / name))
        assert caught.value.hint == f"give the folder that it lies in: {folder}"


def test_gguf_files_are_models(tmp_path):
    names = [f"Model-1B-Q4_K_M-0000{number}-of-00002.gguf" for number in (1, 2)]
    for name in names:
        (tmp_path / name).write_bytes(b"GGUF")
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    request = ModelRequest(str(tmp_path / names[1]), tokenizer=str(tmp_path / "tokenizer"))
    assert request.name == "Model-1B-Q4_K_M"
    assert [path.name for path in model_files(request)] == [*names, "tokenizer.json"]
    assert is_model(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"00001-of-00002.gguf: truncated or corrupt"):
        make_model_recipe(request)


def test_every_file_that_decides_is_known(model, make_checkpoint, tmp_path):
    before = set(model_files(ModelRequest(str(model))))
    assert {path.name for path in before} == {"config.json", "model.safetensors", "tokenizer.json"}
    drafter = make_checkpoint(tmp_path / "models" / "drafter")
    assert {path.parent for path in model_files(ModelRequest(str(model)))} == {model, drafter}
    assert {path.parent for path in model_files(ModelRequest(str(model), "none"))} == {model}
    assert {path.parent for path in model_files(ModelRequest(str(model), str(drafter)))} == {model, drafter}


def test_names_are_those_a_recipe_may_have(make_checkpoint, tmp_path):
    folder = make_checkpoint(tmp_path / "..model, größer!")
    name = ModelRequest(str(folder)).name
    assert name == "model--gr--er-"
    assert make_model_recipe(ModelRequest(str(folder))).plan.name == name
    assert ModelRequest("organisation/Model-1.5B").name == "Model-1.5B"


@pytest.mark.parametrize("name", ["500", "1e5", "0.5", "on", "null", "\N{ROCKET} é", 'it\'s "so" \\n: #'])
@pytest.mark.parametrize("overrides", [(), ["cache.batch_size=2"]])
def test_folders_that_yaml_would_read_as_something_else(make_checkpoint, tmp_path, name, overrides):
    folder = make_checkpoint(tmp_path / name)
    made = make_model_recipe(ModelRequest(str(folder)), overrides=overrides)
    file = tmp_path / "written.yaml"
    file.write_text(made.text, encoding="utf-8")
    assert make_plan(load_recipe(file)).target.folder.samefile(folder)


def test_errors_of_the_model_come_through(model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"is_encoder_decoder": True}))
    with pytest.raises(SpeccompileError, match="encoder-decoder"):
        make_model_recipe(ModelRequest(str(model)))
    assert Path(model, "config.json").is_file()
