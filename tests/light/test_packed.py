"""Weights that are packed once on a machine and mapped: sessions of ONNX Runtime on a graph of two kinds of kernels."""

import errno
import gc
import json
import logging
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from speccompile.bundle.hashes import hash_folder, write_hashes
from speccompile.errors import EngineError
from speccompile.runtime.devices import prepacked
from speccompile.runtime.devices.onnx_file import PlaceholderInitializer, with_carriers
from speccompile.runtime.devices.prepacked import PrepackedWeights
from speccompile.runtime.devices.sessions import as_text, session_options, shared_session

WIDTH, BLOCK = 256, 32
INPUT = np.random.default_rng(1).standard_normal((3, WIDTH), np.float32)
MAPS = Path("/proc/self/maps")


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch) -> PrepackedWeights:
    """Return a cache for the test, into which small weights go too."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(prepacked, "SMALLEST_GRAPH", 1)
    monkeypatch.setattr(prepacked, "SMALLEST_FILE", 1024)
    return PrepackedWeights.named(prepacked.NAME)


def write_graph(folder: Path, *, seed: int = 0, more: bool = False) -> str:
    """Write a graph y = quantized(float(x)), with weights of `seed` beside it; `more` has another node. Return its
    path."""
    random = np.random.default_rng(seed)
    blocks = (WIDTH, WIDTH // BLOCK)
    weights = {
        "float": random.standard_normal((WIDTH, WIDTH), np.float32),
        "quantized": random.integers(0, 256, (*blocks, BLOCK // 2), np.uint8),
        "scales": random.random(blocks, np.float32).reshape(-1) / 100,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "float"], ["h"]),
        helper.make_node(
            "MatMulNBits", ["h", "quantized", "scales"], ["y"], domain="com.microsoft",
            K=WIDTH, N=WIDTH, bits=4, block_size=BLOCK, accuracy_level=4,
        ),
    ]  # fmt: skip
    nodes += [helper.make_node("Neg", ["y"], ["z"])] if more else []
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["n", WIDTH]) for end in ("x", "z" if more else "y")]
    initializers = [numpy_helper.from_array(array, key) for key, array in weights.items()]
    graph = helper.make_graph(nodes, "verify", ends[:1], ends[1:], initializers)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    (folder / "graphs").mkdir(parents=True, exist_ok=True)
    external_data_helper.convert_model_to_external_data(model, location="target.weights", size_threshold=1024)
    (folder / "graphs" / "target.weights").unlink(missing_ok=True)
    onnx.save(model, folder / "graphs" / "verify.onnx")
    write_hashes(folder, hash_folder(folder))
    return "graphs/verify.onnx"


def run(session: ort.InferenceSession, feed: np.ndarray = INPUT) -> bytes:
    return session.run([session.get_outputs()[0].name], {"x": feed})[0].tobytes()


def plain(folder: Path, file: str) -> bytes:
    """Return the output of ONNX Runtime without the cache."""
    return run(ort.InferenceSession(folder / file, session_options(1), providers=["CPUExecutionProvider"]))


def mapped_files(own: PrepackedWeights) -> set[str]:
    """Return names of the files of packed weights that this process has mapped."""
    return {line.split("/")[-1].strip() for line in MAPS.read_text().splitlines() if f"{own.folder}/" in line}


def packed_files(own: PrepackedWeights) -> list[Path]:
    return sorted(path for path in own.folder.glob("*/*") if path.suffix != ".json")


@pytest.mark.skipif(not MAPS.exists(), reason="this system does not say what is mapped")
def test_weights_are_mapped_and_computed_with(own, tmp_path, caplog):
    file = write_graph(tmp_path / "demo")
    with caplog.at_level(logging.INFO):
        session = shared_session(tmp_path / "demo", file, 1)
    assert caplog.messages == ["packing the weights of verify.onnx, once on this machine ..."]
    assert run(session) == plain(tmp_path / "demo", file)
    files = packed_files(own)
    assert len(files) == 2, "one for each kernel"
    assert mapped_files(own) == {path.name for path in files}
    (entry,) = own.entries()
    assert sorted(entry.key["files"], reverse=True) == [file, "graphs/target.weights"]
    assert entry.key["onnxruntime"] == ort.__version__
    # It computes with what lies there: only hashes are compared, and only on request.
    del session
    gc.collect()
    for path in files:
        path.write_bytes(bytes(path.stat().st_size))
    with caplog.at_level(logging.WARNING):
        changed = run(shared_session(tmp_path / "demo", file, 1, verify=False)) != plain(tmp_path / "demo", file)
    # From 1.32 on ONNX Runtime compares it with what the kernel would pack: then the weights are held, and it is said.
    assert changed != ("do not match the buffers generated by the current kernel" in caplog.text)


def test_opened_again_nothing_is_packed(own, tmp_path, caplog):
    file = write_graph(tmp_path / "demo")
    expected = run(shared_session(tmp_path / "demo", file, 1))
    inodes = [path.stat().st_ino for path in packed_files(own)]
    with caplog.at_level(logging.INFO):
        assert run(shared_session(tmp_path / "demo", file, 1)) == expected
        shutil.copytree(tmp_path / "demo", tmp_path / "moved")
        assert run(shared_session(tmp_path / "moved", file, 2)) == expected
    assert caplog.text == ""
    assert [path.stat().st_ino for path in packed_files(own)] == inodes


def test_graphs_with_the_same_weights_share_files(own, tmp_path, monkeypatch):
    file, other = (write_graph(tmp_path / name, more=name == "other") for name in ("demo", "other"))
    third = write_graph(tmp_path / "third", seed=1)
    shared_session(tmp_path / "demo", file, 1)
    (entry,) = own.entries()
    assert run(shared_session(tmp_path / "other", other, 1)) == plain(tmp_path / "other", other)
    first, second = [{path.stat().st_ino for path in (own.folder / each.digest).iterdir()} for each in own.entries()]
    assert len(first & second) == 2
    assert sum(each.size for each in own.entries()) == pytest.approx(entry.size, rel=0.02)
    shared_session(tmp_path / "third", third, 1)
    assert sum(each.size for each in own.entries()) == pytest.approx(2 * entry.size, rel=0.02)

    def refuse(*paths: Path) -> None:
        raise OSError(errno.EPERM, "no hard links")

    own.clear()
    monkeypatch.setattr(prepacked.os, "link", refuse)
    for each in ("demo", "other"):
        shared_session(tmp_path / each, file, 3)
    assert sum(each.size for each in own.entries()) == pytest.approx(2 * entry.size, rel=0.02)


def test_packed_weights_of_other_content_are_in_vain(tmp_path):
    """Ignore packed weights of another processor, version or model, whose hashes match nothing that is packed here."""
    file = write_graph(tmp_path / "demo")
    graph, wrong = tmp_path / "demo" / file, tmp_path / "wrong"
    wrong.write_bytes(bytes(WIDTH * WIDTH * 4))
    size = wrong.stat().st_size
    keys = [f"{kernel}+{number}|0;{size};0" for kernel in ("MatMul", "MatMulNBits") for number in (0, 2**63 + 8)]
    at = os.fsencode(wrong.relative_to("/"))
    model = with_carriers(
        graph.read_bytes(),
        lambda location: os.fsencode(graph.parent.relative_to("/")) + b"/" + location,
        [PlaceholderInitializer(at, {"prepacked_0": key}) for key in keys],
    )
    options = session_options(1, model_external_initializers_file_folder_path="/")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    assert run(session) == plain(tmp_path / "demo", file)


@pytest.mark.parametrize("damage", ["edited", "cut", "gone"])
def test_damaged_files_are_thrown_out_and_packed_again(own, tmp_path, caplog, damage):
    file = write_graph(tmp_path / "demo")
    shared_session(tmp_path / "demo", file, 1)
    path = packed_files(own)[0]
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-1] if damage == "cut" else b"?" + content[1:])
    assert run(shared_session(tmp_path / "demo", file, 1)) == plain(tmp_path / "demo", file)
    assert "note: a damaged packed graph is thrown out of the cache: " in caplog.text
    assert path.read_bytes() == content


def test_a_damaged_file_of_another_entry_is_not_shared(own, tmp_path):
    file, other = (write_graph(tmp_path / name, more=name == "other") for name in ("demo", "other"))
    shared_session(tmp_path / "demo", file, 1)
    for path in packed_files(own):
        path.write_bytes(bytes(path.stat().st_size))
    assert run(shared_session(tmp_path / "other", other, 1)) == plain(tmp_path / "other", other)


def fails_for(error: Exception):
    def fail(*arguments: object, **options: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda patch: patch.setattr(prepacked, "with_carriers", lambda *parts: b"?"), "ONNX Runtime .* does not take"),
        (lambda patch: patch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "1e-4"), "its weights are 0.0 GB, more than .*_GB"),
        (lambda patch: patch.setattr(prepacked.shutil, "disk_usage", lambda path: SimpleNamespace(free=9)), "No space"),
        (lambda patch: patch.setattr(Path, "mkdir", fails_for(OSError(errno.EROFS, "Read-only"))), "Read-only"),
        (lambda patch: patch.setitem(sys.modules, "blake3", None), "hashes.json is made with BLAKE3"),
        (lambda patch: patch.setattr(prepacked, "external_data", fails_for(EngineError("it failed"))), "it failed"),
    ],
)  # fmt: skip
def test_where_they_cannot_be_kept_they_are_held_and_that_is_said(own, tmp_path, monkeypatch, caplog, change, reason):
    file = write_graph(tmp_path / "demo")
    with monkeypatch.context() as patch:
        change(patch)
        session = shared_session(tmp_path / "demo", file, 1)
    assert run(session) == plain(tmp_path / "demo", file)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert re.match(rf"note: the weights of verify.onnx are held, not mapped from {own.folder}: {reason}", warning)
    assert not list(own.folder.glob(".*"))


@pytest.mark.parametrize(
    "change",
    [
        lambda patch, folder: patch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "0"),
        lambda patch, folder: patch.setattr(prepacked, "SMALLEST_GRAPH", 10**9),
        lambda patch, folder: (folder / "hashes.json").unlink(),
    ],
)
def test_where_nothing_is_kept(own, tmp_path, monkeypatch, caplog, change):
    file = write_graph(tmp_path / "demo")
    change(monkeypatch, tmp_path / "demo")
    with caplog.at_level(logging.INFO):
        assert run(shared_session(tmp_path / "demo", file, 1)) == plain(tmp_path / "demo", file)
    assert caplog.text == ""
    assert not own.folder.exists()


def test_small_weights_are_not_kept(own, tmp_path, monkeypatch):
    monkeypatch.setattr(prepacked, "SMALLEST_FILE", 100_000)
    file = write_graph(tmp_path / "demo")
    assert run(shared_session(tmp_path / "demo", file, 1)) == plain(tmp_path / "demo", file)
    assert [path.stat().st_size for path in packed_files(own)] == [WIDTH * WIDTH * 4]


def test_several_buffers_of_a_kernel_lie_in_one_file(own, tmp_path):
    """Pack two buffers of a kernel: none of ours has them, and ONNX Runtime's format allows them."""
    (tmp_path / "saved").write_bytes(bytes(range(256)) * 64)
    part = tmp_path / "part"
    part.mkdir()
    ((key, places),) = prepacked._packed({"location": "saved", "prepacked_0": "QAttention+5|4096;10;0|100;5000;0"})
    with prepacked._mapped(tmp_path / "saved") as content:
        name = own._keep(content, places, part)
    (part / "entry.json").write_text(json.dumps({"packed": {key: {"file": name, "sizes": [10, 5000]}}}))
    written, expected = (part / name).read_bytes(), (tmp_path / "saved").read_bytes()
    assert (written[:10], written[4096 : 4096 + 5000]) == (expected[4096:4106], expected[100:5100])
    graph = tmp_path / "demo" / write_graph(tmp_path / "demo")
    model = prepacked._with_packed(graph, part, json.loads((part / "entry.json").read_text()))
    carrier = onnx.ModelProto.FromString(model).graph.initializer[-1]
    assert {entry.key: entry.value for entry in carrier.external_data} == {
        "location": str((part / name).relative_to("/")),
        "offset": "0",
        "length": "1",
        "prepacked_0": "QAttention+5|0;10;0|4096;5000;0",
    }


