"""Models that `run` and `chat` refuse before they build: an hour's build must not end with a word about its prompt."""

import pytest
from click.testing import CliRunner

from speccompile.cli.main import group
from speccompile.cli.model_bundle import ModelOptions, open_model
from speccompile.errors import UsageError


def test_a_model_without_a_tokenizer_is_refused_before_the_build(make_checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("speccompile.compiler.from_recipe.build_plan", lambda *_, **__: pytest.fail("was built"))
    model = make_checkpoint(tmp_path / "model", words=None)
    with (
        pytest.raises(UsageError, match=r"received a model without tokenizer\.json") as caught,
        open_model(str(model), ModelOptions(), sampling=False, threads=None),
    ):
        pass
    assert "generate --token-ids" in caught.value.hint


@pytest.mark.parametrize("option", ["drafter", "precision"])
def test_an_empty_option_is_refused(make_checkpoint, tmp_path, option):
    with pytest.raises(UsageError, match=f"^--{option}: received an empty value"):
        ModelOptions(**{option: " "}).request(str(make_checkpoint(tmp_path / "model")), sampling=False)


def test_a_picture_needs_a_prompt(make_checkpoint, tmp_path):
    command = ["run", str(make_checkpoint(tmp_path / "model")), "--image", "one.png"]
    with pytest.raises(UsageError, match="received --image without a prompt, expected both"):
        CliRunner().invoke(group, command, catch_exceptions=False)
