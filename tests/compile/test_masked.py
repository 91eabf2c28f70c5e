"""The lowering for TensorRT and CUDA: it means what the neutral graph means, and TensorRT-RTX takes it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch

from speccompile.bundle.manifest import EngineEntry
from speccompile.compiler.engines import Limits, make_settings, process
from speccompile.compiler.lower import neutral, static_cache
from speccompile.compiler.lower.export import Exported, export_draft, export_verify
from speccompile.compiler.lower.files import neutral_file, write_neutral
from speccompile.compiler.lower.passes.fix_batch import fix_batch
from speccompile.compiler.lower.passes.reduce_precision import reduce_precision
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.probe import probe
from speccompile.compiler.prove.schedule import Schedule
from speccompile.compiler.prove.schedule_runs import Outputs, run_schedule
from speccompile.compiler.step import ops
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.compiler.step.verify import Verify
from speccompile.contract import FLOAT_CACHE, FP8, Graph, with_cache_dtypes, with_fixed_batch, with_tensorrt_states
from speccompile.drafters.prompt_lookup.drafter import PromptLookup
from speccompile.runtime.devices.onnxruntime import OnnxRuntimeEngine
from speccompile.tree import chain
from tests import zoo
from tests.compile.suffix_drafters import suffix_chain
from tests.compile.test_neutral import NAMES, attend_inputs, attended, context_shape

pytestmark = pytest.mark.builds(2)

HEADER = f'<ir_version: 10, opset_import: ["" : {neutral.OPSET}, "{neutral.DOMAIN}" : 1]>'
TYPES = {torch.float32: "float", torch.float16: "float16", torch.int64: "int64"}


def attend_model(
    inputs: dict[str, torch.Tensor], softcap: float, window: int, *, commits: bool, op: str = "Attend"
) -> onnx.ModelProto:
    """Return one Attend, and the rows committed as they are or not at all."""
    given = ", ".join(f"{TYPES[value.dtype]}{list(value.shape)} {name}" for name, value in inputs.items())
    kind = TYPES[inputs["query"].dtype]
    outputs = [f"{kind}{context_shape(inputs, op)} context"]
    settings = f"scale = 0.3, softcap = {softcap}, window = {window}, ring = 0"
    body = f"""context = speccompile.{op}<{settings}>({", ".join(inputs)})"""
    for part in ("key", "value") if commits else ():
        outputs.append(f"{kind}{list(inputs[f'{part}_cache'].shape)} {part}s")
        body += f'\n{part}s = speccompile.Commit<axis = 2, mode = "linear">({part}_cache, {part}_rows, length)'
    model = onnx.parser.parse_model(f"{HEADER} graph ({given}) => ({', '.join(outputs)}) {{ {body} }}")
    model.functions.extend(neutral.functions())
    return onnx.shape_inference.infer_shapes(model)


def lowered(model: onnx.ModelProto) -> onnx.ModelProto:
    rewritten = ir.from_proto(model)
    static_cache.lower(rewritten)
    onnx.checker.check_model(after := ir.to_proto(rewritten))
    return after


def run(model: onnx.ModelProto, inputs: dict[str, torch.Tensor]) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {name: value.numpy() for name, value in inputs.items()})


def narrowed(inputs: dict[str, torch.Tensor], tokens: int) -> dict[str, torch.Tensor]:
    """Return the last queries alone."""
    cut = {"query": inputs["query"][:, :, -tokens:], "positions": inputs["positions"][:, -tokens:]}
    return inputs | {name: value.contiguous() for name, value in cut.items()} | {"bias": inputs["bias"][:, :, -tokens:]}


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("lengths", [[7], [0], [4, 7], [0, 3]])
@pytest.mark.parametrize(("softcap", "window", "tokens"), [(0.0, 0, 3), (3.0, 0, 3), (0.0, 4, 3), (3.0, 4, 1)])
@pytest.mark.parametrize("op", neutral.ATTENDS)
def test_attend_masked_is_what_attend_means(commits, lengths, softcap, window, tokens, op):
    inputs = narrowed(attend_inputs(lengths, op), tokens)
    expected = attended(inputs, op, 0.3, softcap, window).numpy()
    context, *caches = run(lowered(attend_model(inputs, softcap, window, commits=commits, op=op)), inputs)
    np.testing.assert_allclose(context, expected, atol=2e-6)
    for part, cache in zip(("key", "value"), caches, strict=False):
        updated = ops.commit(inputs[f"{part}_cache"], inputs[f"{part}_rows"], inputs["length"], 2)
        np.testing.assert_array_equal(cache, updated.numpy())


@pytest.mark.parametrize(("commits", "concats"), [(False, 4), (True, 1)])
def test_no_cache_is_copied_where_its_rows_are_committed(commits, concats):
    """Find no Where but the mask of the two query heads that share a key head; before the pass, keys, values and their
    mask."""
    found = Counter(n.op_type for n in lowered(attend_model(attend_inputs([7]), 0.0, 0, commits=commits)).graph.node)
    assert (found["Concat"], found["TensorScatter"]) == (concats, 2 * commits)


@pytest.mark.parametrize("commits", [False, True])
def test_what_lies_behind_the_length_is_never_seen(commits):
    inputs = attend_inputs([4, 6])
    model = lowered(attend_model(inputs, 0.0, 0, commits=commits))
    before = run(model, inputs)[0]
    for name in ("key_cache", "value_cache"):
        for row, length in enumerate(inputs["length"]):
            inputs[name][row, :, length:] = 1e6
    np.testing.assert_array_equal(run(model, inputs)[0], before)


def test_the_softmax_of_a_float16_graph_is_float32():
    """Scores of 4e4 to 6e4, whose sum with a hidden row's bias float16 does not hold."""
    inputs = {
        name: v.half() if v.is_floating_point() and name != "bias" else v for name, v in attend_inputs([7]).items()
    }
    inputs["query"] *= 0
    inputs["query"][..., 0], inputs["key_rows"][..., 0], inputs["key_cache"][..., 0] = 330, 500, 400
    model = lowered(attend_model(inputs, 0.0, 0, commits=True))
    kinds = {
        value.name: value.type.tensor_type.elem_type
        for value in onnx.shape_inference.infer_shapes(model).graph.value_info
    }
    softmax = next(node for node in model.graph.node if node.op_type == "Softmax")
    assert kinds[softmax.input[0]] == onnx.TensorProto.FLOAT
    wide = {name: value.float() if value.is_floating_point() else value for name, value in inputs.items()}
    expected = ops.attend(*(wide[name] for name in NAMES), 0.3, 0.0, 0).numpy()
    np.testing.assert_allclose(run(model, inputs)[0], expected, atol=2e-3)


