"""Models of the Hub, without a network: a fake Hub, and a local cache."""

import errno
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import errors

from speccompile.errors import CheckpointError, RecipeError
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.hub import fetch_snapshot

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# huggingface_hub changes its HTTP library between versions.
httpx = importlib.import_module(errors.HTTPError.__module__.partition(".")[0])
HUB_MODEL = {"model": "organisation/name", "revision": "v1"}


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Return a Hub whose answer and download can be set; records how the download was asked for."""

    class Hub:
        answer = None
        download = tmp_path / COMMIT
        asked = None

        def repo_info(self, repository, *, revision, repo_type, timeout):
            if self.answer is not None:
                raise self.answer

        def snapshot_download(self, repository, **options):
            self.asked = (repository, options)
            if isinstance(self.download, Exception):
                raise self.download
            return str(self.download)

    fake = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: fake)
    monkeypatch.setattr("huggingface_hub.snapshot_download", fake.snapshot_download)
    return fake


def hub_error(kind):
    return kind("no", response=httpx.Response(404, request=httpx.Request("GET", "https://hub.invalid/")))


def test_a_hub_model_is_fetched_with_its_commit(hub, make_recipe, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / COMMIT)
    plan = make_plan(load_recipe(make_recipe(target=HUB_MODEL)))
    assert (plan.target.commit, plan.target.revision, plan.target.folder) == (COMMIT, "v1", tmp_path / COMMIT)
    assert plan.to_json()["target"]["commit"] == COMMIT
    repository, options = hub.asked
    assert (repository, options["revision"], options["local_files_only"]) == ("organisation/name", "v1", False)
    assert set(options["allow_patterns"]) >= {
        "config.json", "tokenizer.json", "chat_template.jinja", "*.safetensors", "preprocessor_config.json",
        "vocab.json", "source.spm", "sentencepiece.bpe.model",
    }  # fmt: skip


def test_a_folder_beside_the_recipe_comes_before_the_hub(hub, make_recipe):
    assert make_plan(load_recipe(make_recipe())).target.commit is None
    assert hub.asked is None


def test_a_cached_model_serves_when_the_hub_is_away(hub, make_recipe, make_checkpoint, tmp_path, caplog):
    make_checkpoint(tmp_path / COMMIT)
    hub.answer = httpx.ConnectError("no route\nto host")
    assert make_plan(load_recipe(make_recipe(target=HUB_MODEL))).target.commit == COMMIT
    assert hub.asked[1]["local_files_only"]
    assert caplog.messages == [
        "organisation/name: taken from the local cache: the Hub cannot be reached (ConnectError: no route)"
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx.ConnectError("no route\nto host"), r"cannot be reached \(ConnectError: no route\)"),
        (hub_error(errors.RepositoryNotFoundError), r"has no such model, or only for others \(HF_TOKEN\)"),
        (hub_error(errors.GatedRepoError), "has the model behind terms of use"),
        (hub_error(errors.RevisionNotFoundError), "has the model, but not this revision"),
        (errors.OfflineModeIsEnabled("off"), "is switched off by HF_HUB_OFFLINE"),
        (errors.HFValidationError("bad"), "has no models of such a name"),
        (OSError(), r"cannot be reached \(OSError: \)"),
    ],
)
def test_a_model_that_is_nowhere_is_refused_with_both_reasons(hub, make_recipe, answer, reason):
    hub.answer, hub.download = answer, errors.LocalEntryNotFoundError("not cached")
    message = rf"target\.model: received 'organisation/name' \(nothing lies at .*name, and the Hub {reason}"
    with pytest.raises(RecipeError, match=message) as caught:
        make_plan(load_recipe(make_recipe(target=HUB_MODEL)))
    assert "correct target.model" in caught.value.hint


def test_the_hint_names_the_switch_that_is_set(hub):
    hub.download = errors.LocalEntryNotFoundError("not cached")
    for answer, hint in ((errors.OfflineModeIsEnabled("off"), "unset HF_HUB_OFFLINE"), (OSError(), "check name and")):
        hub.answer = answer
        with pytest.raises(CheckpointError) as caught:
            fetch_snapshot("organisation/name", None)
        assert caught.value.hint.startswith(hint)


def test_a_download_that_breaks_off_is_told(hub, make_recipe):
    hub.download = httpx.ReadTimeout("too slow")
    with pytest.raises(RecipeError, match=r"the Hub cannot be reached \(ReadTimeout: too slow\)"):
        make_plan(load_recipe(make_recipe(target=HUB_MODEL)))


def test_a_full_disk_is_not_the_hubs_doing(hub, make_recipe):
    hub.download = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left on device"):
        make_plan(load_recipe(make_recipe(target=HUB_MODEL)))


def plan_offline(recipe: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache)}
    code = "from speccompile.cli import main; main()"
    command = [sys.executable, "-c", code, "plan", str(recipe), "--json"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_real_cache_serves_offline(make_recipe, make_checkpoint, tmp_path):
    recipe = make_recipe(target={"model": "organisation/name"})
    run = plan_offline(recipe, tmp_path / "cache")
    assert run.returncode == 2
    assert "and the Hub is switched off by HF_HUB_OFFLINE" in run.stderr
    assert "Traceback" not in run.stderr
    repository = tmp_path / "cache" / "models--organisation--name"
    make_checkpoint(repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    run = plan_offline(recipe, tmp_path / "cache")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["target"]["commit"] == COMMIT
    assert "taken from the local cache" in run.stderr
