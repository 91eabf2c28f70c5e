"""What the builder says: the one logger of a process, and the engine's layers as its log lists them."""

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
    """What the builder said so far.

    errors: messages of the severity ERROR and worse. layers: the list of layers of the built engine as text, "" while
    the builder has not given one.
    """

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.layers = ""


@cache
def make_logger(trt: Any) -> Any:
    """The logger of this process: TensorRT keeps the first one it gets and ignores any other.

    Its attribute `messages` collects. What helps to understand a crash also goes to stderr, at once.
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
    """What the builder was doing when it told the last of these lines."""
    if BUILDING in lines:
        return "it was building the engine"
    node = next((line.partition(PARSING)[2] for line in reversed(lines) if PARSING in line), None)
    return f"it was parsing node {node}" if node else "it had not begun"


def fused_layers(text: str) -> dict[str, Any]:
    """What became of the graph's nodes, from the list of the engine's layers in the log.

    Returns {"available": whether there was such a list, "types": layer type -> how many,
    "layers": [{"name", "type", "nodes": the ONNX nodes in it}]}.
    """
    layers = [
        {"name": found["name"], "type": found["type"], "nodes": _NODE.findall(found["rest"])}
        for found in _LAYER.finditer(text)
    ]
    types = Counter(str(layer["type"]) for layer in layers)
    return {"available": bool(layers), "types": dict(sorted(types.items())), "layers": layers}
