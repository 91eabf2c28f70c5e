"""The parsed network against the contract, and the worker's manners, without a builder."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from speccompile.compiler.engines import Settings, network, tensorrt
from speccompile.compiler.engines.messages import Messages
from speccompile.contract import Graph, Tensor
from speccompile.errors import EngineError

CACHE = (1, 2, 8, 4)
GRAPH = Graph(
    "verify",
    (Tensor("window", "int64", (1, "window"), "window", "io"), Tensor("key", "float16", CACHE, "key", "state")),
    (Tensor("path", "int64", (1, "window+1"), "path", "io"), Tensor("key.out", "float16", CACHE, "key", "state")),
)


def tensor(name: str, dtype: str, *shape: int) -> SimpleNamespace:
    return SimpleNamespace(name=name, dtype=SimpleNamespace(name=dtype), shape=shape)


class Layer:
    def __init__(self, kind: str, inputs: list, outputs: list) -> None:
        self.type, self.name = SimpleNamespace(name=kind), f"the {kind}"
        self.num_outputs = len(outputs)
        self.get_input, self.get_output = inputs.__getitem__, outputs.__getitem__


class Network(list):
    """Layers with the inputs and outputs of GRAPH, of which some are changed; an input None is left out."""

    def __init__(self, *layers: Layer, **changed: SimpleNamespace | None) -> None:
        super().__init__(layers)
        inputs = {"window": tensor("window", "INT64", 1, -1), "key": tensor("key", "HALF", *CACHE)} | changed
        self._inputs = [each for each in inputs.values() if each is not None]
        self._outputs = [tensor("path", "INT64", 1, -1), tensor("key.out", "HALF", *CACHE)]
        self.num_inputs, self.num_outputs = len(self._inputs), len(self._outputs)
        self.get_input, self.get_output = self._inputs.__getitem__, self._outputs.__getitem__


def update(read: str, written: str = "key.out") -> Layer:
    return Layer("KV_CACHE_UPDATE", [tensor(read, "HALF", *CACHE)], [tensor(written, "HALF", *CACHE)])


def check(found: Network) -> None:
    network.check(found, network.describe(found), GRAPH)


def test_the_interface_of_a_network():
    described = network.describe(Network(update("key"), update("a", "no output"), other=tensor("other", "UINT8", 3)))
    assert described == {
        "inputs": [
            {"name": "window", "dtype": "int64", "shape": [1, -1]},
            {"name": "key", "dtype": "float16", "shape": [1, 2, 8, 4]},
            {"name": "other", "dtype": "uint8", "shape": [3]},
        ],
        "outputs": [
            {"name": "path", "dtype": "int64", "shape": [1, -1]},
            {"name": "key.out", "dtype": "float16", "shape": [1, 2, 8, 4]},
        ],
        "aliases": {"key.out": "key"},
        "parsed_layers": {"KV_CACHE_UPDATE": 2},
    }


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            Network(update("key"), window=None),
            "input 'window' of the parsed network is absent, the contract says int64",
        ),
        (Network(window=tensor("window", "INT32", 1, -1)), r"is int32 \[1, -1\], the contract says int64 \[1, -1\]"),
        (Network(window=tensor("window", "INT64", 1, 5)), r"is int64 \[1, 5\], the contract says int64 \[1, -1\]"),
        (
            Network(update("key"), more=tensor("more", "BOOL", 1)),
            r"input 'more' .* bool \[1\], the contract says absent",
        ),
        (Network(update("window")), "'key.out' must update input 'key' in place, .* it updates 'window'"),
        (Network(Layer("CAST", [], [tensor("key.out", "HALF")])), "it comes from a layer of type CAST"),
        (Network(), "it comes from a layer of type unknown"),
    ],
)
def test_a_network_that_is_not_the_contracts(found, message):
    with pytest.raises(EngineError, match=message):
        check(found)


def test_a_network_as_the_contract_says():
    check(Network(update("key")))


def test_a_refusal_names_the_layer_and_says_when_there_is_no_reason():
    layers = [SimpleNamespace(name="mm"), SimpleNamespace(name="mm_2")]
    messages = Messages()
    assert tensorrt._refusal(layers, messages) == "the builder refused the graph: it gave no reason"
    messages.errors = ["Cannot compile operation 'mm_2' for Turing\nmore", "Cuda Runtime"]
    expected = "the builder refused the graph at node 'mm_2': Cannot compile operation 'mm_2' for Turing"
    assert tensorrt._refusal(layers, messages) == expected


def test_a_parser_that_gives_no_reason():
    parser = SimpleNamespace(parse_from_file=lambda path: False, num_errors=0)
    with pytest.raises(EngineError, match="the parser refused the graph: it gave no reason"):
        tensorrt._parse(SimpleNamespace(OnnxParser=lambda *_: parser), None, None, Path("verify.onnx"))


def test_a_worker_without_its_parent_does_nothing(tmp_path):
    settings = Settings("tensorrt_rtx", "8.9", {}, {})
    job = {"onnx": "x", "output": "y", "graph": GRAPH.to_json(), "settings": settings.to_json(), "parent": 1}
    (tmp_path / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", "speccompile.compiler.engines.worker", "job.json", "result.json"]
    root = Path(tensorrt.__file__).parents[2]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, env={"PYTHONPATH": str(root)})
    assert run.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]
