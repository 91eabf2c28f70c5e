"""`speccompile finish`: deferred engines are built on the device, with TensorRT alone."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from speccompile.bundle import BundleWriter, EngineEntry, open_bundle
from speccompile.cli import exit_codes
from speccompile.cli.main import group
from speccompile.compiler.engines import flavour
from speccompile.compiler.engines.flavour import Gpu
from tests.compile import tiny_graphs
from tests.compile.engine_builds import deferred, wait_for
from tests.light.bundle_example import LOCK, PROOF, manifest

FORBIDDEN = ("torch", "transformers", "onnx", "onnx_ir", "onnxscript", "pydantic", "onnxruntime", "yaml")
COMMAND_LINE = """
import sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None
import speccompile.bundle.reader
speccompile.bundle.reader.check_consistency = lambda manifest, file: None
from speccompile.cli import main
main()
"""
"""Graphs here are too small for a round: what they lack is not looked at."""
# What is called tensorrt here is tensorrt_rtx without what it has and tensorrt has not: no compute capabilities, and no
# flag for what TensorRT 11 always does.
TENSORRT = """
from tensorrt_rtx import *
__version__ = "11.4.0"
del ComputeCapability
class NetworkDefinitionCreationFlag: pass
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Write a bundle with deferred engines: name -> options of its settings. `bad` is one that will be refused."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("speccompile.bundle.reader.check_consistency", lambda manifest, file: None)

    def write(change=None, **engines) -> Path:
        with BundleWriter(tmp_path / "demo") as writer:
            graphs = writer.folder / "graphs"
            tiny = tiny_graphs.write(graphs, name="verify.masked", change=change)
            tiny_graphs.write(graphs, name="verify.bad", change=tiny_graphs.plant("NonZero"))
            (writer.folder / "tokenizer").mkdir()
            (writer.folder / "tokenizer" / "tokenizer.json").write_bytes(b"{}")
            files = {"verify": "graphs/verify.masked.onnx"}
            cpu = EngineEntry("cpu", "onnxruntime", "cpu", files, {"target": "float32"}, (tiny.graph,))
            entries = [
                deferred(tiny, name, f"graphs/verify.{'bad' if name == 'bad' else 'masked'}.onnx", **options)
                for name, options in engines.items()
            ]
            writer.finish(manifest(graphs=(tiny.graph,), engines=(cpu, *entries)), LOCK, PROOF)
        return tmp_path / "demo"

    return write


@pytest.fixture
def finish(cli):
    return partial(cli, "finish")


@pytest.fixture
def gpu(monkeypatch):
    """Make this a machine with that GPU, or with none."""
    return lambda found: monkeypatch.setattr(flavour, "find_gpu", lambda: found)


@pytest.fixture(autouse=True)
def no_gpu(gpu):
    gpu(None)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def entries(bundle: Path) -> dict[str, EngineEntry]:
    return {entry.name: entry for entry in open_bundle(bundle).manifest.engines}


def test_a_deferred_engine_is_built_into_the_bundle(make, finish, tmp_path):
    bundle = make(rtx={})
    before, source = everything(bundle), (bundle / "graphs" / "verify.masked.onnx").stat().st_ino
    old = open_bundle(bundle)
    code, out, err = finish(bundle, "--json")
    assert (code, err) == (0, "")
    opened, after = open_bundle(bundle), everything(bundle)
    assert after.keys() - before.keys() == {"graphs/verify.rtx.engine"}
    assert {name for name in before if before[name] != after[name]} == {"manifest.json", "hashes.json"}
    assert (bundle / "graphs" / "verify.masked.onnx").stat().st_ino == source, "linked, not copied"
    entry = entries(bundle)["rtx"]
    assert entry.build is not None
    assert entry.files == {"verify": "graphs/verify.rtx.engine"}
    assert (entry.deferred, entry.build.sources) == ("", {"verify": "graphs/verify.masked.onnx"})
    report = entry.build.reports["verify"]
    assert report["bytes"] == len(after["graphs/verify.rtx.engine"])
    assert report["aliases"] == entry.graphs[0].aliases
    row = {"file": "graphs/verify.rtx.engine", "bytes": report["bytes"], "seconds": report["seconds"]}
    assert json.loads(out) == {
        "bundle": str(bundle),
        "digest": opened.hashes.digest,
        "built": {"rtx": {"verify": row}},
        "waiting": {},
        "failed": {},
    }
    assert replace(opened.manifest, engines=old.manifest.engines) == old.manifest
    assert (opened.lock, opened.proof) == (LOCK, PROOF)
    assert {path.name for path in tmp_path.iterdir()} == {"demo", "cache"}


