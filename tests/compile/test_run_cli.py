"""`speccompile run` on a model that has no recipe: built once, into the cache, and read from there."""

import json
import shutil

import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForCausalLM, AutoTokenizer

from speccompile.cli import model_bundle, run
from speccompile.errors import BuildError, UsageError
from tests import zoo

pytestmark = pytest.mark.builds(2)

TEMPLATE = "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"


class _BuiltAgainError(Exception):
    pass


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = zoo.save("llama", tmp_path_factory.mktemp("run") / "tiny")
    tokenizer = zoo.byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("SPECCOMPILE_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def first(model, cache):
    """Return the first run, which builds."""
    return generate(model, "def", "--skip-prove", "--json", "-n", 12)


def generate(model, *arguments):
    found = CliRunner().invoke(run.command, [str(model), *map(str, arguments)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout) if "--json" in arguments else found.stdout


@pytest.fixture
def built_once(first, monkeypatch):
    """Build the bundle once, and let any later build fail."""

    def build_model(*_, **__):
        raise _BuiltAgainError

    monkeypatch.setattr(model_bundle, "build_model", build_model)


def reference(model, prompt, new_tokens=12):
    tokenizer, target = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model).eval()
    ids = torch.tensor([tokenizer(prompt, add_special_tokens=False)["input_ids"]])
    found = target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new_tokens)
    return found[0, ids.shape[1] :].tolist()


def test_the_first_run_builds_what_transformers_generates(model, first):
    assert first["token_ids"] == reference(model, "[user] def\n")
    assert first["mode"] == "speculative"


def test_the_second_run_reads_the_cache(model, built_once, first):
    again = generate(model, "def", "--skip-prove", "--json", "-n", 12)
    assert (again["token_ids"], again["text"]) == (first["token_ids"], first["text"])
    assert generate(model, "def", "--skip-prove", "-n", 12) == f"{first['text']}\n"
    raw = generate(model, "def", "--skip-prove", "--raw", "--json", "-n", 12)
    assert raw["token_ids"] == reference(model, "def")


@pytest.mark.parametrize("change", [("--drafter", "none"), ("--precision", "bfloat16"), ("--fast",), ("-t", "1")])
def test_what_is_asked_otherwise_is_built_otherwise(model, built_once, change):
    with pytest.raises(_BuiltAgainError):
        generate(model, "def", "--skip-prove", *change)


def test_a_model_that_changed_is_built_again(model, built_once):
    config = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps(config | {"eos_token_id": [5, 6]}))
    try:
        with pytest.raises(_BuiltAgainError):
            generate(model, "def", "--skip-prove")
    finally:
        (model / "generation_config.json").write_text(json.dumps(config))


def test_the_bundle_has_its_recipe_and_runs_by_its_path(model, cache, first):
    (bundle,) = cache.glob("bundles/*/bundle")
    assert f"# A recipe for {model}." in (bundle / "recipe.yaml").read_text()
    assert generate(bundle, "def", "--json", "-n", 12)["token_ids"] == first["token_ids"]
    with pytest.raises(UsageError, match=r"received --fast for the bundle .*, expected it for a model"):
        generate(bundle, "def", "--fast")


def test_a_bundle_that_cannot_be_opened_is_built_again(model, cache, first, built_once):
    (bundle,) = cache.glob("bundles/*/bundle")
    manifest = (bundle / "manifest.json").read_text()
    (bundle / "manifest.json").write_text("{}")
    try:
        with pytest.raises(_BuiltAgainError):
            generate(model, "def", "--skip-prove")
    finally:
        shutil.rmtree(bundle.parent)
    assert manifest


def test_a_build_that_fails_leaves_nothing(model, cache, monkeypatch):
    def fails(*_, **__):
        raise BuildError("no", hint="yes")

    monkeypatch.setattr("speccompile.compiler.from_recipe.build_plan", fails)
    with pytest.raises(BuildError):
        generate(model, "def", "--drafter", "ngram")
    assert not [path for path in (cache / "bundles").iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("def", "-p", "def"), "received a prompt and --prompt, expected one of them"),
        (("def", "--fast", "--precision", "int8"), "received --fast and --precision int8, expected one of them"),
        ((), "received no prompt, and stdin is no terminal to chat on"),
        (("-p", ""), "the prompt: received an empty prompt, expected text"),
    ],
)
def test_what_contradicts_itself_is_refused(model, built_once, arguments, message):
    with pytest.raises(UsageError, match=message):
        generate(model, *arguments)


def test_a_cache_that_is_off_has_no_place(model, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "0")
    with pytest.raises(UsageError, match="leaves no place for the bundle of a model"):
        generate(model, "def")


def test_a_cache_that_cannot_be_written_is_named_before_the_build(model, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr("speccompile.cli.model_bundle.build_model", lambda *_, **__: pytest.fail("it is built"))
    with pytest.raises(UsageError, match=r"received the cache folder .*file/bundles \(Not a directory\), expected one"):
        generate(model, "def")
