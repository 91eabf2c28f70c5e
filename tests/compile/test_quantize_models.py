"""Quantized graphs of whole models: they stay near the float graph, and their tokens do not depend on the window."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from speccompile.compiler.engines import Limits, make_settings, process
from speccompile.compiler.lower import onnxruntime, static_cache
from speccompile.compiler.lower.export import Exported, export_draft, export_verify
from speccompile.compiler.lower.files import neutral_file, write_neutral
from speccompile.compiler.lower.passes.reduce_precision import reduce_precision
from speccompile.compiler.lower.quantize import Ranges, calibrate, quantize
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.compiler.step.verify import Verify
from speccompile.contract import Graph, with_cache_dtypes, with_tensorrt_states
from speccompile.runtime.devices.sessions import session_options
from speccompile.tree import chain
from tests import zoo

pytestmark = pytest.mark.builds(3)

SHAPE = CacheShape(1, 120, 96)
PROMPTS = [np.random.default_rng(n).integers(3, zoo.VOCABULARY, n).tolist() for n in (1, 9, 40)]


@dataclass(frozen=True)
class Neutral:
    """A float32 graph on disk, its contract, and the ranges of what goes into its linear layers."""

    folder: Path
    graph: Graph
    ranges: Ranges

    @property
    def path(self) -> Path:
        return self.folder / neutral_file(self.graph)


def export(name: str, folder: Path, exporter: Callable[[Decoder], Exported]) -> Neutral:
    zoo.save(name, folder / "model", tokenizer=False)
    exported = exporter(probe(load_model(folder / "model", SHAPE.max_length), SHAPE))
    path = write_neutral(exported.model, exported.graph, folder, "weights")
    return Neutral(folder, exported.graph, calibrate(path, exported.graph, PROMPTS))


@pytest.fixture(scope="module")
def verify(tmp_path_factory) -> Neutral:
    return export("llama", tmp_path_factory.mktemp("verify"), lambda decoder: export_verify(Verify(decoder)))


@pytest.fixture(scope="module")
def draft(tmp_path_factory) -> Neutral:
    return export(
        "llama_tied",
        tmp_path_factory.mktemp("draft"),
        lambda d: export_draft(FixedDrafter(DecoderReader(d), chain(3)), 1),
    )


Arrays = dict[str, np.ndarray]


def session(model: ir.Model, folder: Path) -> ort.InferenceSession:
    """Open the graph as it is written: onnxruntime must not quantize other activations, nor drop a Relu."""
    ir.save(model, folder / "model.onnx", external_data="model.weights", size_threshold_bytes=256)
    options = session_options(1)
    options.log_severity_level = 3
    return ort.InferenceSession(
        str(folder / "model.onnx"), options, ["CPUExecutionProvider"], disabled_optimizers=["ReluQuantRewrite"]
    )


def feeds(graph: Graph, tokens: list[int], length: int, states: Arrays) -> Arrays:
    """Return one window, or a path as long, of tokens behind `length` committed ones."""
    n, caches = len(tokens), [tensor for tensor in graph.inputs if tensor.role == "state"]
    found: Arrays = {tensor.name: np.zeros(tensor.concrete_shape({}), np.float32) for tensor in caches}
    values = {"window": [tokens], "n_given": [1], "n_total": [n], "length": [length], "logit_rows": range(n),
              "path": [[*tokens, tokens[-1]]], "n_path": [n], "catch_up": range(n + 1)}  # fmt: skip
    found |= {t.name: np.array(values[t.name], np.int64) for t in graph.inputs if t.role != "state"}
    return found | states


def logits(session: ort.InferenceSession, graph: Graph, tokens: list[int], widths: list[int]) -> np.ndarray:
    """Return float32 [tokens, V], fed in windows of these widths."""
    names, rows, states, length = [tensor.name for tensor in graph.outputs], [], {}, 0
    for width in widths:
        found = session.run(names, feeds(graph, tokens[length : length + width], length, states))
        results = dict(zip(names, found, strict=True))
        states = {graph.aliases[name]: value for name, value in results.items() if name in graph.aliases}
        rows.append(results["logits"][0])
        length += width
    return np.concatenate(rows)


def quantized(neutral: Neutral, word: str, form: str, folder: Path) -> ort.InferenceSession:
    model = ir.load(neutral.path)
    quantize(model, word, 32, form, neutral.ranges)
    (static_cache if form == "qdq" else onnxruntime).lower(model)
    return session(model, folder)


ERRORS = {"int4": 0.9, "int8": 0.1, "w8a8": 0.15, "fp8": 0.4}
"""Word -> standard deviation of an error, relative to that of logits: several times what trained weights have."""

FORMS = [("int4", "native"), ("int8", "native"), *((word, "qdq") for word in ERRORS)]
TOKENS = PROMPTS[-1]
WIDE, SINGLE = [20, 5, 5, 5, 5], [20, *[1] * 20]


@pytest.mark.parametrize(("word", "form"), FORMS)
def test_logits_stay_near_those_of_the_float_graph(verify, word, form, tmp_path):
    expected = logits(session(ir.load(verify.path), tmp_path), verify.graph, TOKENS, [len(TOKENS)])
    got = logits(quantized(verify, word, form, tmp_path), verify.graph, TOKENS, [len(TOKENS)])
    assert 0 < (got - expected).std() / expected.std() < ERRORS[word]


@pytest.mark.parametrize(
    ("word", "form", "tolerance"), [(*FORMS[0], 0), (*FORMS[1], 0), (*FORMS[2], 1e-5), (*FORMS[3], 1e-5)]
)
@pytest.mark.parametrize("kernels", ["", "none"])
def test_a_token_does_not_depend_on_its_window(verify, word, form, tolerance, kernels, tmp_path, monkeypatch):
    """Compare windows where activations have their own scales: a difference in the last bit could become a step."""
    monkeypatch.setenv("SPECCOMPILE_KERNELS", kernels)
    engine = quantized(verify, word, form, tmp_path)
    wide, single = (logits(engine, verify.graph, TOKENS, widths) for widths in (WIDE, SINGLE))
    np.testing.assert_allclose(single, wide, rtol=0, atol=tolerance * np.abs(wide).max())


@pytest.mark.parametrize(("word", "form"), FORMS)
def test_a_drafter_runs_in_every_form(draft, word, form, tmp_path):
    """Store every weight once, however many passes read it."""
    engine = quantized(draft, word, form, tmp_path)
    outputs = engine.run(["next_window", "next_total"], feeds(draft.graph, TOKENS, 0, {}))
    assert outputs[0][0, 0] == TOKENS[-1]
    assert outputs[1].tolist() == [4]
    floats = ir.load(draft.path).graph.initializers.values()
    stored = [value.const_value for value in ir.load(tmp_path / "model.onnx").graph.initializers.values()]
    assert sum(tensor.nbytes for tensor in stored) < 0.7 * sum(value.const_value.nbytes for value in floats)


@pytest.mark.parametrize("name", ["verify", "draft"])
def test_ranges_are_those_of_the_neutral_graph(name, tmp_path, request):
    """Found by giving every activation as an output, one prompt after the other."""
    neutral = request.getfixturevalue(name)
    model = ir.load(neutral.path)
    values = {value.name: value for node in model.graph for value in node.outputs}
    model.graph.outputs[:] = [values[activation] for activation in neutral.ranges]
    engine = session(model, tmp_path)
    found = [engine.run(None, feeds(neutral.graph, prompt, 0, {})) for prompt in PROMPTS]
    smallest, largest = (np.array([[f(a) for a in run] for run in found]) for f in (np.min, np.max))
    expected = np.stack([smallest.min(axis=0), largest.max(axis=0)], axis=1)
    np.testing.assert_allclose(list(neutral.ranges.values()), expected, rtol=1e-4, atol=1e-5)


def test_calibration_is_repeatable_and_leaves_nothing_behind(verify):
    before = sorted(verify.path.parent.iterdir())
    assert calibrate(verify.path, verify.graph, PROMPTS) == verify.ranges
    assert sorted(verify.path.parent.iterdir()) == before


def test_an_expert_that_no_prompt_reached_has_no_range(tmp_path):
    experts = export("mixtral", tmp_path, lambda decoder: export_verify(Verify(decoder)))
    ranges = calibrate(experts.path, experts.graph, PROMPTS[:1])
    reached = [np.isfinite(bounds).all() for bounds in ranges.values()]
    assert any(reached)
    assert not all(reached)
    model = ir.load(experts.path)
    report = quantize(model, "w8a8", 0, "qdq", ranges)
    assert "no prompt of the calibration reached it" in report.left.values()
    reduce_precision(model, ir.DataType.FLOAT16)
    ir.save(model, tmp_path / "model.onnx", external_data="quantized.weights")
    saved = ir.load(tmp_path / "model.onnx").graph.initializers
    scales = [value.const_value.numpy() for name, value in saved.items() if ".int8.scales" in name]
    assert len(scales) == sum(form.startswith("int8") for form in report.quantized.values())
    assert all((each > 0).all() for each in scales)


BUILDS = [("verify", "int8", "7.5"), ("verify", "int4", "8.0"), ("verify", "fp8", "8.9"), ("draft", "w8a8", "7.5"),
          ("draft", "fp8", "12.0")]  # fmt: skip


@pytest.mark.sweep("engines take longest", but=["draft-fp8"])
@pytest.mark.parametrize(("name", "word", "capability"), BUILDS)
def test_tensorrt_takes_every_word(name, word, capability, tmp_path, request):
    neutral = request.getfixturevalue(name)
    model = ir.load(neutral.path)
    quantize(model, word, 32, "qdq", neutral.ranges)
    reduce_precision(model, ir.DataType.FLOAT16)
    static_cache.lower(model)
    ir.save(model, tmp_path / "model.onnx", external_data="weights", size_threshold_bytes=256)
    graph = with_tensorrt_states(with_cache_dtypes(neutral.graph, {"target": "float16", "drafter": "float16"}))
    settings = make_settings(
        graph, backend="tensorrt_rtx", compute_capability=capability, precision={"target": word}, tokens=3,
        catch_up=2, prefill_chunk=16, max_length=64,
    )  # fmt: skip
    report = process.build(tmp_path / "model.onnx", graph, settings, tmp_path / "engine", Limits(300, 8e9))
    assert report["bytes"] > 0
