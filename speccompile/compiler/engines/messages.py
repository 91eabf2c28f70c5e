"""Messages of the builder: the only logger of a process, and the engine's layers as its log lists them."""

import re
import sys
from collections import Counter
from functools import cache
from typing import Any

_NOISE = re.compile(
    r"Make sure (in|out)put .* has Int64 binding|^-+$"
    r"|^(Input filename|ONNX IR version|Opset version|Producer|Domain:|Model version|Doc string)"
)
_LAYERS = "Layers:\n"
_LAYER = re.compile(r"^Name: (?P<name>.*?), LayerType: (?P<type>\w+),(?P<rest>.*)$", re.MULTILINE)
_NODE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
PARSING = "Parsing node: "
BUILDING = "building the engine"


class Messages:
    """Messages of the builder so far.

    errors: messages of the severity ERROR and worse. layers: the list of layers of the built engine as text, "" before
    the builder has logged one.
    """

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.layers = ""


@cache
def make_logger(trt: Any) -> Any:
    """Return the logger of this process: TensorRT keeps the first one it gets and ignores any other.

    Its attribute `messages` collects. Messages that help to understand a crash also go to stderr, at once.
    """

    class Logger(trt.ILogger):  # type: ignore[misc]  # the module is an argument
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.messages = Messages()

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.messages.errors.append(message)
            elif message.startswith(_LAYERS):
                self.messages.layers = message
            if not _NOISE.search(message) and (severity != trt.ILogger.VERBOSE or message.startswith(PARSING)):
                write_stderr(f"[{severity.name}] {message}")

    return Logger()


def write_stderr(line: str) -> None:
    """Write a line to stderr so that it arrives even when the next call crashes."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def last_phase(lines: list[str]) -> str:
    """Return the builder's phase at the last of these lines."""
    if BUILDING in lines:
        return "it was building the engine"
    node = next((line.partition(PARSING)[2] for line in reversed(lines) if PARSING in line), None)
    return f"it was parsing node {node}" if node else "it had not begun"


def fused_layers(text: str) -> dict[str, Any]:
    """Return the fusion of the graph's nodes, from the list of the engine's layers in the log.

    Return {"available": whether there was such a list, "types": layer type -> number,
    "layers": [{"name", "type", "nodes": the ONNX nodes in it}]}.
    """
    layers = [
        {"name": found["name"], "type": found["type"], "nodes": _NODE.findall(found["rest"])}
        for found in _LAYER.finditer(text)
    ]
    types = Counter(str(layer["type"]) for layer in layers)
    return {"available": bool(layers), "types": dict(sorted(types.items())), "layers": layers}
