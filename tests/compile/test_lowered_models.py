"""The lowering of whole models: which passes fire, and that nothing but the speed is changed by them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes.common import TopologicalSortPass

from speccompile import native
from speccompile.bundle.manifest import EngineEntry
from speccompile.compiler.lower import onnxruntime as lowering
from speccompile.compiler.lower.export import Exported, export_draft, export_verify
from speccompile.compiler.lower.files import engine_file, neutral_file, write_lowered, write_neutral, write_quantized
from speccompile.compiler.lower.lowering_targets import CPU, NATIVE, WeightFormat
from speccompile.compiler.lower.native.functions import add_functions
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.probe import probe
from speccompile.compiler.prove.graphs import check_same
from speccompile.compiler.prove.schedule import Schedule
from speccompile.compiler.prove.schedule_runs import Outputs, run_schedule
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.compiler.step.verify import Verify
from speccompile.contract import Graph
from speccompile.runtime.devices.onnxruntime import OnnxRuntimeEngine
from speccompile.tree import chain
from tests import zoo
from tests.compile.kernel_runs import operators

pytestmark = pytest.mark.builds(8)

SHAPE = CacheShape(1, 120, 96)
WIDTHS = [13, 1, 5, 1, 20, 2, 5]
SINGLE = [1] * sum(WIDTHS)
NUMBERS = WeightFormat("float32", None, NATIVE, "float32")


@dataclass(frozen=True)
class Lowered:
    """A model of the zoo, its neutral and its lowered graph on disk, and how often the passes fired."""

    folder: Path
    graph: Graph
    fired: dict[str, int]

    def run(self, file: str, widths: list[int]) -> Outputs:
        texts = np.random.default_rng(0).integers(0, zoo.VOCABULARY, (1, sum(widths) + 1)).tolist()
        files, precision = {self.graph.name: file}, {"target": "float32"}
        entry = EngineEntry("cpu", "onnxruntime", "cpu", files, precision, (self.graph,))
        return run_schedule(OnnxRuntimeEngine(self.folder, entry, threads=1), Schedule(texts, widths), [self.graph])

    def check(self, capfd: pytest.CaptureFixture[str]) -> Outputs:
        """Check that the lowered graph gives what the neutral one gives, without a warning of onnxruntime."""
        expected = self.run(neutral_file(self.graph), WIDTHS)
        capfd.readouterr()
        got = self.run(engine_file(self.graph, "cpu"), WIDTHS)
        assert capfd.readouterr().err == ""
        check_same(got, expected, self.graph.name, "lowered against neutral", "float32")
        return got


def lowered(name: str, folder: Path, export: Callable[[Decoder], Exported]) -> Lowered:
    zoo.save(name, folder / "model", tokenizer=False)
    exported = export(probe(load_model(folder / "model", SHAPE.max_length), SHAPE))
    write_neutral(exported.model, exported.graph, folder, "weights")
    write_quantized(exported.graph, "target", NUMBERS, folder)
    model = ir.load(folder / neutral_file(exported.graph, NUMBERS))
    return Lowered(folder, exported.graph, write_lowered(model, exported.graph, folder, "cpu", CPU))


def nodes_of_a_layer(graph: ir.Graph) -> int:
    """Return what lies between two attentions, one of the two, and the commit of a layer's rows."""
    first, second = [node for node in graph if "Attend" in operators(node)][:2]
    below = {first}
    for node in graph:  # in order
        if any(value is not None and value.producer() in below for value in node.inputs):
            below.add(node)
    needed, pending = set(), [second]
    while pending:
        node = pending.pop()
        if node in below and node not in needed:
            needed.add(node)
            pending += [made for value in node.inputs if value is not None and (made := value.producer()) is not None]
    attends = sum(operators(node).count("Attend") for node in graph)
    commits = sum(node.op_type == "TensorScatter" for node in graph)
    return len(needed) - 1 + commits // attends


COUNTED = ("rms_normalization", "layer_normalization", "rotary_embedding", "partial_rotary_embedding", "rotary_tables",
           "head_rows", "norm_kernels", "gate_kernels", "merge_reshapes", "half_tables", "fold_offsets",
           "flat_products", "gelu")  # fmt: skip


@pytest.mark.sweep("a trace each", but=["gemma3_text"])
@pytest.mark.parametrize(
    ("name", "fired"),
    [
        ("llama", [5, 0, 4, 0, 4, 2, 5, 2, 0, 0, 0, 0, 0]),
        ("gemma3_text", [25, 0, 8, 0, 8, 4, 25, 4, 0, 0, 25, 0, 0]),
        ("cohere", [3, 3, 4, 0, 4, 2, 3, 2, 0, 0, 0, 0, 0]),
        ("glm4", [9, 0, 4, 4, 4, 2, 9, 2, 0, 8, 0, 0, 0]),
        ("gpt2", [0, 0, 0, 0, 0, 2, 5, 0, 0, 0, 0, 8, 2]),
    ],
)
def test_whole_models(name, fired, tmp_path, capfd):
    model = lowered(name, tmp_path, lambda decoder: export_verify(Verify(decoder)))
    assert [model.fired[each] for each in COUNTED] == fired
    assert 2 < nodes_of_a_layer(ir.load(tmp_path / engine_file(model.graph, "cpu")).graph) <= 14
    wide, single = model.check(capfd), model.run(engine_file(model.graph, "cpu"), SINGLE)
    logits, alone = (np.concatenate([step["logits"] for step in steps[:-1]], axis=1) for steps in (wide, single))
    if native.library() is not None:
        np.testing.assert_array_equal(alone, logits)  # whatever the windows
    np.testing.assert_allclose(alone, logits, rtol=0, atol=2e-6 * np.abs(logits).max())


def test_a_whole_drafter(tmp_path, capfd):
    model = lowered("qwen3", tmp_path, lambda decoder: export_draft(FixedDrafter(DecoderReader(decoder), chain(3)), 1))
    assert [model.fired[each] for each in COUNTED] == [27, 0, 12, 0, 12, 6, 27, 6, 16, 0, 0, 0, 0]
    model.check(capfd)


@pytest.mark.sweep("every pass of a whole model; each has tests of its own, and all of them together are above")
@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_every_pass_keeps_what_the_graph_gives(name, tmp_path):
    """Apply one pass after another, and name the first that changes an output."""
    model = lowered(name, tmp_path, lambda decoder: export_verify(Verify(decoder)))
    expected = model.run(neutral_file(model.graph), WIDTHS)
    graph = ir.load(tmp_path / neutral_file(model.graph, NUMBERS))
    for index, (title, run, _) in enumerate(lowering.PASSES):
        run(graph)
        TopologicalSortPass()(graph)  # the last pass of all does, so no other need
        add_functions(graph)
        ir.save(graph, tmp_path / "graphs" / f"{index}.onnx")
        check_same(model.run(f"graphs/{index}.onnx", WIDTHS), expected, model.graph.name, title, "float32")
