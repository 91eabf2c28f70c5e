"""Quality behind pictures: measured by the formulas, and told by `bench` and `compare` as the build has measured it."""

import json
from dataclasses import asdict, replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch

from speccompile.bundle.image_quality import EncoderLoss, ImageQuality, image_quality
from speccompile.bundle.prompts import Question
from speccompile.compiler.build import image_quality as measured
from speccompile.measure.bench import run_bench, write_table
from speccompile.measure.bench.roofline import Bandwidth
from speccompile.measure.bench.weights import WeightReads
from speccompile.measure.compare import table
from speccompile.measure.compare.builds import _job
from speccompile.measure.compare.passes import MeasuredPass, PassRequest, run_pass
from tests.light.compare_example import Workshop, read_job, run
from tests.light.fake_bundle import toy_manifest, write_toy_bundle
from tests.light.toy_engine import ToyEngine

QUALITY = ImageQuality(40, 0.975, 0.0123, EncoderLoss("int8", 0.02, 1.0, 0.004))
LINE = (
    "behind synthetic pictures: the same best token as transformers for 97.50 % of 40 tokens, KL divergence 0.012300 "
    "nats; by the encoder in int8 alone 0.004000 nats"
)
PROOF = {
    "proven": True,
    "images": [
        {"engine": "onnxruntime-cpu", "engines": [], "quality": {"tokens": 1, "same_argmax": 0, "kl_divergence": 9}},
        {"engine": "cpu.int8", "engines": ["onnxruntime-cpu"], "encoder": asdict(QUALITY.encoder),
         "quality": {"tokens": 40, "same_argmax": 0.975, "kl_divergence": 0.0123}},
    ],
}  # fmt: skip


@pytest.fixture
def plain(tmp_path, monkeypatch):
    """Return the folder of a toy bundle whose build has measured the quality behind pictures."""
    monkeypatch.setattr("speccompile.measure.bench.roofline.measure_bandwidth", lambda threads: Bandwidth(1e9, 1, 1))
    monkeypatch.setattr("speccompile.measure.bench.roofline.weight_reads", lambda _: WeightReads(1000, 10))
    engine = lambda *_, **__: ToyEngine(toy_manifest(speculative=False))  # noqa: E731
    with patch("speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", engine):
        yield write_toy_bundle(tmp_path / "plain", speculative=False, proof=PROOF)


def test_the_loss_is_that_of_the_logits(monkeypatch):
    random = np.random.default_rng(0)
    own, ids = random.normal(size=(7, 11)).astype(np.float32), [1, 2, 3, 4, 5, 6, 7]
    found = own + random.normal(size=own.shape).astype(np.float32) / 2
    parts = [(0, found[:4]), (3, found[3:4]), (5, found[5:6]), (6, found[6:])]  # the fifth has no logits
    monkeypatch.setattr(measured, "read_chunks", lambda *_: iter(parts))
    bundle = SimpleNamespace(manifest=SimpleNamespace(tree="dynamic", graphs=(), prefill_chunk=4))
    told = measured.measure_quality(bundle, SimpleNamespace(ids=ids), own)
    places = [0, 1, 2, 3, 5]  # nothing is behind the last one
    p, q = (torch.tensor(each[places]).double().log_softmax(1) for each in (own, found))
    wanted = torch.nn.functional.kl_div(q, p, reduction="batchmean", log_target=True)
    assert told["tokens"] == 5
    assert told["kl_divergence"] == pytest.approx(float(wanted), abs=1e-6)
    assert told["same_argmax"] == float((own[places].argmax(1) == found[places].argmax(1)).mean())


@pytest.mark.parametrize("rows", [[], [{"engines": ["onnxruntime-cpu"]}], [{"engine": "onnxruntime-cpu"}]])
def test_a_bundle_without_the_figures_has_none(rows):
    assert image_quality({"proven": False, "images": rows}, "onnxruntime-cpu") is None
    assert image_quality({"proven": False}, "onnxruntime-cpu") is None


def test_bench_tells_what_the_build_measured(plain):
    report = run_bench(plain, [Question(("ab",))], max_new_tokens=4, repeats=1)
    assert report.to_json()["pictures"] == asdict(QUALITY)
    assert LINE in write_table(report).splitlines()
    encoded = replace(report, pictures=replace(QUALITY, encoder=None))
    assert LINE.partition(";")[0] in write_table(encoded).splitlines()
    assert "pictures" not in write_table(replace(report, pictures=None))


def test_a_pass_of_a_comparison_keeps_it(plain):
    options = {"max_new_tokens": 4, "adaptive": False, "seed": None}
    found = run_pass(PassRequest(str(plain), None, "onnxruntime-cpu", None, (Question(("ab",)),), 1, options))
    assert found.pictures == QUALITY
    assert MeasuredPass.from_json(json.loads(json.dumps(found.to_json())), "x") == found


class Seeing(Workshop):
    """Workshop of a target that sees."""

    def measure(self, job):
        found = super().measure(job)
        return replace(found, pictures=QUALITY if found.manifest.tokens == 0 else None)


def test_compare_measures_it_once_and_tells_it(make_recipe):
    job = read_job(make_recipe())
    asked = [_job(job.source, each, job.store.folder, use_build_cache=True)["measure_pictures"] for each in job.methods]
    assert asked == [True, False, False]
    found = run(job, Seeing())
    assert found.to_json()["pictures"] == asdict(QUALITY)
    assert LINE in table.write_table(found).splitlines()