WIDTHS = [13, 1, 5, 1, 20, 2, 5]
SINGLE = [1] * sum(WIDTHS)
LENGTH, ROWS = 96, 128


@dataclass(frozen=True)
class Case:
    """A neutral graph on disk, and the graphs made of it."""

    folder: Path
    graph: Graph

    def write(self, dtype: str) -> str:
        """Write the lowered graph of a precision; returns its file."""
        model = ir.load(self.folder / neutral_file(self.graph))
        if dtype != "float32":
            reduce_precision(model, ir.DataType[dtype.upper()])
        static_cache.lower(model)
        file = f"graphs/{self.graph.name}.{dtype}.onnx"
        ir.save(model, self.folder / file, external_data=f"{dtype}.weights", size_threshold_bytes=1024)
        return file

    def drive(self, file: str, graph: Graph, widths: list[int]) -> Outputs:
        batch = graph.inputs[0].shape[0]
        texts = np.random.default_rng(0).integers(0, zoo.VOCABULARY, (batch, sum(widths) + 1)).tolist()
        entry = EngineEntry("cpu", "onnxruntime", "cpu", {graph.name: file}, {}, (graph,))
        return run_schedule(OnnxRuntimeEngine(self.folder, entry, threads=1), Schedule(texts, widths), [graph])


def lowered_graph(graph: Graph, dtype: str) -> Graph:
    """Return the contract of a masked graph."""
    return with_tensorrt_states(with_cache_dtypes(graph, {"target": dtype, "drafter": dtype}))


def export_case(name: str, folder: Path, export: Callable[[Path], Exported]) -> Case:
    zoo.save(name, folder / "model", tokenizer=False)
    exported = export(folder / "model")
    write_neutral(exported.model, exported.graph, folder, "weights")
    return Case(folder, exported.graph)


def fixed(exported: Exported, batch: int) -> Exported:
    """Return it as engines on a GPU get it."""
    fix_batch(exported.model, batch)
    return replace(exported, graph=with_fixed_batch(exported.graph, batch))


def verify(batch: int, dtype: str = FLOAT_CACHE) -> Callable[[Path], Exported]:
    """dtype: of the caches."""

    def export(path: Path) -> Exported:
        shape = CacheShape(batch, ROWS, LENGTH)
        decoder = probe(load_model(path, LENGTH), shape)  # compared with transformers over float caches
        decoder.shape = replace(shape, dtype=dtype)
        return fixed(export_verify(Verify(decoder)), batch)

    return export


def draft(batch: int) -> Callable[[Path], Exported]:
    shape = CacheShape(batch, ROWS, LENGTH)
    return lambda path: fixed(
        export_draft(FixedDrafter(DecoderReader(probe(load_model(path, LENGTH), shape)), chain(2)), batch), batch
    )


