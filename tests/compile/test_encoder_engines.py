"""Engines of TensorRT-RTX that encode pictures, of every family, and sources and sounds, built without a GPU."""

import json
from dataclasses import replace

import pytest

from speccompile.bundle import open_bundle
from speccompile.bundle.media import ENCODE_IMAGE
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.encoder_engine import TENSORRT_FILE, build_encoders
from speccompile.compiler.build.inputs import open_plan
from speccompile.compiler.engines import process
from speccompile.compiler.from_recipe import build
from speccompile.plan.plan import EnginePlan, PrecisionPlan
from speccompile.runtime import Bundle
from tests import vision
from tests.compile.engine_builds import LIMITS
from tests.compile.test_encoder_decoders import make_model
from tests.compile.test_encoder_decoders import recipe as sourced
from tests.compile.whispers import make_whisper
from tests.seeing import NEW, PROMPTS, Seeing, made, planned

pytestmark = [pytest.mark.builds(30), pytest.mark.sweep("three engines of every family, and whole bundles")]

CAPABILITIES = ("8.6", "8.9", "12.0")
LOOKUP = {"kind": "prompt_lookup", "ngram": 1, "tokens": 3}
LONGEST = 128
_ENGINE = EnginePlan(0, "rtx", "tensorrt_rtx", "cuda", None, PrecisionPlan("float16", None, None), False)


@pytest.mark.parametrize("name", vision.NAMES)
def test_an_encoder_of_every_family_is_proven_and_built_for_every_gpu(tmp_path, name):
    inputs = open_plan(planned(name, LOOKUP, tmp_path, prefill_chunk=80)).encoder
    encoder, rows = build_encoders(inputs, LONGEST, tmp_path, CachedSteps(), prove=True)
    assert encoder is not None
    assert [row["level"] for row in rows] == ["graph against eager", "tensorrt against eager"]
    for capability in CAPABILITIES:
        settings = encoder.settings(replace(_ENGINE, compute_capability=capability))
        output = tmp_path / f"{capability}.engine"
        report = process.build(tmp_path / TENSORRT_FILE, encoder.graph, settings, output, LIMITS)
        assert report["bytes"] == output.stat().st_size > 0
        assert {row["dtype"] for row in report["outputs"]} == {"float32"}
        profile = settings.profile
        assert bool(profile) == ("patches" in encoder.graph.inputs[0].shape)
        if profile:
            least, _, most = (shape[0] for shape in profile["pixels"])
            assert least < most <= LONGEST * least


@pytest.mark.parametrize("name", ["gemma3", "qwen3_vl"])
def test_a_bundle_has_an_encoder_for_each_engine(tmp_path, native_library, name):
    gpu = {"backend": "tensorrt_rtx", "precision": {"target": "float16"}}
    engines = [
        {"backend": "onnxruntime"},
        {**gpu, "name": "built", "compute_capability": "8.9"},
        {**gpu, "name": "later", "compute_capability": "12.0", "defer": True},
    ]
    path = made(name, LOOKUP, tmp_path, {"engines": engines}, batch_size=2)
    bundle = open_bundle(path)
    cpu, built, later = bundle.manifest.engines
    assert built.build is not None
    assert later.build is not None
    assert ENCODE_IMAGE not in cpu.files
    assert set(built.files) == set(built.build.reports) == {"verify", "draft", ENCODE_IMAGE}
    assert built.files[ENCODE_IMAGE] == "images/encode_image.built.engine"
    assert later.build.sources[ENCODE_IMAGE] == TENSORRT_FILE
    assert sorted(each.name for each in (path / "images").iterdir()) == [
        "encode_image.built.engine", "encode_image.onnx", "encode_image.tensorrt.onnx", "encode_image.weights",
    ]  # fmt: skip
    rows = built.build.settings["verify"]["profile"]["media"]
    assert [shape[0] for shape in rows] == [1, 1, 2 * (bundle.manifest.prefill_chunk + 1)]
    assert {row["engine"] for row in json.loads((path / "proof.json").read_text())["images"]} == {
        "onnxruntime-cpu", "tensorrt", "tensorrt.float16",
    }  # fmt: skip
    seeing = Seeing(name, path, tmp_path)
    for text, images in PROMPTS:
        text = text.format(seeing.token)
        found = seeing.bundle.generate(text, images=list(images), max_new_tokens=NEW, adaptive=False)
        assert found.token_ids == seeing.expected(text, images)


@pytest.mark.builds(3)
@pytest.mark.parametrize(
    ("name", "word"),
    [("bart", "float16"), ("m2m_100", "int8"), ("t5", "float16"), ("t5gemma", "bfloat16"), ("whisper", "float16")],
)
def test_sources_are_encoded_by_an_engine_for_every_gpu(tmp_path, name, word):
    hears = name == "whisper"
    make_whisper(tmp_path / "target") if hears else make_model(name, tmp_path / "target")
    gpu = {"backend": "tensorrt_rtx", "precision": {"target": word}}
    keys = {
        "engines": [{**gpu, "name": f"sm{each}", "compute_capability": each} for each in CAPABILITIES],
        "drafter": LOOKUP, "cache": {"max_length": 40, "prefill_chunk": 8},
        "source": None if hears else {"max_length": 30},
    }  # fmt: skip
    path = build(sourced(tmp_path / "target", **keys), tmp_path / "bundle")
    proven = {(row["graph"], row["level"]) for row in json.loads((path / "proof.json").read_text())["graphs"]}
    assert ("encode_source", f"tensorrt.{word} against neutral") in proven
    for engine in open_bundle(path).manifest.engines:
        assert engine.build is not None
        assert set(engine.files) == {"encode_source", "verify", "draft"}
        assert all(engine.build.reports[graph]["bytes"] > 0 for graph in engine.files)
        profile = engine.build.settings["encode_source"]["profile"]
        assert profile == ({} if hears else {"source": [[1, 1], [1, 30], [1, 30]]})


def test_a_bundle_for_a_gpu_alone_has_no_second_encoder(tmp_path):
    gpu = {"backend": "tensorrt_rtx", "precision": {"target": "float16"}, "compute_capability": "8.9"}
    path = made("smolvlm", LOOKUP, tmp_path, {"engines": [gpu]})
    assert [each.name for each in (path / "images").iterdir()] == ["encode_image.tensorrt_rtx-8.9-float16.engine"]
    with pytest.raises(Exception, match=r"CUDA|cuda"):
        Bundle.open(path)
