"""The interface of a parsed TensorRT network, and its comparison with the contract."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from speccompile.contract import TENSORRT_DTYPES, Graph, Tensor
from speccompile.errors import EngineError

_HINT = "the lowering and the contract disagree: report the recipe, with the graphs of `build --dump-graphs`"


def describe(network: Any) -> dict[str, Any]:
    """Return inputs, outputs, aliases (output -> input that it updates in place) and parsed layers by type."""
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    outputs = [network.get_output(index) for index in range(network.num_outputs)]
    return {
        "inputs": [_row(tensor) for tensor in inputs],
        "outputs": [_row(tensor) for tensor in outputs],
        "aliases": _aliases(network, {tensor.name for tensor in outputs}),
        "parsed_layers": dict(sorted(Counter(layer.type.name for layer in network).items())),
    }


def check(network: Any, found: dict[str, Any], graph: Graph) -> None:
    """Raise EngineError naming the first tensor that differs from the contract. `found`: the network described."""
    _check_tensors("input", found["inputs"], graph.inputs)
    _check_tensors("output", found["outputs"], graph.outputs)
    for output, wanted in graph.aliases.items():
        if (read := found["aliases"].get(output)) != wanted:
            how = f"it updates {read!r}" if read else f"it comes from a layer of type {_producer(network, output)}"
            raise EngineError(
                f"output {output!r} must update input {wanted!r} in place, by one KV cache update: {how}",
                hint="a state must be written by one TensorScatter (rank 4, axis 2, a float type) that is itself the "
                "output",
            )


def _row(tensor: Any) -> dict[str, Any]:
    name = tensor.dtype.name
    return {"name": tensor.name, "dtype": TENSORRT_DTYPES.get(name, name.lower()), "shape": list(tensor.shape)}


def _aliases(network: Any, outputs: Iterable[str]) -> dict[str, str]:
    updates = [layer for layer in network if layer.type.name == "KV_CACHE_UPDATE"]
    found = {layer.get_output(0).name: layer.get_input(0).name for layer in updates}
    return {output: read for output, read in found.items() if output in outputs}


def _producer(network: Any, output: str) -> str:
    for layer in network:
        if output in (layer.get_output(index).name for index in range(layer.num_outputs)):
            return str(layer.type.name)
    return "unknown"


def _check_tensors(kind: str, found: list[dict[str, Any]], wanted: Iterable[Tensor]) -> None:
    expected = {
        tensor.name: {
            "name": tensor.name,
            "dtype": tensor.dtype,
            "shape": [size if isinstance(size, int) else -1 for size in tensor.shape],
        }
        for tensor in wanted
    }
    received = {row["name"]: row for row in found}
    for name in expected | received:
        if expected.get(name) != received.get(name):
            raise EngineError(
                f"{kind} {name!r} of the parsed network is {_words(received.get(name))}, "
                f"the contract says {_words(expected.get(name))}",
                hint=_HINT,
            )


def _words(row: dict[str, Any] | None) -> str:
    return f"{row['dtype']} {row['shape']}" if row else "absent"