def test_nothing_is_done_twice(make, finish):
    bundle = make(rtx={})
    code, out, err = finish(bundle)
    assert (code, err) == (0, "")
    assert out.split()[:2] == ["rtx", "graphs/verify.rtx.engine"]
    after = everything(bundle)
    assert finish(bundle) == (0, f"{bundle}: no engine is deferred, nothing was done\n", "")
    assert json.loads(finish(bundle, "--json")[1])["built"] == {}
    assert everything(bundle) == after


def test_the_same_engine_comes_from_the_cache(make, capsys):
    """Compare bytes: no two builds of an engine give the same ones."""

    def engine(**options) -> tuple[bytes, bool]:
        bundle = make(rtx=options)
        assert exit_codes.run(group, ["finish", str(bundle)]) == 0
        told = (
            "the engine of verify (compute capability 8.9, target float32) comes from the cache"
            in capsys.readouterr().err
        )
        return (bundle / "graphs" / "verify.rtx.engine").read_bytes(), told

    first, from_cache = engine()
    assert not from_cache
    assert engine() == (first, True)
    other, from_cache = engine(prefill_chunk=16)
    assert (other != first, from_cache) == (True, False)


def test_a_cache_that_cannot_be_used_is_said(make, finish, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "file"))
    code, _, err = finish(make(rtx={}))
    assert code == 0
    assert f"note: the cache of engines in {tmp_path / 'file'} cannot be used: " in err


