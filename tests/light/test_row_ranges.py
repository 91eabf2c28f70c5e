"""Runs over some rows of a batch: they read and write the slices of these rows in place, and no others."""

from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
import pytest

from speccompile.bundle.buffers import buffers
from speccompile.contract import (
    BATCH,
    OUT_OF_PLACE_PREFIX,
    Graph,
    Tensor,
    supports_batch_slices,
    with_fixed_batch,
)
from speccompile.errors import EngineError
from speccompile.runtime.devices.onnxruntime import OnnxRuntimeEngine
from tests.light.bundle_example import cpu_entry
from tests.light.fake_cuda import FakeCuda
from tests.light.test_kept import Adding

ROWS, SIZE = 3, 4

MODEL = """
<ir_version: 10, opset_import: ["" : 24]>
verify (int64[batch, window] window, int64[batch] length, int64[batch] batch_rows, float[batch, 1, 4, 2] cache,
        float[batch, 1, 1, 2] state, float[2] table)
    => (int64[batch, window] path, float[batch, window] features, float[batch, window] logits,
        float[batch, 1, 4, 2] cache_out, float[batch, 1, 1, 2] state_out, float[2] table_out)
{
    one = Constant <value_ints = [1]> ()
    more = Constant <value_float = 1.0> ()
    number = Unsqueeze (batch_rows, one)
    doubled = Add (window, window)
    path = Add (doubled, number)
    features = Cast <to = 1> (path)
    logits = Neg (features)
    cache_out = TensorScatter <axis = 2> (cache, state, length)
    state_out = Add (state, more)
    table_out = Add (table, more)
}
"""


def graph() -> Graph:
    def tensor(name: str, role: str, *shape: int | str, dtype: str = "int64", buffer: str = "") -> Tensor:
        return Tensor(name, dtype, shape, buffer or name.removesuffix("_out"), role)

    cache, state = (BATCH, 1, SIZE, 2), (BATCH, 1, 1, 2)
    read = (
        tensor("window", "io", BATCH, "window"), tensor("length", "io", BATCH), tensor("batch_rows", "index", BATCH),
        tensor("cache", "state", *cache, dtype="float32"), tensor("state", "state", *state, dtype="float32"),
        tensor("table", "state", 2, dtype="float32"),
    )  # fmt: skip
    written = (
        tensor("path", "io", BATCH, "window"), tensor("features", "link", BATCH, "window", dtype="float32"),
        tensor("logits", "optional", BATCH, "window", dtype="float32"),
        tensor("cache_out", "state", *cache, dtype="float32"),
        tensor("state_out", "state", *state, dtype="float32", buffer=f"{OUT_OF_PLACE_PREFIX}state"),
        tensor("table_out", "state", 2, dtype="float32"),
    )  # fmt: skip
    return Graph("verify", read, written)


@pytest.fixture
def engine(tmp_path) -> OnnxRuntimeEngine:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "verify.onnx")
    entry = cpu_entry((graph(),), {"verify": "verify.onnx"}, "cpu")
    return OnnxRuntimeEngine(tmp_path, entry, threads=1, batch_size=ROWS)


def filled(engine: OnnxRuntimeEngine) -> dict[str, np.ndarray]:
    """Return every buffer with a slice for each row, full of numbers, and copies of them."""
    random, widths = np.random.default_rng(0), {BATCH: ROWS, "window": 2}
    for buffer in buffers([graph()]):
        if buffer.role in ("io", "state") and buffer.name != "length":
            tensor = Tensor(buffer.name, buffer.dtype, buffer.shape, buffer.name, buffer.role)
            array = engine.host_view(buffer.name, tensor.concrete_shape(widths))
            array[:] = random.integers(5, 99, array.shape)
    engine.host_view("length", (ROWS,))[:] = [1, 3, 0]
    return {name: array.copy() for (name, _), array in engine._arrays.items()}


@pytest.mark.parametrize("rows", [range(3), range(1), range(2), range(1, 2), range(1, 3), range(2, 3), None], ids=str)
def test_a_run_reads_and_writes_the_lines_of_its_rows_alone(engine, rows):
    before = filled(engine)
    engine.bind("verify", {"window": 2}, rows=rows)()
    own = list(rows if rows is not None else range(ROWS))
    expected = {name: array.copy() for name, array in before.items()}
    expected["path"][own] = 2 * before["window"][own] + np.array(own)[:, None]
    for row in own:
        expected["cache"][row, :, before["length"][row]] = before["state"][row, :, 0]
    expected["state"][own] += 1
    expected[f"{OUT_OF_PLACE_PREFIX}state"][own] = expected["state"][own]
    expected["table"] += 1
    for name, array in expected.items():
        np.testing.assert_array_equal(engine.host_view(name, array.shape), array, err_msg=name)


