"""Models that `run` and `chat` refuse before they build: an hour's build must not end with a word about its prompt."""

import pytest
from click.testing import CliRunner

from speccompile.cli.main import group
from speccompile.cli.model_bundle import open_model, requested
from speccompile.errors import CheckpointError, UsageError


def test_a_model_without_a_tokenizer_is_refused_before_the_build(make_checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("speccompile.compiler.from_recipe.build_plan", lambda *_, **__: pytest.fail("was built"))
    model = make_checkpoint(tmp_path / "model", words=None)
    with (
        pytest.raises(UsageError, match=r"received a model without tokenizer\.json") as caught,
        open_model(str(model), None, None, None, fast=False, sampling=False, threads=None),
    ):
        pass
    assert "generate --token-ids" in caught.value.hint


@pytest.mark.parametrize("option", ["drafter", "precision"])
def test_an_empty_option_is_refused(make_checkpoint, tmp_path, option):
    given = {"drafter": None, "precision": None} | {option: " "}
    with pytest.raises(UsageError, match=f"^--{option}: received an empty value"):
        requested(str(make_checkpoint(tmp_path / "model")), **given, tokenizer=None, fast=False, sampling=False)


def test_a_picture_needs_a_prompt(make_checkpoint, tmp_path):
    command = ["run", str(make_checkpoint(tmp_path / "model")), "--image", "one.png"]
    with pytest.raises(UsageError, match="received --image without a prompt, expected both"):
        CliRunner().invoke(group, command, catch_exceptions=False)


def test_an_unknown_id_without_a_network_is_named(monkeypatch):
    def fetch(reference, revision):
        raise CheckpointError("the Hub is switched off by HF_HUB_OFFLINE", hint="give the folder")

    monkeypatch.setattr("speccompile.recipe.hub.fetch_snapshot", fetch)
    with (
        pytest.raises(CheckpointError, match=r"^received 'organisation/none', which is no folder, and") as caught,
        open_model("organisation/none", None, None, None, fast=False, sampling=False, threads=1),
    ):
        pass
    assert caught.value.hint == "give the folder"
