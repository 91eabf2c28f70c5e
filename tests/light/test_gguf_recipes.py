"""GGUF files in recipes and plans, the tokenizer that may be given for them, and where they are refused."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from speccompile.cli.plan import command
from speccompile.errors import CheckpointError, RecipeError, UnsupportedModelError
from speccompile.measure.predict.work import target_work
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.gguf import DescriptionCache, gguf_folder
from speccompile.recipe.model_recipe import make_model_recipe
from speccompile.recipe.model_request import ModelRequest
from speccompile.recipe.resource_estimate import estimate_resources
from speccompile.recipe.training import plan_training
from tests.gguf_files import MODELS, add_byte_level, save, write_gguf

DEMO = Path(__file__).parents[2] / "recipes" / "demo" / "target" / "tokenizer.json"
TOKENS = 300


def cut_tokenizer(folder, **renamed):
    """Write the demo's tokenizer with its first tokens. renamed: other spellings of some."""
    written = json.loads(DEMO.read_text(encoding="utf-8"))
    model = written["model"]
    model["vocab"] = {renamed.get(token, token): index for token, index in model["vocab"].items() if index < TOKENS}
    pairs = [each if isinstance(each, list) else each.split(" ") for each in model["merges"]]
    model["merges"] = [pair for pair in pairs if {*pair, "".join(pair)} <= model["vocab"].keys()]
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(written), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a folder with a model in safetensors, a tokenizer, and GGUF files of both, one with an unknown split."""
    folder = tmp_path_factory.mktemp("models")
    save(folder / "model", "llama", vocab_size=TOKENS)
    file = cut_tokenizer(folder / "tokenizer") / "tokenizer.json"
    special = (("add_bos_token_id", 0), ("add_eos_token_id", 0), ("add_eot_token_id", 5))
    for name, pre in (("known", "gpt-2"), ("unknown", "unheard-of")):
        write_gguf(folder / "model", folder / f"{name}.gguf", ("Q8_0", "Q4_0"), add_byte_level(file, pre, special))
    return folder


@pytest.fixture
def plan(models, tmp_path):
    """Return the plan of a recipe with a target, and other sections."""

    def made(target, **sections):
        target = {key: value if key == "revision" else str(models / value) for key, value in target.items()}
        recipe = {"name": "t", "target": target, "drafter": {"kind": "none"}} | sections
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        return make_plan(load_recipe(tmp_path / "recipe.yaml"))

    return made


def test_a_plan_says_what_the_types_are_and_become(plan):
    made = plan({"model": "known.gguf"}, precision={"target": "int8"})
    facts = made.target.facts
    assert facts.quantization == "gguf: 8 Q8_0, 8 Q4_0, 5 F32"
    assert (facts.vocabulary_size, facts.layers, facts.eos_token_ids, facts.tokenizer) == (TOKENS, 2, (0, 5), True)
    assert {file.suffix for file in made.target.files} == {".json", ".gguf"}
    assert made.engines[0].precision.target == "int8"
    assert plan({"model": "known.gguf"}).engines[0].precision.target == "float32"


def test_a_model_without_a_recipe_keeps_its_codes(models):
    made = make_model_recipe(ModelRequest(str(models / "known.gguf"), "none"))
    assert made.plan.engines[0].precision.target == "stored"
    assert yaml.safe_load(made.text)["precision"] == {"target": "stored"}
    asked = make_model_recipe(ModelRequest(str(models / "known.gguf"), "none", precision="int8"))
    assert asked.plan.engines[0].precision.target == "int8"


def test_codes_take_what_they_take(plan):
    kept, plain = (
        estimate_resources(plan({"model": "known.gguf"}, precision={"target": word})) for word in ("stored", "float32")
    )
    assert kept.mapped < plain.mapped / 4


def test_a_prediction_counts_the_codes(plan):
    kept, plain = (
        target_work(plan({"model": "known.gguf"}, precision={"target": word})) for word in ("stored", "float32")
    )
    assert set(kept.weights) == {"codes of 8 bits", "codes of 4 bits"}
    assert kept.products == plain.products
    assert plain.weight_bytes / 8 < kept.weight_bytes < plain.weight_bytes / 3


@pytest.mark.parametrize(("gates", "word"), [(None, "stored"), ("Q5_1", "stored"), ("F16", "float32")])
def test_experts_keep_their_codes_if_gate_and_up_have_some(tmp_path, gates, word):
    folder = save(tmp_path / "model", "qwen3_moe", **MODELS["qwen3_moe"])
    write_gguf(folder, tmp_path / "experts.gguf", ("Q8_0",), gates=gates)
    made = make_model_recipe(ModelRequest(str(tmp_path / "experts.gguf"), "none"))
    assert made.plan.engines[0].precision.target == word
    if word == "stored":
        plain = make_model_recipe(ModelRequest(str(tmp_path / "experts.gguf"), "none", precision="float32"))
        assert estimate_resources(made.plan).mapped < estimate_resources(plain.plan).mapped / 3
        return
    with pytest.raises(RecipeError, match=r"received 'stored', expected it for a GGUF file .* both in blocks"):
        make_model_recipe(ModelRequest(str(tmp_path / "experts.gguf"), "none", precision="stored"))


def test_the_command_plan_says_it_in_one_line(models, tmp_path):
    (tmp_path / "recipe.yaml").write_text(
        f"name: t\ntarget: {{model: {models / 'known.gguf'}}}\nprecision: {{target: int8}}\ndrafter: {{kind: none}}\n"
    )
    result = CliRunner().invoke(command, [str(tmp_path / "recipe.yaml")])
    assert "gguf: 8 Q8_0, 8 Q4_0, 5 F32; dequantized, then int8" in result.output


def test_the_estimate_counts_dequantized_weights(plan):
    needed, plain = (estimate_resources(plan({"model": name})) for name in ("known.gguf", "model"))
    numbers = 2 * 4 * TOKENS * 64
    assert numbers < needed.temporary - plain.temporary < 2 * numbers + 10**6


def test_a_draft_model_may_be_one(plan, models):
    drafter = {"model": str(models / "known.gguf")}
    made = plan({"model": "known.gguf"}, drafter=drafter | {"kind": "model", "tokens": 2})
    assert made.drafter.models[0].facts.quantization.startswith("gguf")
    assert plan({"model": "known.gguf"}, drafter=drafter).drafter.kind == "model"


def test_a_given_tokenizer_replaces_an_unknown_one(plan, models):
    with pytest.raises(UnsupportedModelError, match=r"tokenizer.ggml.pre: received 'unheard-of'"):
        plan({"model": "unknown.gguf"})
    made = plan({"model": "unknown.gguf", "tokenizer": "tokenizer"})
    written = json.loads((made.target.folder / "tokenizer.json").read_text(encoding="utf-8"))
    assert written == json.loads((models / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8"))
    assert made.target.folder != plan({"model": "known.gguf"}).target.folder


def test_a_given_tokenizer_stands_in_the_recipe_that_is_written(models):
    request = ModelRequest(str(models / "unknown.gguf"), "none", tokenizer=str(models / "tokenizer"))
    made = make_model_recipe(request)
    assert yaml.safe_load(made.text)["target"]["tokenizer"] == str(models / "tokenizer")


def test_a_tokenizer_with_other_tokens_is_refused(models, tmp_path):
    other = cut_tokenizer(tmp_path / "other", **{"!": "?!?"})
    with pytest.raises(CheckpointError, match=r"received '\?!\?' as token 1, expected '!', as in known.gguf"):
        gguf_folder(models / "known.gguf", other)


@pytest.mark.parametrize(("target", "sections", "message"), [
    ({"model": "model", "tokenizer": "tokenizer"}, {}, "target.tokenizer: received .* expected it for a GGUF file"),
    ({"model": "known.gguf", "revision": "main"}, {}, "target.revision: received 'main', expected no revision"),
    ({"model": "model"}, {"precision": {"target": "stored"}}, "precision.target: received 'stored', expected it for"),
])  # fmt: skip
def test_keys_that_do_not_fit_a_gguf_file_are_refused(plan, target, sections, message):
    with pytest.raises(RecipeError, match=message):
        plan(target, **sections)


def test_a_folder_without_a_tokenizer_is_named(plan):
    with pytest.raises(CheckpointError, match=r"a folder without tokenizer.json, expected the folder of the tokenizer"):
        plan({"model": "known.gguf", "tokenizer": "model"})


def test_a_training_is_refused(models, tmp_path):
    recipe = {"name": "t", "target": {"model": str(models / "known.gguf")},
              "drafter": {"kind": "eagle3", "model": "head"},
              "train": {"data": {"files": "texts.txt"}}}  # fmt: skip
    (tmp_path / "texts.txt").write_text("text")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.raises(RecipeError, match=r"target.model: received the GGUF file .* expected safetensors"):
        plan_training(load_recipe(tmp_path / "recipe.yaml"))


def test_the_cache_lists_files_and_is_cleared(models, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path))
    folder, cache = gguf_folder(models / "known.gguf"), DescriptionCache.named("gguf")
    (entry,) = cache.entries()
    assert (entry.digest, entry.key) == (folder.name, {"files": [str(models / "known.gguf")]})
    assert 0 < entry.size < 10**5
    assert len(cache.clear()) == 1
    assert not folder.exists()
    assert (models / "known.gguf").is_file()
