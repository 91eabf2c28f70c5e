"""What the machine lacks, over the C ABI: engines, ONNX Runtime's library, kernels, caches, room on the disk. Python's
runtime says the same where it has the same to say. The library itself prints nothing.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from speccompile.bundle import EngineEntry
from speccompile.bundle.manifest import TensorRTBuild
from tests.light.bundle_example import verify_graph, write_bundle
from tests.light.fake_tensorrt import engine_entry
from tests.light.test_bundle_reader import edit, hash_again
from tests.native.native_errors import KINDS
from tests.native.native_log import Log
from tests.native.test_native_packaging import C_COMPILER

ROOT = Path(__file__).resolve().parents[2]


def rtx(name: str = "this", **changes: Any) -> EngineEntry:
    return engine_entry(name, {"verify": "graphs/verify.onnx"}, (verify_graph(),), **changes)


def cpu(name: str, provider: str) -> EngineEntry:
    return EngineEntry(name, "onnxruntime", provider, {"verify": "graphs/verify.onnx"}, {}, (verify_graph(),))


ENGINES = {
    "backend": rtx(backend="xyzzy"),
    "provider": cpu("this", "tpu"),
}


@pytest.mark.parametrize("entry", ENGINES)
@pytest.mark.parametrize("asked", [{"engine": "this"}, {"engine": "other"}, {}], ids=["named", "unknown", "any"])
def test_engines_that_cannot_run(two, tmp_path, entry, asked):
    folder = write_bundle(tmp_path / "demo", engines=(ENGINES[entry],))
    kind, _, _ = two.refuse_to_open(folder, **asked)
    assert kind == ("USAGE" if asked == {"engine": "other"} else "ENGINE")


def test_tensorrt_is_what_this_runtime_lacks(two, tmp_path):
    folder = write_bundle(tmp_path / "demo", engines=(rtx(),))
    kind, message, _ = two.in_native(lambda: two.native(folder, engine="this"))
    assert (kind, message) == (
        "ENGINE", "engine 'this' cannot run here: this runtime has no backend 'tensorrt_rtx' on 'cuda'"
    )  # fmt: skip


def test_engines_that_are_not_built_yet(two, tmp_path):
    sources = {"verify": "graphs/verify.onnx"}
    later = replace(rtx(), files={}, build=TensorRTBuild("no GPU", sources, {"verify": {}}, {}))
    folder = write_bundle(tmp_path / "demo", engines=(later,))
    for asked in ({}, {"engine": "this"}):
        kind, message, hint = two.refuse_to_open(folder, **asked)
        assert kind == "ENGINE"
        assert "it is not built yet: no GPU" in message
        assert hint.startswith("run `speccompile finish`")


def test_an_engine_that_is_passed_over_is_told_to_who_listens(two, lookup, tmp_path, capfd):
    folder = shutil.copytree(lookup, tmp_path / "bundle")
    edit(
        folder / "manifest.json",
        lambda data: data["engines"].insert(0, data["engines"][0] | {"name": "x", "provider": "tpu"}),
    )
    hash_again(folder)
    log = Log(two.library)
    capfd.readouterr()
    try:
        assert two.native(folder).description["engine"] == "onnxruntime-cpu"
    finally:
        log.close()
    two.native(folder)  # to nobody
    assert tuple(capfd.readouterr()) == ("", "")
    told = [line for level, line in log.lines if level == 30]
    assert told == ["skipping engine x for onnxruntime-cpu: this runtime has no backend 'onnxruntime' on 'tpu'"]


def test_kernels_that_this_machine_has_not(two, lookup, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_KERNELS", "abacus")
    assert two.refuse_to_open(lookup)[0] == "USAGE"


@pytest.mark.parametrize("value", ["much", "-1", "nan"])
def test_a_limit_of_the_caches_that_is_none(two, lookup, monkeypatch, value):
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", value)
    assert two.refuse_to_open(lookup)[0] == "USAGE"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"threads": "0"}, "threads: received '0', expected a whole number from 1 on"),
        ({"threads": "many"}, "threads: received 'many', expected"),
        ({"image_cache": "-1"}, "image_cache: received '-1', expected a whole number from 0 on"),
        ({"image_cache": "9"}, "image_cache: received 9 for a bundle that sees no pictures, expected none"),
        ({"verify": "maybe"}, "verify: received 'maybe', expected true or false"),
        ({"engin": "x"}, "received the option 'engin', expected one of engine, threads, verify, signed_by"),
    ],
)
def test_options_of_opening(two, lookup, options, told):
    kind, message, hint = two.in_native(lambda: two.native(lookup, **options))
    assert kind == "USAGE"
    assert message.startswith(told)
    assert hint


def test_another_onnxruntime_than_the_one_in_use(two, lookup):
    two.native(lookup)
    two.onnxruntime = Path("/absent/libonnxruntime.so.1")
    kind, message, _ = two.in_native(lambda: two.native(lookup))
    assert (kind, message.split(": ")[:2]) == (
        "ENGINE", ["found no ONNX Runtime, expected its shared library. Tried option onnxruntime", str(two.onnxruntime)]
    )  # fmt: skip
    two.onnxruntime = Path("libm.so.6")
    kind, message, _ = two.in_native(lambda: two.native(lookup))
    assert kind == "ENGINE"
    assert message.startswith("received ONNX Runtime at libm.so.6, expected the one that this process already uses: ")


ALONE = """
import json, resource, sys
from pathlib import Path
from tests.native.native_api import NativeBundle
from tests.native.native_errors import NativeError