def lookup(batch: int) -> Callable[[Path], Exported]:
    return lambda path: fixed(export_draft(PromptLookup(chain(4), 3, batch, ROWS), batch), batch)


def suffix(batch: int) -> Callable[[Path], Exported]:
    drafter = suffix_chain(4, batch=batch, rows=ROWS, lane=64)
    return lambda path: fixed(export_draft(drafter, batch), batch)


CASES: dict[str, tuple[str, Callable[[Path], Exported]]] = {
    "soft caps and windows": ("gemma2", verify(1)),
    "ragged rows": ("mistral", verify(2)),
    "experts": ("mixtral", verify(1)),
    "sinks": ("gpt_oss", verify(2)),
    "latent rows": ("deepseek_v3", verify(1)),
    "layer norms": ("gpt2", verify(1)),
    "a delta rule, ragged rows": ("qwen3_5_text", verify(2)),
    "a scan": ("granitemoehybrid", verify(1)),
    "convolutions": ("lfm2", verify(1)),
    "a drafter": ("llama_tied", draft(2)),
    "prompt lookup": ("llama", lookup(1)),
    "prompt lookup, ragged rows": ("llama", lookup(3)),
    "suffixes and a ring, ragged rows": ("llama", suffix(2)),
}


BYTES = {"int8 caches": ("mistral", verify(2, "int8")), "fp8 caches": ("mistral", verify(1, "fp8"))}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    made: dict[str, Case] = {}

    def get(name: str) -> Case:
        if name not in made:
            model, export = (CASES | BYTES)[name]
            made[name] = export_case(model, tmp_path_factory.mktemp("case"), export)
        return made[name]

    return get


def assert_same(got: Outputs, expected: Outputs, tolerance: float) -> None:
    """Compare integers exactly, floats within a part of the largest value, tokens that became floats as tokens."""
    for a, b in zip(got, expected, strict=True):
        assert a.keys() == b.keys()
        for name, value in b.items():
            if value.dtype.kind == "i":
                np.testing.assert_array_equal(a[name].reshape(value.shape), value)
            else:
                difference = np.abs(a[name].astype(np.float32) - value).max(initial=0)
                assert difference <= tolerance * max(1, np.abs(value).max(initial=0)), name


@pytest.mark.sweep("a trace each; every kind of attention is lowered above", but=["delta"])
@pytest.mark.parametrize("name", CASES)
def test_whole_graphs_give_what_the_neutral_ones_give(case, name, capfd):
    made = case(name)
    expected = made.drive(neutral_file(made.graph), made.graph, WIDTHS)
    file = made.write("float32")
    capfd.readouterr()
    got = made.drive(file, lowered_graph(made.graph, "float32"), WIDTHS)
    assert capfd.readouterr().err == ""
    assert_same(got, expected, 1e-5)


@pytest.mark.sweep("a trace of four layers", but=["layer norms"])
@pytest.mark.parametrize("name", ["layer norms", "soft caps and windows"])
def test_a_token_does_not_depend_on_its_window(case, name):
    made = case(name)
    file, graph = made.write("float32"), made.graph
    wide, single = made.drive(file, graph, WIDTHS), made.drive(file, graph, SINGLE)
    logits, alone = (np.concatenate([step["logits"] for step in steps[:-1]], axis=1) for steps in (wide, single))
    np.testing.assert_allclose(alone, logits, rtol=0, atol=1e-6 * np.abs(logits).max())


LIMITS = Limits(seconds=300, memory=8e9)


@pytest.mark.sweep("engines take longest", but=["delta"])
@pytest.mark.parametrize(
    ("name", "dtype", "capability"),
    [
        *((name, "float16", "8.9") for name in CASES),
        ("soft caps and windows", "float32", "12.0"),
        ("ragged rows", "bfloat16", "8.6"),
        ("a drafter", "float32", "8.6"),
        *(("int8 caches", "float16", capability) for capability in ("8.6", "8.9", "12.0")),
        *(("fp8 caches", "float16", capability) for capability in ("8.9", "12.0")),
    ],
)
def test_tensorrt_takes_whole_graphs(case, name, dtype, capability, tmp_path):
    """Keep every state in place but byte caches, which the builder checks against the contract."""
    made = case(name)
    file, graph = made.write(dtype), lowered_graph(made.graph, FP8 if name == "fp8 caches" else dtype)
    settings = make_settings(
        graph, backend="tensorrt_rtx", compute_capability=capability, precision={"target": dtype}, tokens=2,
        catch_up=2, prefill_chunk=16, max_length=64,
    )  # fmt: skip
    report = process.build(made.folder / file, graph, settings, tmp_path / "engine", LIMITS)
    assert report["aliases"] == graph.aliases
    assert report["parsed_layers"].get("KV_CACHE_UPDATE", 0) == len(graph.aliases)
    assert (tmp_path / "engine").stat().st_size == report["bytes"]
