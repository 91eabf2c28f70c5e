"""Models that `run` and `chat` refuse before they build: an hour's build must not end with a word about its prompt."""

import signal
import sys

import pytest
from click.testing import CliRunner

from speccompile.cli import exit_codes, model_bundle
from speccompile.cli.main import group
from speccompile.cli.model_bundle import ModelOptions, open_model
from speccompile.errors import CheckpointError, PromptError, UsageError
from tests.gguf_files import save, write_gguf


def test_a_model_without_a_tokenizer_is_refused_before_the_build(make_checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("speccompile.compiler.from_recipe.build_plan", lambda *_, **__: pytest.fail("was built"))
    folder = make_checkpoint(tmp_path / "model", words=None)
    write_gguf(save(tmp_path / "llama", "llama"), tmp_path / "model.gguf")  # llama.cpp's `no_vocab`
    for model, remedy in ((folder, "copy it beside the weights"), (tmp_path / "model.gguf", "with --tokenizer")):
        with (
            pytest.raises(UsageError, match=r"received a model without tokenizer\.json") as caught,
            open_model(str(model), ModelOptions(), sampling=False, threads=None),
        ):
            pass
        assert f"{remedy}; or speccompile build" in caught.value.hint


def test_a_tokenizer_that_broke_off_is_refused_before_torch_is_imported(make_checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("speccompile.compiler.from_recipe.loading_torch", lambda: pytest.fail("torch was imported"))
    folder = make_checkpoint(tmp_path / "model")
    whole = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(whole[: len(whole) // 2])
    with (
        pytest.raises(CheckpointError, match=r"model/tokenizer\.json: received text that is not JSON") as caught,
        open_model(str(folder), ModelOptions(), sampling=False, threads=None),
    ):
        pass
    assert caught.value.hint == "copy or download the file again"


@pytest.mark.parametrize(
    ("options", "limit", "kept"),
    [
        ([], "1", "no bundle was written; steps that had ended are in the cache, where the next build finds them"),
        (["--no-cache"], "1", "nothing was kept"),
        ([], "0", "nothing was kept"),
    ],
)
@pytest.mark.parametrize("given", ["model", "recipe"])
def test_an_interrupted_build_says_what_is_kept(
    make_checkpoint, tmp_path, monkeypatch, capfd, given, options, limit, kept
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", limit)
    monkeypatch.setattr("speccompile.compiler.from_recipe.build_plan", interrupted)
    monkeypatch.setattr("speccompile.compiler.from_recipe.build", interrupted)
    folder = make_checkpoint(tmp_path / "model")
    path = tmp_path / "recipe.yaml"
    path.write_text("name: a\n")
    command = ["build", str({"model": folder, "recipe": path}[given]), *options]
    assert exit_codes.run(group, command) == 128 + signal.SIGINT
    assert capfd.readouterr().err.endswith(f"interrupted; {kept}\n")


@pytest.mark.parametrize("option", ["drafter", "precision"])
def test_an_empty_option_is_refused(make_checkpoint, tmp_path, option):
    with pytest.raises(UsageError, match=f"^--{option}: received an empty value"):
        ModelOptions(**{option: " "}).request(str(make_checkpoint(tmp_path / "model")), sampling=False)


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("run", ["hi", "--image", "{}/none.png"], "^--image .*/none.png: No such file or directory"),
        ("chat", ["--image", "{}/model/config.json"], "^--image .*/config.json: the picture cannot be decoded"),
        (
            "chat",
            ["--image", "a.png", "--session", "{}/s"],
            "^--image a.png: received a picture in a chat with --session",
        ),
        ("chat", ["--image", "a.png", "--truncate", "left"], "^--image a.png: .* in a chat with --truncate"),
    ],
)
def test_pictures_are_read_before_a_build(make_checkpoint, tmp_path, monkeypatch, command, options, message):
    monkeypatch.setattr(model_bundle, "build_model", lambda *_, **__: pytest.fail("a bundle is built"))
    options = [each.format(tmp_path) for each in options]
    with pytest.raises((UsageError, PromptError), match=message):
        CliRunner().invoke(group, [command, str(make_checkpoint(tmp_path / "model")), *options], catch_exceptions=False)


def test_a_chat_with_pictures_asks_for_a_bundle_that_sees(make_checkpoint, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(model_bundle, "_cached", lambda request, **_: asked.append(request.images) or sys.exit(3))
    (tmp_path / "one.ppm").write_bytes(b"P6 1 1 255 abc")
    model = str(make_checkpoint(tmp_path / "model"))
    for options in ([], ["--image", str(tmp_path / "one.ppm")]):
        CliRunner().invoke(group, ["chat", model, *options])
    assert asked == [False, True]


def test_an_unknown_id_without_a_network_is_named(monkeypatch):
    def fetch(reference, revision):
        raise CheckpointError("the Hub is switched off by HF_HUB_OFFLINE", hint="give the folder")

    monkeypatch.setattr("speccompile.recipe.hub.fetch_snapshot", fetch)
    with (
        pytest.raises(CheckpointError, match=r"^received 'organisation/none', which is no folder, and") as caught,
        open_model("organisation/none", ModelOptions(), sampling=False, threads=1),
    ):
        pass
    assert caught.value.hint == "give the folder"