library, folder, limit, *places = sys.argv[1:]
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
for place in places:
    try:
        bundle = NativeBundle(folder, library=Path(library), onnxruntime=Path(place) if place else None)
        print(json.dumps(len(bundle.session().generate([[5, 6]], max_new_tokens=3)[0]["token_ids"])))
    except NativeError as error:
        print(json.dumps([error.kind, error.message, error.hint]))
"""


def alone(library: Path, folder: Path, *places: object, limit: str = "", **environment: str) -> Iterator[Any]:
    """Return what comes of a bundle with each of these libraries, in a process in which ONNX Runtime is not loaded
    yet."""
    words = [sys.executable, "-c", ALONE, *map(str, (library, folder, limit, *places))]
    variables = os.environ | {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": ""} | environment
    done = subprocess.run(words, capture_output=True, text=True, env=variables)
    assert (done.returncode, done.stderr) == (0, "")
    return map(json.loads, done.stdout.splitlines())


OLD = """
#include <stdio.h>
static const void *get(unsigned version) { fprintf(stderr, "version %u is not available\\n", version); return 0; }
static const char *version(void) { return "1.20.1"; }
static const struct { const void *(*get)(unsigned); const char *(*version)(void); } base = {get, version};
const void *OrtGetApiBase(void) { return &base; }
"""


@pytest.mark.skipif(C_COMPILER is None, reason="no C compiler is here: cc, gcc or clang, or $CC")
def test_libraries_that_are_not_onnxruntime(native_library, onnxruntime_library, lookup, tmp_path):
    old = tmp_path / "libold.so"
    (tmp_path / "old.c").write_text(OLD)
    subprocess.run([C_COMPILER, "-shared", "-fPIC", tmp_path / "old.c", "-o", old], check=True)
    variable = str(tmp_path / "absent.so")
    found = alone(native_library, lookup, "libm.so.6", old, "", onnxruntime_library, SPECCOMPILE_ONNXRUNTIME=variable)
    foreign, too_old, absent, works = found
    assert foreign[:2] == [KINDS["ENGINE"], "libm.so.6: expected ONNX Runtime, found a library without OrtGetApiBase"]
    assert too_old[:2] == [KINDS["ENGINE"], f"{old}: received ONNX Runtime 1.20.1, expected 1.23 or newer"]
    assert absent[1].startswith(
        f"found no ONNX Runtime, expected its shared library. Tried $SPECCOMPILE_ONNXRUNTIME: {variable}: "
    )
    assert all(
        "name the library: option onnxruntime, or $SPECCOMPILE_ONNXRUNTIME" in each[2]
        for each in (foreign, too_old, absent)
    )
    assert works == 3


def test_every_place_that_was_tried_is_named(native_library, lookup):
    (found,) = alone(native_library, lookup, "", SPECCOMPILE_ONNXRUNTIME="")
    if found == 3:
        pytest.skip("the loader finds an ONNX Runtime on this machine")
    kind, message, _ = found
    assert kind == KINDS["ENGINE"]
    assert "Tried the loader: libonnxruntime.so.1: " in message
    assert "; the loader: libonnxruntime.so: " in message


def test_caches_that_cannot_be_used(native_library, onnxruntime_library, lookup, tmp_path):
    (tmp_path / "file").write_text("")
    for environment in ({"SPECCOMPILE_CACHE_DIR": str(tmp_path / "file")}, {"SPECCOMPILE_CACHE_LIMIT_GB": "0"}):
        assert list(alone(native_library, lookup, onnxruntime_library, **environment)) == [3]


def test_a_disk_on_which_nothing_can_be_written(native_library, onnxruntime_library, lookup, tmp_path):
    """Limit the process's file size, so that every write fails as on a full disk."""
    cache = tmp_path / "cache"
    found = alone(native_library, lookup, onnxruntime_library, limit="0", SPECCOMPILE_CACHE_DIR=str(cache))
    assert list(found) == [3]
    assert [path for path in cache.rglob("*") if path.is_file() and path.stat().st_size] == []