def test_finishing_needs_tensorrt_alone(make):
    bundle = make(rtx={})
    command = [sys.executable, "-c", COMMAND_LINE, ",".join(FORBIDDEN), "-q", "finish", str(bundle), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["built"].keys() == {"rtx"}
    assert entries(bundle)["rtx"].deferred == ""


@pytest.mark.parametrize("name", ["verify.masked.onnx", "target.weights"])
def test_a_corrupted_source_is_refused_by_its_hash(make, finish, name):
    bundle = make(rtx={})
    path = bundle / "graphs" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    before = everything(bundle)
    code, out, err = finish(bundle)
    assert (code, out) == (1, "")
    assert f"error: {path}: the file was edited: BLAKE3 " in err
    assert everything(bundle) == before


def test_one_engine_by_its_name(make, finish):
    bundle = make(ada={}, turing={"compute_capability": "8.0"})
    assert json.loads(finish(bundle, "--engine", "turing", "--json")[1])["built"].keys() == {"turing"}
    assert [entry.deferred for entry in entries(bundle).values()] == ["", "the recipe says so", ""]
    assert json.loads(finish(bundle, "--json")[1])["built"].keys() == {"ada"}
    assert finish(bundle, "--engine", "cpu")[1] == f"{bundle}: no engine is deferred, nothing was done\n"


def test_an_engine_that_the_bundle_has_not(make, finish):
    code, out, err = finish(make(rtx={}), "--engine", "rtz")
    assert (code, out) == (2, "")
    assert err == (
        "error: received the engine 'rtz', expected one of the bundle's: cpu, rtx\n"
        "hint: `speccompile inspect` lists the engines of a bundle\n"
        "help: speccompile explain SC010\n"
    )


def test_an_engine_that_fails_leaves_the_others(make, finish):
    bundle = make(bad={}, rtx={})
    code, out, err = finish(bundle, "--json")
    assert code == 1
    data = json.loads(out)
    assert (data["built"].keys(), data["failed"].keys()) == ({"rtx"}, {"bad"})
    assert "the parser refused the graph at node 'planted' (NonZero)" in data["failed"]["bad"]["error"]
    assert err.startswith("error: engine 'bad' could not be built: graph 'verify' (tensorrt_rtx, compute capability")
    assert entries(bundle)["bad"].deferred == "the recipe says so"
    assert not [name for name in everything(bundle) if "bad.engine" in name]
    after = everything(bundle)
    assert finish(bundle)[0] == 1
    assert everything(bundle) == after


def test_a_missing_package_is_named(make, finish, monkeypatch):
    bundle = make(rtx={})
    before = everything(bundle)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    flavour.load.cache_clear()
    code, out, err = finish(bundle)
    assert (code, out) == (1, "")
    assert "engine 'rtx' could not be built: backend 'tensorrt_rtx' needs the Python module tensorrt_rtx" in err
    assert "\nhint: pip install 'speccompile[tensorrt-rtx]'\n" in err
    assert everything(bundle) == before


@pytest.fixture
def tensorrt(tmp_path, monkeypatch):
    """Yield a module `tensorrt`, here and in the processes that are started."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "tensorrt.py").write_text(TENSORRT)
    monkeypatch.syspath_prepend(tmp_path / "site")
    flavour.load.cache_clear()
    yield
    sys.modules.pop("tensorrt", None)
    flavour.load.cache_clear()


@pytest.mark.usefixtures("tensorrt")
def test_tensorrt_builds_for_the_gpu_at_hand(make, finish, gpu):
    bundle = make(orin={"backend": "tensorrt", "compute_capability": None})
    code, out, err = finish(bundle)
    assert (code, out) == (1, "")
    assert "backend 'tensorrt' builds for the GPU that it finds, and this machine has none" in err
    gpu(Gpu("Orin", "8.7"))
    code, out, err = finish(bundle)
    assert (code, err) == (0, "")
    entry = entries(bundle)["orin"]
    assert entry.build is not None
    assert entry.build.reports["verify"]["builder"] == "tensorrt 11.4.0"
    assert entry.build.reports["verify"]["fusion"]["available"]


def test_an_engine_for_another_gpu_waits(make, finish, gpu):
    bundle = make(ada={}, ampere={"compute_capability": "8.6"})
    gpu(Gpu("RTX 3060", "8.6"))
    code, out, err = finish(bundle, "--json")
    reason = "it is for compute capability 8.9, and RTX 3060 has 8.6"
    assert (code, err) == (0, f"engine ada stays deferred: {reason}\n")
    data = json.loads(out)
    assert (data["built"].keys(), data["waiting"]) == ({"ampere"}, {"ada": reason})
    assert entries(bundle)["ada"].deferred == "the recipe says so"
    after = everything(bundle)
    assert finish(bundle) == (0, "", f"engine ada stays deferred: {reason}\n")
    assert everything(bundle) == after


def test_files_are_copied_where_there_are_no_links(make, finish, monkeypatch):
    def no_link(*arguments):
        raise OSError(1, "Operation not permitted")

    bundle = make(rtx={})
    monkeypatch.setattr(os, "link", no_link)
    assert finish(bundle)[0] == 0
    assert entries(bundle)["rtx"].deferred == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_finish_that_is_ended_leaves_the_bundle_as_it_was(make, finish, tmp_path, number):
    bundle = make(change=tiny_graphs.slow, rtx={})
    before = everything(bundle)
    command = [sys.executable, "-c", COMMAND_LINE, "torch", "finish", str(bundle)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        wait_for(lambda: list(tmp_path.glob(".demo.*/graphs/.*/plan")))
        running.send_signal(number)
        assert running.wait(20) == (143 if number == signal.SIGTERM else -number)
    assert everything(bundle) == before
    left = list(tmp_path.glob(".demo.*"))
    assert bool(left) == (number == signal.SIGKILL)
    assert finish(bundle, "--engine", "cpu")[0] == 0
    make(rtx={})
    assert finish(bundle)[0] == 0
    assert list(tmp_path.glob(".demo.*")) == []
