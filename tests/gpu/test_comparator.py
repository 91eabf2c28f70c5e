"""polygraphy's Comparator on a GPU: an engine's graph against ONNX Runtime, window by window from the same state.

polygraphy works with one flavour of TensorRT in a process, so each has one of its own.
"""

import json

import pytest

from speccompile.compiler.diagnose.capability import FLAVOUR
from speccompile.compiler.diagnose.children import run_python
from tests.compile import tiny_graphs
from tests.gpu.machine import Engine

COMPARE = """
import json, sys
from pathlib import Path
from speccompile.contract import Graph
from speccompile.compiler.diagnose.compare import compare_engine
from speccompile.compiler.engines import Settings, flavour
from speccompile.compiler.engines.tensorrt import build_engine
from speccompile.compiler.prove.schedule import Schedule
onnx, graph, settings = sys.argv[1:]
onnx, graph, settings = Path(onnx), Graph.from_json(json.loads(graph)), Settings.from_json(json.loads(settings))
engine = onnx.with_suffix(".engine")
build_engine(flavour.load(settings.backend), onnx, graph, settings, engine)
row = compare_engine(
    onnx, engine, graph, Schedule([list(range(17))], [8, 1, 4, 3]),
    backend=settings.backend, level="engine against lowered", tolerance=1e-5, exact=True,
)
Path(sys.argv[1]).with_suffix(".json").write_text(json.dumps(row))
"""


@pytest.mark.parametrize("backend", ["tensorrt_rtx", "tensorrt"])
def test_an_engine_gives_what_its_graph_gives(backend, gpu, tmp_path):
    if reason := Engine(backend, "cuda", "float32").lacks(gpu.compute_capability):
        pytest.skip(reason)
    tiny = tiny_graphs.write(tmp_path)
    settings = tiny.settings(gpu.compute_capability, backend=backend).to_json()
    ended = run_python(
        "-c", COMPARE, str(tiny.onnx), json.dumps(tiny.graph.to_json()), json.dumps(settings),
        seconds=600, environment={FLAVOUR: str(int(backend == "tensorrt_rtx"))},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    row = json.loads(tiny.onnx.with_suffix(".json").read_bytes())
    assert (row["graph"], row["values"]) == ("verify", sum((8, 9, 13, 16)) * tiny_graphs.HEADS * tiny_graphs.SIZE)
    assert row["tokens"] == row["same_tokens"] == 16
