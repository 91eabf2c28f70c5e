"""The comparison of two forms of a graph: right ones agree, and what is wrong is named where it arises."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from speccompile.compiler.diagnose import compare
from speccompile.compiler.diagnose.compare import compare_graphs
from speccompile.compiler.lower import static_cache
from speccompile.compiler.lower.compose import compose_step, step_graph
from speccompile.compiler.lower.files import neutral_file, write_neutral
from speccompile.compiler.prove.schedule import Schedule
from speccompile.contract import Graph
from speccompile.errors import ProofError
from tests import zoo
from tests.compile.test_masked import Case, draft, export_case, lookup, verify

pytestmark = pytest.mark.builds(2)

WIDTHS = [13, 1, 5, 2]


def script(batch: int) -> Schedule:
    texts = np.random.default_rng(1).integers(0, zoo.VOCABULARY, (batch, sum(WIDTHS) + 1)).tolist()
    return Schedule(texts, WIDTHS)


def step(folder: Path) -> Case:
    """Return `verify` and `draft` of one model as a fused step."""
    zoo.save("llama", folder / "model", tokenizer=False)
    graphs, models = [], []
    for export, weights in ((verify(1), "target.weights"), (draft(1), "drafter.weights")):
        exported = export(folder / "model")
        graphs.append(exported.graph)
        models.append(ir.load(write_neutral(exported.model, exported.graph, folder, weights)))
    graph = step_graph(*graphs)
    ir.save(compose_step(*models, graph), folder / neutral_file(graph))
    return Case(folder, graph)


CASES: dict[str, Callable[[Path], Case]] = {
    "verify": lambda folder: export_case("llama", folder, verify(2)),
    "draft": lambda folder: export_case("llama_tied", folder, draft(2)),
    "prompt lookup": lambda folder: export_case("llama", folder, lookup(3)),
    "step": step,
}


@pytest.fixture(scope="module")
def case(tmp_path_factory) -> Callable[[str], Case]:
    made: dict[str, Case] = {}

    def get(name: str) -> Case:
        if name not in made:
            made[name] = CASES[name](tmp_path_factory.mktemp("case"))
        return made[name]

    return get


def check(made: Case, candidate: Path, *, tolerance: float = 1e-5, exact: bool = True):
    reference, batch = made.folder / neutral_file(made.graph), int(made.graph.inputs[0].shape[0])
    return compare_graphs(
        reference, candidate, made.graph, script(batch), level="lowered against neutral", tolerance=tolerance,
        exact=exact,
    )  # fmt: skip


def expected_counts(graph: Graph) -> dict[str, int]:
    """Count floats and integers of the rows that are fed, window by window, and of the used part of every state."""
    counts = {"values": 0, "tokens": 0}
    batch = int(graph.inputs[0].shape[0])
    for width, fed, committed in script(batch).windows():
        widths = {"window": width, "logit_rows": width, "catch_up": width + 1}
        for tensor in graph.outputs:
            kind = "values" if tensor.dtype == "float32" else "tokens"
            for row in range(batch):
                shape = list(tensor.concrete_shape(widths))[1:]
                if tensor.role == "state":
                    shape[-2 if len(shape) == 3 else -1] = committed[row] + fed[row]
                elif not fed[row]:
                    continue
                counts[kind] += int(np.prod(shape))
    return counts


@pytest.mark.sweep("a trace or two each", but=["verify", "prompt lookup"])
@pytest.mark.parametrize("name", CASES)
def test_lowered_graphs_agree(case, name, capfd):
    made = case(name)
    candidate = made.folder / made.write("float32")
    capfd.readouterr()
    counts = expected_counts(made.graph)
    assert check(made, candidate) == {
        "graph": made.graph.name, "level": "lowered against neutral", "tolerance": 1e-5, **counts,
        "same_tokens": counts["tokens"],
    }  # fmt: skip
    assert capfd.readouterr() == ("", "")


def test_half_precision_agrees_as_far_as_it_can(case):
    made = case("verify")
    candidate = made.folder / made.write("float16")
    assert onnx.load(candidate, load_external_data=False).graph.input[-1].type.tensor_type.elem_type == 10, "FLOAT16"
    row = check(made, candidate, tolerance=2e-2, exact=False)
    assert row["same_tokens"] > 0.8 * row["tokens"] > 0
    with pytest.raises(ProofError, match=r"differs by .*, more than 1e-06 of the largest value"):
        check(made, candidate, tolerance=1e-6, exact=False)


def changed(made: Case, change: Callable[[onnx.ModelProto], None]) -> Path:
    """Return the masked graph with a defect."""
    model = onnx.load(made.folder / made.write("float32"))
    change(model)
    path = made.folder / "changed.onnx"
    onnx.save(model, path)
    return path


def through(model: onnx.ModelProto, output: str, op: str, constant: np.ndarray) -> None:
    """Put `op` with a constant between an output and what makes it."""
    node = next(each for each in model.graph.node if output in each.output)
    node.output[list(node.output).index(output)] = "right"
    for each in model.graph.node:
        each.input[:] = ["right" if name == output else name for name in each.input]
    model.graph.initializer.append(numpy_helper.from_array(constant, "wrong"))
    model.graph.node.append(helper.make_node(op, ["right", "wrong"], [output]))


def test_other_logits_are_named(case, capfd):
    defect = changed(case("verify"), lambda model: through(model, "logits", "Mul", np.float32(1.01)))
    where = r"^verify, lowered against neutral, logits, row 0 after window 0: differs by 0\.\d+, more than 1e-05 of the"
    with pytest.raises(ProofError, match=where) as raised:
        check(case("verify"), defect)
    assert "report it" in raised.value.hint
    del raised
    gc.collect()
    assert capfd.readouterr().out == "", "a runner that is left open would tell so"


def test_nan_is_a_difference(case):
    defect = changed(case("verify"), lambda model: through(model, "logits", "Mul", np.float32(np.nan)))
    with pytest.raises(ProofError, match="logits, row 0 after window 0: differs by nan"):
        check(case("verify"), defect)


def test_another_cache_is_named(case):
    shift = np.zeros((1, 1, 128, 1), np.float32)
    shift[:, :, 17] = 1  # a row of the third window
    defect = changed(case("verify"), lambda model: through(model, "target.value.1.out", "Add", shift))
    with pytest.raises(ProofError, match=r"target\.value\.1\.out, row 0 after window 2: differs by 1, more than 1e-05"):
        check(case("verify"), defect)


def test_what_lies_behind_the_committed_rows_does_not_count(case):
    shift = np.zeros((1, 1, 128, 1), np.float32)
    shift[:, :, sum(WIDTHS) :] = 1
    defect = changed(case("verify"), lambda model: through(model, "target.value.1.out", "Add", shift))
    assert check(case("verify"), defect)["values"] == expected_counts(case("verify").graph)["values"]


def test_other_integers_are_named_or_counted(case):
    defect = changed(case("verify"), lambda model: through(model, "n_path", "Add", np.array([1])))
    with pytest.raises(ProofError, match="n_path, row 0 after window 0: other integers than expected"):
        check(case("verify"), defect)
    row = check(case("verify"), defect, exact=False)
    assert row["same_tokens"] == row["tokens"] - 2 * len(WIDTHS) + 1  # the second row sits out a window


def test_another_shape_is_named(case):
    twice = np.array([1, 1, 2])
    defect = changed(case("verify"), lambda model: through(model, "logits", "Tile", twice))
    model = onnx.load(defect)
    model.graph.output[2].type.tensor_type.ClearField("shape")
    onnx.save(model, defect)
    with pytest.raises(ProofError, match="logits, row 0 after window 0: another shape than expected"):
        check(case("verify"), defect)


def test_both_start_every_window_from_the_same_state(case):
    """Damage one window: the next one is equal, where a run over its own caches would carry the defect on."""
    made = case("verify")
    rows = np.zeros((1, 1, 128, 1), np.float32)
    rows[:, :, 3] = 9e-5  # within the tolerance when it is written; it would add up
    defect = changed(made, lambda model: through(model, "target.value.1.out", "Add", rows))
    assert check(made, defect, tolerance=1e-4)["graph"] == "verify"
    with pytest.raises(ProofError):
        check(made, defect, tolerance=1e-6)


def test_one_graph_is_open_at_a_time(case, monkeypatch):
    """Weights are held once."""
    opened: list[weakref.ref] = []

    class Session(ort.InferenceSession):
        def __init__(self, *arguments, **options):
            gc.collect()
            assert not [each for each in opened if each() is not None], "the first one is still open"
            super().__init__(*arguments, **options)
            opened.append(weakref.ref(self))

    monkeypatch.setattr(compare.ort, "InferenceSession", Session)
    made = case("verify")
    check(made, made.folder / made.write("float32"))
    assert len(opened) == 2


def test_the_masked_lowering_is_what_is_compared(case):
    """Compare the masked lowering, not the neutral graph with itself."""
    made = case("verify")
    model = ir.load(made.folder / made.write("float32"))
    assert {node.domain for node in model.graph} == {""}
    assert static_cache.lower(model)["attend_masked"] == 0
