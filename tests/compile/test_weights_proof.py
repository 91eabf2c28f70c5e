"""The proof of weights in other numbers: right ones pass in every form, and what a quantizer gets wrong is named."""

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from speccompile.compiler.lower.passes import reduce_precision as reduction
from speccompile.compiler.lower.passes.reduce_precision import reduce_precision
from speccompile.compiler.lower.quantize import numpy_quantizers, quantize
from speccompile.compiler.prove import weights
from speccompile.compiler.prove.weights import check_weights
from speccompile.errors import ProofError
from tests.compile.test_quantize import LAYERS, RANGES, SIZES, experts, graph, normal


def outliers() -> onnx.ModelProto:
    """Return a column of zeros, one that float16 cannot hold a scale of, and one with a number far from all others."""
    model = graph(LAYERS)
    up = normal(*SIZES["up"])
    up[:, 1], up[:, 2] = 0, 1e-6
    up[5, 3] = 1000
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(up, "up"))
    return model


def converted(before: onnx.ModelProto, word: str, form: str, compute: str, folder: Path) -> tuple[Path, Path]:
    """Return the graph and the same in other numbers, on disk."""
    paths = folder / "before.onnx", folder / "after.onnx"
    onnx.save(before, paths[0])
    model = ir.load(paths[0])
    if word not in ("float16", "bfloat16"):
        quantize(model, word, 32, form, RANGES)
    if compute != "float32":
        reduce_precision(model, ir.DataType[compute.upper()])
    ir.save(model, paths[1])
    return paths


FORMS = [("int4", "qdq", "float16"), ("int8", "qdq", "float16"), ("w8a8", "qdq", "float16"), ("fp8", "qdq", "float16"),
         ("int4", "matmul_nbits", "float32"), ("int4", "native", "float32"),
         ("int8", "native", "float32"), ("int8", "matmul_nbits", "float16"), ("float16", "", "float16"),
         ("bfloat16", "", "bfloat16")]  # fmt: skip


@pytest.fixture(autouse=True, params=[1 << 20, 200], ids=["at once", "a few columns at a time"])
def at_a_time(request, monkeypatch):
    monkeypatch.setattr(weights, "_AT_A_TIME", request.param)


@pytest.mark.parametrize(("word", "form", "compute"), FORMS)
@pytest.mark.parametrize(("make", "matrices"), [(lambda: graph(LAYERS), 3), (outliers, 3)], ids=["normal", "outliers"])
def test_right_weights_pass(make, matrices, word, form, compute, tmp_path):
    row = check_weights(*converted(make(), word, form, compute, tmp_path), "verify", word)
    assert (row["graph"], row["level"], row["precision"]) == ("verify", "weights against the model's", word)
    assert (row["weights"], row["kept"]) == (matrices, 0)
    # A thousandth is what the proof adds for scales; a column that float16 has no scale for becomes zero.
    limit = max(weights._LARGEST_ERROR.values()) if make is not outliers else 1
    assert 0 < row["largest_error"] <= 1.001 * limit
    assert 0 < row["mean_error"] < 1


def test_experts_are_compared_one_by_one(tmp_path):
    row = check_weights(*converted(experts(), "int8", "qdq", "float32", tmp_path), "verify", "int8")
    assert row["weights"] == 3


def spoil(monkeypatch, name: str, change: Callable[..., np.ndarray]) -> None:
    right = getattr(numpy_quantizers, name)
    monkeypatch.setattr(numpy_quantizers, name, lambda *given: change(right, *given))


DEFECTS = {
    "a scale of another column": ("scales", lambda right, w, *rest: right(w[:, ::-1], *rest)),
    "a forgotten scale": ("scales", lambda right, *given: np.ones_like(right(*given))),
    "a scale a tenth too large": ("scales", lambda right, *given: right(*given) * np.float32(1.1)),
    "another axis": ("numbers", lambda right, w, *rest: right(np.ascontiguousarray(w.T).reshape(w.shape), *rest)),
    "zeros": ("numbers", lambda right, *given: np.zeros_like(right(*given))),
    "truncated": (
        "_rounded",
        lambda right, v, kind, divisors: right(np.trunc(v / divisors) * divisors, kind, divisors),
    ),
}


