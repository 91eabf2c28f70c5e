"""The encoder of pictures as an engine of TensorRT: on a fake GPU, its sizes, and what a manifest says of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from speccompile.bundle.consistency import check_consistency
from speccompile.bundle.media import ENCODE_IMAGE
from speccompile.compiler.build.encoder_engine import EncoderEngine, encoder_contract
from speccompile.compiler.checkpoints.images import read_images
from speccompile.contract import Graph, Tensor
from speccompile.errors import EngineError
from speccompile.plan.plan import EnginePlan, PrecisionPlan
from speccompile.runtime.devices.tensorrt_encoder import TensorRTEncoder
from speccompile.runtime.images.families import FAMILIES
from speccompile.runtime.images.family import Family
from tests import vision
from tests.light.fake_bundle import toy_manifest
from tests.light.fake_cuda import FakeCuda
from tests.light.fake_tensorrt import FakeTensorRT, describe, device_manifest, engine_entry, write_plans
from tests.light.test_bundle_consistency import seeing

WIDTH, PATCH = 8, 12
PATCHED = Graph(
    ENCODE_IMAGE,
    (
        Tensor("pixels", "float32", ("patches", PATCH), "pixels", "io"),
        Tensor("places", "int64", ("patches", 2), "places", "io"),
    ),
    (Tensor("rows", "float32", ("rows", WIDTH), "rows", "io"),),
)
TILED = Graph(
    ENCODE_IMAGE, (Tensor("pixels", "float32", (3, 4, 4), "pixels", "io"),),
    (Tensor("rows", "float32", (4, WIDTH), "rows", "io"),),
)  # fmt: skip


def opened(folder: Path, graph: Graph, patches: int = 4, **trt: Any) -> tuple[TensorRTEncoder, FakeCuda, FakeTensorRT]:
    entry = engine_entry("rtx", {ENCODE_IMAGE: "images/encode.engine"}, (graph,))
    write_plans(folder, entry)
    cuda = FakeCuda()
    module = FakeTensorRT(cuda, device_manifest(), **trt)
    return TensorRTEncoder(folder, entry, cuda.open(), module, patches), cuda, module


def pictured(patches: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng([patches, seed])
    return {"pixels": random.random((patches, PATCH), np.float32), "places": np.zeros((patches, 2), np.int64)}


def expected(given: dict[str, np.ndarray], rows: int) -> np.ndarray:
    sums = given["pixels"].reshape(rows, -1).sum(1) + len(given.get("places", ()))
    return sums[:, None] * np.arange(1, WIDTH + 1, dtype=np.float32)


@pytest.fixture(autouse=True)
def kernels(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_pictures_of_any_size_give_their_rows_from_few_buffers(tmp_path):
    encoder, _, module = opened(tmp_path, PATCHED)
    kept = [(pictured(count, count), encoder.run(pictured(count, count))) for count in (4, 64, 40, 36, 52, 60, 4)]
    for shown, found in kept:  # none was written over by a later one
        np.testing.assert_array_equal(found, expected(shown, len(shown["pixels"]) // 4))
    sizes = {(name, size) for name, size in encoder._buffers if name == "pixels"}
    assert sorted(size for _, size in sizes) == [256, 2048, 4096]
    assert len(module.contexts) == 1


def test_a_tile_has_one_size(tmp_path):
    encoder, _, _ = opened(tmp_path, TILED, 1)
    pixels = {"pixels": np.random.default_rng(0).random((3, 4, 4), np.float32)}
    np.testing.assert_array_equal(encoder.run(pixels), expected(pixels, 4))
    with pytest.raises(ValueError, match="broadcast"):
        encoder.run({"pixels": np.zeros((3, 5, 5), np.float32)})


def test_what_the_library_refuses_is_an_engine_error(tmp_path):
    encoder, _, module = opened(tmp_path, PATCHED, largest=16)
    with pytest.raises(EngineError, match=r"pixels is outside what the engine was built for"):
        encoder.run(pictured(20))
    shown = pictured(16)
    np.testing.assert_array_equal(encoder.run(shown), expected(shown, 4))
    module.refuses_to_run = True
    with pytest.raises(EngineError, match="the library refuses to run it"):
        encoder.run(shown)
    (tmp_path / "images/encode.engine").write_text("{}")
    module.refuses = "other version"
    with pytest.raises(EngineError, match=r"does not take encode\.engine"):
        TensorRTEncoder(tmp_path, engine_entry("rtx", {ENCODE_IMAGE: "images/encode.engine"}, (PATCHED,)),
                        FakeCuda().open(), module, 4)  # fmt: skip


def test_another_engine_than_the_contracts_is_refused(tmp_path):
    entry = engine_entry("rtx", {ENCODE_IMAGE: "images/encode.engine"}, (PATCHED,))
    write_plans(tmp_path, entry)
    (tmp_path / "images/encode.engine").write_text(json.dumps(describe(PATCHED, places={"dtype": "FLOAT"})))
    cuda = FakeCuda()
    with pytest.raises(EngineError, match="places is INPUT float32"):
        TensorRTEncoder(tmp_path, entry, cuda.open(), FakeTensorRT(cuda, device_manifest()), 4)


def test_an_engine_of_tensorrt_has_the_encoder_where_pictures_are_seen():
    """Find the encoder; tests/light/test_bundle_consistency.py checks bundles without it."""
    manifest = seeing(encodes=True)(toy_manifest())
    check_consistency(manifest, "manifest.json")
    (entry,) = manifest.engines
    assert entry.files.keys() - entry.round.files.keys() == {ENCODE_IMAGE}
    assert [graph.name for graph in entry.round.graphs] == [graph.name for graph in manifest.graphs]


def test_the_contract_is_read_from_the_graph_and_gives_the_profile(tmp_path):
    inputs = [
        helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["4*s30", PATCH]),
        helper.make_tensor_value_info("places", TensorProto.INT64, ["4*s30", 2]),
    ]
    output = helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["s30", WIDTH])
    onnx.save(helper.make_model(helper.make_graph([], "encode", inputs, [output])), tmp_path / "encode.onnx")
    graph = encoder_contract(tmp_path / "encode.onnx")
    assert graph == PATCHED
    widths = tuple({"patches": 4 * count, "rows": count} for count in (1, 9, 20))
    planned = EnginePlan(0, "rtx", "tensorrt_rtx", "cuda", "8.9", PrecisionPlan("float16", None, None), False)
    found = EncoderEngine(graph, widths).settings(planned)
    assert found.profile == {"pixels": ((4, PATCH), (36, PATCH), (80, PATCH)), "places": ((4, 2), (36, 2), (80, 2))}
    assert (found.tf32, found.precision, found.compute_capability) == (False, {}, "8.9")
    assert EncoderEngine(TILED, widths).settings(planned).profile == {}


@pytest.fixture(scope="module")
def families(tmp_path_factory) -> list[Family]:
    """Return a family of each form of sizes."""
    found = []
    for name in ("qwen2_5_vl", "mistral3", "pixtral", "gemma4", "lfm2_vl", "idefics3"):
        images = read_images(vision.save(vision.model(name), name, tmp_path_factory.mktemp(name)))
        found.append(FAMILIES[images.family](images))
    return found


def test_no_run_gives_more_rows_than_a_family_says(families):
    @given(st.integers(5, 400), st.integers(5, 400), st.booleans())
    @example(5, 1000, False)
    @example(1000, 5, False)
    @settings(max_examples=60, deadline=None)
    def check(height, width, is_low):
        for family in families:
            seen = family.low if is_low else family
            patches = seen.images.settings.get("merge", 1) ** 2
            if family.images.settings.get("most") == [90, 90] and max(height, width) > 90 * min(height, width):
                continue  # less than a pixel wide
            runs = seen.runs(np.zeros((height, width, 3), np.uint8))
            rows = [len(run["pixels"]) // patches if "places" in run else seen.images.tile_rows for run in runs]
            assert max(rows) <= family.most_rows()

    check()