def test_scratch_has_as_many_lines_as_the_run_has_rows(engine):
    before = filled(engine)
    for rows in (range(1, 3), range(2)):
        engine.bind("verify", {"window": 2}, ("logits",), rows=rows)()
        path = 2 * before["window"][rows.start : rows.stop] + np.array(rows)[:, None]
        np.testing.assert_array_equal(engine.host_view("features", (2, 2)), path)
        np.testing.assert_array_equal(engine.host_view("logits", (2, 2)), -path)


def test_scratch_of_many_widths_takes_no_more_memory_than_a_few(engine):
    """Run a prompt's last part at every width: memory for each would be 200 times that of the widest here."""
    widths = range(1, 401)
    for width in widths:
        engine.host_view("length", (ROWS,))[:], engine.host_view("window", (ROWS, width))[:] = 0, width
        engine.bind("verify", {"window": width}, ("logits",))()
        expected = np.broadcast_to(2 * width + np.arange(ROWS)[:, None], (ROWS, width))
        np.testing.assert_array_equal(engine.host_view("features", (ROWS, width)), expected)
        np.testing.assert_array_equal(engine.host_view("logits", (ROWS, width)), -expected)
    places = {engine.host_view("features", (ROWS, width)).ctypes.data for width in widths}
    assert len(places) <= np.ceil(np.log2(ROWS * 400 * 4)) + 1


def test_runs_over_other_rows_are_bound_to_the_same_memory(engine):
    filled(engine)
    runs = [engine.bind("verify", {"window": 2}, rows=range(row, row + 1)) for row in range(ROWS)]
    whole = engine.bind("verify", {"window": 2})
    before = engine.host_view("state", (ROWS, 1, 1, 2)).copy()
    for run in (*runs, whole, runs[1]):
        run()
    np.testing.assert_array_equal(
        engine.host_view("state", (ROWS, 1, 1, 2))[:, 0, 0, 0] - before[:, 0, 0, 0], [2, 3, 2]
    )
    assert engine.address("cache") == engine.host_view("cache", (ROWS, 1, SIZE, 2)).ctypes.data


@pytest.mark.parametrize("rows", [range(0), range(2, 1), range(2, 4), range(-1, 1), range(0, 3, 2)], ids=str)
def test_rows_that_are_none_of_the_batch_are_refused(engine, rows):
    with pytest.raises(EngineError, match="expected a range of one or more of the 3 batch slots") as error:
        engine.bind("verify", {"window": 2}, rows=rows)
    assert "cache.batch_size" in str(error.value.hint)


def test_a_graph_with_the_number_has_no_ranges(tmp_path):
    fixed = with_fixed_batch(graph(), ROWS)
    assert supports_batch_slices([graph()])
    assert not supports_batch_slices([fixed])
    assert with_fixed_batch(fixed, 5) == fixed
    assert {tensor.shape[0] for tensor in (*fixed.inputs, *fixed.outputs)} == {ROWS, 2}
    assert with_fixed_batch(replace(graph(), outputs=()), ROWS).inputs[0].shape == (ROWS, "window")


def test_an_engine_without_ranges_says_so(tmp_path):
    state = Tensor("length", "int64", (ROWS,), "length", "state")
    device = Adding(FakeCuda(), Graph("draft", (state,), (replace(state, name="length.out"),)))
    assert not device.supports_batch_slices
    device.bind("draft", {}, rows=range(ROWS))
    with pytest.raises(EngineError, match="this engine runs all 3 batch slots at once"):
        device.bind("draft", {}, rows=range(1))


def test_on_a_device_too_scratch_of_many_widths_takes_no_more_memory_than_a_few():
    def tensor(name: str, role: str, *shape: int | str) -> Tensor:
        return Tensor(name, "float32", shape, name, role)

    length = Tensor("length", "int64", (1,), "length", "io")
    described = Graph("verify", (length,), (tensor("features", "link", "window", 9), tensor("logits", "optional", 1)))
    cuda = FakeCuda()
    engine = Adding(cuda, described)
    for width in range(1, 401):
        engine.bind("verify", {"window": width}, ("logits",))
    assert sum(memory.nbytes for memory in cuda.device.values()) < 4 * (400 * 9 * 4)
    assert engine.host_view("features", (7, 9)).shape == (7, 9)
    assert engine.host_view("logits", (1,)).shape == (1,)