@pytest.mark.parametrize(
    ("defect", "word"),
    [
        (defect, word)
        for defect in DEFECTS
        for word in ("int4", "w8a8", "fp8")
        if (defect, word) != ("truncated", "fp8")
    ],
)
def test_what_a_quantizer_gets_wrong_is_named(defect, word, tmp_path, monkeypatch):
    spoil(monkeypatch, *DEFECTS[defect])
    paths = converted(graph(LAYERS), word, "qdq", "float16", tmp_path)
    message = (
        rf"^verify in {word}: weight up\.\w+ is off by .* where the model's largest is .*, expected at most 0\.\d+ of"
    )
    with pytest.raises(ProofError, match=message) as raised:
        check_weights(*paths, "verify", word)
    assert "report it" in raised.value.hint


@pytest.mark.parametrize(
    ("word", "field", "wrong"),
    [
        ("int4", "scales", lambda blocks: blocks.scales[::-1]),
        ("int8", "scales", lambda blocks: blocks.scales[::-1]),
        ("int4", "zero_points", lambda blocks: np.full_like(blocks.zero_points, 0)),
    ],
)
def test_onnx_runtime_s_own_numbers_are_read(word, field, wrong, tmp_path, monkeypatch):
    spoil(monkeypatch, "nbits", lambda right, *given: right(*given)._replace(**{field: wrong(right(*given))}))
    paths = converted(graph(LAYERS), word, "matmul_nbits", "float32", tmp_path)
    with pytest.raises(ProofError, match=f"^verify in {word}: weight up.{word[3]}bits is off by"):
        check_weights(*paths, "verify", word)


@pytest.mark.parametrize(
    "change",
    [lambda w: -w, lambda w: w * np.float32(1.01), lambda w: w.astype(ml_dtypes.float8_e5m2).astype(np.float32)],
    ids=["negated", "too large", "too coarse"],
)
@pytest.mark.parametrize("word", ["float16", "bfloat16"])
def test_what_a_conversion_gets_wrong_is_named(change, word, tmp_path, monkeypatch):
    right = reduction._convert
    monkeypatch.setattr(reduction, "_convert", lambda tensor, dtype: right(ir.tensor(change(tensor.numpy())), dtype))
    paths = converted(graph(LAYERS), word, "", word, tmp_path)
    with pytest.raises(ProofError, match=rf"^verify in {word}: weight up.{word} is off by"):
        check_weights(*paths, "verify", word)


EMBEDDED = """(int64[T] ids) => (float[T, 50] logits) {
    x = Gather(table, ids)  h = MatMul(x, w)  logits = MatMul(h, head) }"""
TIED = EMBEDDED.replace("logits = ", "head = Transpose<perm = [1, 0]>(table)  logits = ")


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_table_of_embeddings_is_compared(is_tied, tmp_path, monkeypatch):
    sizes = {"table": (50, 32), "w": (32, 32)}
    before = graph(TIED, sizes) if is_tied else graph(EMBEDDED, sizes | {"head": (32, 50)})
    row = check_weights(*converted(before, "int8", "native", "float32", tmp_path), "verify", "int8")
    assert row["weights"] == (2 if is_tied else 3)
    spoil(monkeypatch, "scales", lambda right, w, *rest: right(w, *rest) * np.float32(1.1 if w.shape[1] == 50 else 1))
    paths = converted(before, "int8", "native", "float32", tmp_path)
    with pytest.raises(ProofError, match=r"^verify in int8: weight (table\.T|head)\.int8 is off by"):
        check_weights(*paths, "verify", "int8")
