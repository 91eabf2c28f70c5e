"""The check where a bundle runs: windows of all widths against single tokens, on an engine that may be made wrong."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner, Result

from speccompile import native
from speccompile.cli.main import group
from speccompile.runtime import Bundle, window_invariance
from speccompile.runtime.first_times import MOST_RUNS
from speccompile.runtime.window_invariance import compare_windows
from tests.light.fake_bundle import toy_manifest, write_toy_bundle
from tests.light.toy_engine import ToyEngine

ALL_KINDS: list[dict[str, Any]] = [
    {}, {"batch_size": 3}, {"fused": True}, {"tree": "static"}, {"tree": "dynamic"}, {"sampling": True},
]  # fmt: skip


PREPARED = ["verify", "verify", "draft"] * 2 + ["verify", "verify", *["verify", "draft"] * 2] * (MOST_RUNS - 2)
"""Runs of an opening that finds everything recorded: some of each graph and width, in turns (`first_times`)."""


class Inexact(ToyEngine):
    """Logits of windows of three and four tokens are others, by a bit."""

    def _verify_row(self, row: int, widths: Any) -> None:
        super()._verify_row(row, widths)
        if widths["logit_rows"] in (3, 4) and self.wants_logits:
            logits = next(array for (name, shape), array in self._arrays.items()
                          if name == "logits" and shape[1] == widths["logit_rows"])  # fmt: skip
            logits[row, 1, 2] = np.nextafter(logits[row, 1, 2], np.float32(np.inf))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "checked"


@pytest.fixture
def opened(tmp_path: Path, cache: Path) -> Iterator[Callable[..., Bundle]]:
    """Open a toy bundle on an engine of this class."""
    engines: list[type[ToyEngine]] = [ToyEngine]
    write_toy_bundle(tmp_path / "toy")

    def made(*_: object, **__: object) -> ToyEngine:
        return engines[-1](toy_manifest())

    def open_bundle(engine: type[ToyEngine] = ToyEngine) -> Bundle:
        engines.append(engine)
        return Bundle.open(tmp_path / "toy", threads=1)

    with patch("speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", made):
        yield open_bundle


def call(*arguments: object) -> Result:
    return CliRunner().invoke(group, [str(argument) for argument in arguments])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("changes", ALL_KINDS, ids=str)
def test_all_kinds_of_bundles_are_compared(changes: dict[str, Any]) -> None:
    manifest = toy_manifest(**changes)
    found = compare_windows(ToyEngine(manifest), manifest)
    assert (found.exact, found.differing, found.largest) == (True, (), 0.0)
    chain = tuple(range(2, manifest.tokens + 2))
    assert found.widths == (chain if manifest.tree == "chain" else (manifest.tokens + 1,))


def test_a_single_bit_is_found_and_told() -> None:
    found = compare_windows(Inexact(toy_manifest()), toy_manifest())
    assert (found.widths, found.differing, found.exact) == ((2, 3, 4, 5), (3, 4), False)
    assert 0 < found.largest < 1e-5
    assert found.reason.startswith("windows of 3 and 4 tokens give other logits than single tokens, by up to ")


def test_without_drafts_there_is_nothing_to_compare() -> None:
    found = compare_windows(ToyEngine(toy_manifest()), toy_manifest(tokens=0))
    assert (found.exact, found.reason) == (True, "there is no window but one of a single token")


def test_it_is_done_once_and_kept(opened: Callable[..., Bundle], cache: Path) -> None:
    first, second = opened(), opened()
    assert len(first.engine.runs) > len(PREPARED)
    assert second.engine.runs == PREPARED
    assert first.exactness == second.exactness
    assert first.exact
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("changed", ["processor", "onnxruntime", "kernels", "bundle"])
def test_it_is_done_again_where_something_else_computes(
    opened: Callable[..., Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    opened()
    if changed == "processor":
        monkeypatch.setattr(window_invariance, "processor", lambda: "another")
    elif changed == "onnxruntime":
        monkeypatch.setattr("onnxruntime.__version__", "1.99")
    elif changed == "kernels":
        monkeypatch.setattr(native, "kernels", lambda: "another")
    else:
        shutil.rmtree(tmp_path / "toy")
        write_toy_bundle(tmp_path / "toy", chat=False)
    assert len(opened().engine.runs) > len(PREPARED)


def test_nothing_is_kept_where_caches_are_off(
    opened: Callable[..., Bundle], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "0")
    assert len(opened().engine.runs) > len(PREPARED)
    assert len(opened().engine.runs) > len(PREPARED)
    assert not cache.exists()


def test_a_damaged_record_is_made_anew(opened: Callable[..., Bundle], cache: Path) -> None:
    opened()
    (record,) = cache.iterdir()
    for damaged in ("{", "{}", '{"key": {}, "found": {"widths": 3}}'):
        record.write_text(damaged)
        assert len(opened().engine.runs) > len(PREPARED)
        assert opened().engine.runs == PREPARED


def test_one_warning_says_why_and_what_to_do(opened: Callable[..., Bundle], caplog: pytest.LogCaptureFixture) -> None:
    bundle = opened(Inexact)
    assert not bundle.exact
    assert bundle.manifest.exact
    (said,) = warnings(caplog)
    assert said.startswith(
        "engine onnxruntime-cpu is not exact on this processor, so speculation may change tokens: wi"
    )
    assert said.endswith("\nhint: generate with --autoregressive (autoregressive=True) where that matters")
    caplog.clear()
    again = opened()  # what is known holds
    assert (again.engine.runs, again.exact, len(warnings(caplog))) == (PREPARED, False, 1)
    assert not again.generate([7, 8], max_new_tokens=4).exact
    caplog.clear()


def test_every_command_tells(opened: Callable[..., Bundle], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "toy"
    unknown = json.loads(call("inspect", folder, "--json").stdout)
    assert unknown["here"] == {"onnxruntime-cpu": None, "other": None}
    opened(Inexact)
    here = json.loads(call("inspect", folder, "--json").stdout)["here"]["onnxruntime-cpu"]
    assert (here["exact"], here["differing"]) == (False, [3, 4])
    assert "NOT EXACT, speculation may change tokens" in call("inspect", folder).stdout
    options = ("--token-ids", "7,8", "--max-new-tokens", "4", "--threads", "1")
    assert json.loads(call("generate", folder, *options, "--json").stdout)["exact"] is False
    caplog.clear()
    trials = json.loads(call("doctor", folder, "--json").stdout)["bundle"]
    assert [(trial["engine"], trial["exact"]) for trial in trials] == [("onnxruntime-cpu", False), ("other", False)]
    assert "engine onnxruntime-cpu: NOT EXACT on this processor" in call("doctor", folder).stdout
    caplog.clear()


def test_doctor_looks_again(opened: Callable[..., Bundle], tmp_path: Path) -> None:
    assert opened(Inexact).exact is False
    opened()
    assert json.loads(call("doctor", tmp_path / "toy", "--json").stdout)["bundle"][0]["exact"] is True
    assert opened().exact
