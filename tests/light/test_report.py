"""`speccompile doctor --report`: what a bug report needs, and nothing that a stranger should not read."""

import getpass
import platform
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from speccompile import __version__
from speccompile.cli.report import SHOWN_VARIABLES, without_paths
from tests.light.fake_bundle import write_toy_bundle

SECRET = "sk-4f6d2a"  # what stands for a token


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: Callable[..., Any]) -> str:
    """Return the report of a user whose home and variables have what nobody else should see."""
    home = tmp_path / "home" / "carla-surname"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("SPECCOMPILE_API_KEY", SECRET)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "3")
    bundle = write_toy_bundle(home / "toy")
    code, out, err = command_line("doctor", bundle, "--report")
    assert code == 0, err
    return out


def test_it_has_versions_hardware_caches_and_the_bundle(report: str) -> None:
    titles = [line.removeprefix("### ") for line in report.splitlines() if line.startswith("### ")]
    assert titles == [
        "speccompile", "machine", "packages", "features", "caches", "environment", "bundle", "engines here",
    ]  # fmt: skip
    rows = {" ".join(line.split()) for line in report.splitlines()}
    assert f"version {__version__}" in rows
    assert f"python {platform.python_version()}" in rows
    assert f"onnxruntime {onnxruntime.__version__}" in rows
    assert f"providers {', '.join(onnxruntime.get_available_providers())}" in rows
    assert "packed 0 packed graphs, 0.0 MB" in rows
    assert "decoding greedy" in rows
    assert [row for row in rows if row.startswith("error ONNX Runtime ") and "<path>/draft.onnx failed" in row]
    assert report.count("```") == 2 * len(titles), "every section is a block that keeps its form"


def test_it_has_no_secrets_paths_or_names(report: str, tmp_path: Path) -> None:
    assert SECRET not in report
    assert "SPECCOMPILE_API_KEY         is set" in report
    assert "SPECCOMPILE_CACHE_LIMIT_GB  3" in report
    assert "HF_TOKEN" not in report
    for private in ("carla-surname", str(tmp_path), sys.prefix, str(Path.cwd()), socket.gethostname()):
        assert private not in report
    assert f"/{getpass.getuser()}" not in report


def test_a_bundle_that_cannot_be_opened_is_described_by_its_error(
    tmp_path: Path, command_line: Callable[..., Any]
) -> None:
    code, out, _ = command_line("doctor", tmp_path, "--report")
    assert code == 0
    assert out.count("error  <path>: not a bundle: it has no manifest.json") == 2
    assert str(tmp_path) not in out


def test_values_of_variables_that_hold_keys_or_paths_are_never_shown() -> None:
    assert not [name for name in SHOWN_VARIABLES if any(word in name for word in ("KEY", "TOKEN", "DIR", "RUNTIME"))]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot open /usr/lib/libcudart.so.13: no such file", "cannot open <path>/libcudart.so.13: no such file"),
        ("in /srv/data/models (2 files)", "in <path> (2 files)"),
        ("'/etc/x.json'", "'<path>/x.json'"),
        ("12 tokens/s and/or yes/no", "12 tokens/s and/or yes/no"),
        (f"in {Path.home()}/secret/plans", "in <path>"),
        ("float16/int4 on 8.9", "float16/int4 on 8.9"),
    ],
)
def test_paths_are_shortened(text: str, shown: str) -> None:
    assert without_paths(text) == shown


def test_a_report_is_no_json(command_line: Callable[..., Any]) -> None:
    code, _, err = command_line("doctor", "--report", "--json")
    assert (code, "received --report and --json, expected one of them" in err) == (2, True)