def test_one_session_for_all_who_have_the_same_files(tmp_path):
    file = write_graph(tmp_path / "demo")
    first = shared_session(tmp_path / "demo", file, 1)
    assert shared_session(tmp_path / "demo", file, 1) is first
    assert shared_session(tmp_path / "demo", file, 2) is not first
    write_graph(tmp_path / "demo", seed=1)
    other = shared_session(tmp_path / "demo", file, 1)
    assert other is not first
    assert run(other) == plain(tmp_path / "demo", file) != run(first)


def test_one_session_runs_for_several_threads(tmp_path):
    file = write_graph(tmp_path / "demo")
    feeds = [np.random.default_rng(seed).standard_normal((3, WIDTH), np.float32) for seed in range(8)]
    expected = [run(shared_session(tmp_path / "demo", file, 2), feed) for feed in feeds]
    session = shared_session(tmp_path / "demo", file, 2)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda feed: run(session, feed), feeds * 20)) == expected * 20


def test_a_missing_graph(tmp_path):
    with pytest.raises(EngineError, match=r"ONNX Runtime .* does not take verify.onnx: .*NO_SUCHFILE"):
        shared_session(tmp_path, "graphs/verify.onnx", 1)


@pytest.mark.skipif(not MAPS.exists(), reason="this system names no files by descriptors")
@pytest.mark.parametrize("smallest", [1, 1 << 30], ids=["packed", "as it is stored"])
def test_a_folder_whose_name_is_not_unicode_is_opened(own, tmp_path, monkeypatch, smallest):
    """ONNX Runtime's Python package takes paths in Unicode alone."""
    monkeypatch.setattr(prepacked, "SMALLEST_GRAPH", smallest)
    file = write_graph(tmp_path / "demo")
    other = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(tmp_path / "demo", other)
    assert run(shared_session(other, file, 1)) == plain(tmp_path / "demo", file)


def test_a_file_whose_name_is_not_unicode_is_named(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.onnx")
    path.write_bytes(b"")
    with pytest.raises(EngineError, match="ONNX Runtime takes no path that is not Unicode"), as_text(path):
        pass
