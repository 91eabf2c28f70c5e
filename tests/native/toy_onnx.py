"""A bundle of a few ONNX nodes that both runtimes run, made in milliseconds: what it says is arithmetic.

The token behind a text is (7 times the sum of its tokens + 3 times the last + 5 times its place) modulo the vocabulary.
The sum is taken over the cache and the window, so a token that was not committed, or twice, changes all that follow. A
row that samples adds its uniform, its settings and, with a penalty, what stands in its history: every input counts.

The drafter says the same, but at every fourth place, from a cache of its own. Where not every token is allowed, the
target says the first that is, counted on from what it would have said.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from speccompile.bundle import BundleWriter, EngineEntry, Manifest
from speccompile.bundle.sampling import SETTINGS
from speccompile.contract import BATCH, Graph, Tensor, with_fixed_batch
from tests.light.bundle_example import manifest
from tests.light.fake_bundle import toy_tokenizer

VOCABULARY, MAX_LENGTH, CHUNK, DRAFTS = 258, 96, 8, 3
ROOM = MAX_LENGTH + CHUNK + DRAFTS + 1
"""Lines of a cache: a round may write behind the last token."""

TYPES = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT, "bool": TensorProto.BOOL}
UNIFORMS = 97
"""A uniform adds 0 to UNIFORMS - 1."""


def said_after(text: Sequence[int]) -> int:
    """Return what the toy target says greedily."""
    return (7 * sum(text) + 3 * text[-1] + 5 * (len(text) - 1)) % VOCABULARY


def first_allowed(token: int, allowed: np.ndarray) -> int:
    """Return what it says instead, where a bool [V] tells what is allowed."""
    return next(each % VOCABULARY for each in range(token, token + VOCABULARY) if allowed[each % VOCABULARY])


def continuation(prompt: Sequence[int], new_tokens: int) -> list[int]:
    text = list(prompt)
    for _ in range(new_tokens):
        text.append(said_after(text))
    return text[len(prompt) :]


class Nodes:
    """The nodes of one graph: calls give the names of what they compute."""

    def __init__(self) -> None:
        self.made: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._numbers = count()

    def constant(self, value: object, dtype: type = np.int64) -> str:
        name = f"c{next(self._numbers)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def __call__(self, op: str, *inputs: object, **attributes: object) -> str:
        """Return names; numbers become constants of int64, floats of float32."""
        names = [
            each if isinstance(each, str) else self.constant(each, np.float32 if isinstance(each, float) else np.int64)
            for each in inputs
        ]
        name = f"v{next(self._numbers)}"
        self.made.append(helper.make_node(op, names, [name], **attributes))
        return name

    def name(self, value: str, name: str) -> None:
        self.made.append(helper.make_node("Identity", [value], [name]))

    def total(self, *values: object) -> str:
        found = values[0]
        for value in values[1:]:
            found = self("Add", found, value)
        return str(found)

    def size(self, value: str, axis: int) -> str:
        return self("Gather", self("Shape", value), axis)

    def places(self, value: str) -> str:
        """Return int64 [1, N]: 0, 1, .. along the second axis."""
        return self("Unsqueeze", self("Range", 0, self.size(value, 1), 1), [0])

    def column(self, value: str) -> str:
        """Map [B] to [B, 1]."""
        return self("Unsqueeze", value, [1])

    def whole(self, value: str) -> str:
        return self("Cast", value, to=TensorProto.INT64)

    def real(self, value: str) -> str:
        return self("Cast", value, to=TensorProto.FLOAT)

    def scaled(self, value: str, factor: float) -> str:
        """Return int64 of a float32, rounded down."""
        return self.whole(self("Floor", self("Mul", value, factor)))

    def sum(self, value: str) -> str:
        """Map [B, N] to [B]."""
        return self("ReduceSum", value, [1], keepdims=0)


def _tensor(name: str, dtype: str, *shape: int | str, role: str = "io", buffer: str = "") -> Tensor:
    return Tensor(name, dtype, shape, buffer or name, role)


def _cache(part: str) -> tuple[Tensor, Tensor]:
    """Return what is read and written of a part's cache: a number a token."""
    name = f"{part}.key.0"
    shape = (BATCH, 1, ROOM, 1)
    return (
        _tensor(name, "float32", *shape, role="state"),
        _tensor(f"{name}.out", "float32", *shape, role="state", buffer=name),
    )


def _target(n: Nodes, *, samples: bool, constrained: bool, tells_windows: bool) -> dict[str, str]:
    """Add the target's nodes. Returns what they compute, by name."""
    places, length = n.places("window"), n.column("length")
    before = _committed_sum(n, "target.key.0", length)
    sums = n.total(n("CumSum", "window", 1), n.column(before))
    said = n.total(n("Mul", sums, 7), n("Mul", "window", 3), n("Mul", n("Add", places, length), 5))
    given = n.column("n_given")
    if samples:
        said = n.total(said, _chance(n, places, given))
    said = n("Mod", said, VOCABULARY)
    logits = _logits(n, said, given)
    if tells_windows:
        shape = n("Add", n("Mul", n.size("window", 0), MAX_LENGTH), n.size("window", 1))
        logits = n("Mul", logits, n("Div", n.real(shape), float(4 * MAX_LENGTH)))
    if constrained:
        said = _allowed(n, said, places, given)
    # A draft is accepted where it is what was said before it, and all before it are accepted.
    earlier = n("Gather", said, n("Max", n("Sub", places, 1), 0), axis=1)
    earlier = n("Reshape", earlier, n("Shape", "window"))
    is_given = n("Less", places, given)
    follows = n("And", n("Less", places, n.column("n_total")), n("Equal", "window", earlier))
    refused = n.whole(n("Not", n("Or", is_given, follows)))
    accepted = n("Equal", n("CumSum", refused, 1), 0)
    n_path = n("Mul", n.sum(n.whole(accepted)), n("Min", "n_given", 1))
    last = n("Max", n("Sub", n.column(n_path), 1), 0)
    bonus = n("GatherElements", said, last, axis=1)
    padded = n("Concat", "window", bonus, axis=1)
    path = n("Where", n("Equal", n.places(padded), n.column(n_path)), bonus, padded)
    cache = _commit(n, "target.key.0", length, n.column(n_path), "window")
    return {"path": path, "n_path": n_path, "target.key.0.out": cache, "logits": logits}


def _committed_sum(n: Nodes, cache: str, length: str) -> str:
    """Return int64 [B]: of the tokens in a cache, up to its length [B, 1]."""
    tokens = n("Reshape", cache, [0, -1])
    return n.whole(n.sum(n("Where", n("Less", n.places(tokens), length), tokens, 0.0)))


def _commit(n: Nodes, cache: str, length: str, count: str, tokens: str) -> str:
    """Add the cache with the first `count` [B, 1] of some tokens [B, N] behind its length; what lies behind is
    spoilt."""
    lines = n("Reshape", cache, [0, -1])
    behind = n("Sub", n.places(lines), length)
    last = n("Sub", n.size(tokens, 1), 1)
    chosen = n.real(n("GatherElements", tokens, n("Min", n("Max", behind, 0), last), axis=1))
    written = n("Where", n("Less", behind, count), chosen, 1e6)
    return n("Reshape", n("Where", n("Less", behind, 0), lines, written), n("Shape", cache))


def _chance(n: Nodes, places: str, given: str) -> str:
    """Return int64 [B, W]: what sampling adds behind every token."""
    row = n("Max", n("Sub", n("Add", places, 1), given), 0)
    row = n("Min", row, n("Sub", n.size("uniforms", 1), 1))
    uniform = n.scaled(n("GatherElements", "uniforms", row, axis=1), float(UNIFORMS))
    is_sampled = n.whole(n("Greater", "temperature", 0.0))
    settings = n.total(n.scaled("temperature", 8.0), "top_k", n.scaled("top_p", 64.0), n.scaled("min_p", 64.0), 0)
    is_there = n.whole(
        n("ReduceMax", n("OneHot", "history", VOCABULARY, n.constant([0.0, 1.0], np.float32)), [1], keepdims=0)
    )
    weights = n.constant(np.arange(1, VOCABULARY + 1)[None])
    is_penalized = n.whole(n("Not", n("Equal", "repetition_penalty", 1.0)))
    seen = n("Mul", n.total(n.sum(n("Mul", is_there, weights)), n.scaled("repetition_penalty", 8.0)), is_penalized)
    found = n("Add", n("Mul", uniform, n.column(is_sampled)), n.column(n("Add", n("Mul", settings, is_sampled), seen)))
    return n("Add", found, n("GatherElements", _adjusted(n), row, axis=1))


def _adjusted(n: Nodes) -> str:
    """Return int64 [B, R]: what biases and penalties of tokens add behind every row."""
    shape = n("Concat", n("Shape", "adjusted", start=0, end=2), n.constant([VOCABULARY]), axis=0)
    nothing = n("Expand", n.constant(0.0, np.float32), shape)
    each = n("Add", "biases", n("Mul", "penalties", 3.0))
    spread = n("ScatterElements", nothing, "adjusted", each, axis=2)
    weights = n.constant(np.arange(1, VOCABULARY + 1)[None, None])
    return n("ReduceSum", n("Mul", n.scaled(spread, 8.0), weights), [2], keepdims=0)


def _allowed(n: Nodes, said: str, places: str, given: str) -> str:
    """Return int64 [B, W]: the first allowed token from what is said on."""
    row = n("Max", n("Sub", n("Add", places, 1), given), 0)
    row = n("Unsqueeze", n("Min", row, n("Sub", n.size("allowed", 1), 1)), [2])
    width = n("Reshape", n.size("allowed", 2), [1])
    index = n("Expand", row, n("Concat", n("Shape", said), width, axis=0))
    may = n("GatherElements", n.whole("allowed"), index, axis=1)
    apart = n("Sub", n.constant(np.arange(VOCABULARY)[None, None]), n("Unsqueeze", said, [2]))
    apart = n("Mod", n("Add", apart, VOCABULARY), VOCABULARY)
    return n("ArgMin", n("Add", apart, n("Mul", n("Sub", 1, may), 10**6)), axis=2, keepdims=0)


def _logits(n: Nodes, said: str, given: str) -> str:
    """Return float32 [B, R, V]: what is said stands out at every row."""
    rows = n.total(n("Unsqueeze", "logit_rows", [0]), given, -1)
    rows = n("Min", n("Max", rows, 0), n("Sub", n.size("window", 1), 1))
    return n("OneHot", n("GatherElements", said, rows, axis=1), VOCABULARY, n.constant([-2.0, 3.0], np.float32))


def _drafter(n: Nodes, path: str, n_path: str) -> dict[str, str]:
    """Return nodes of the drafter: it reads a path, and says what may follow."""
    length, counts = n.column("length"), n.column(n_path)
    own = n("LessOrEqual", n.places(path), counts)
    text = n("Add", _committed_sum(n, "drafter.key.0", length), n.sum(n("Mul", path, n.whole(own))))
    last = n("Squeeze", n("GatherElements", path, counts, axis=1), [1])
    place = n("Add", "length", n_path)
    window = [last]
    for _ in range(DRAFTS):
        said = n.total(n("Mul", text, 7), n("Mul", last, 3), n("Mul", place, 5))
        wrong = n.whole(n("Equal", n("Mod", place, 4), 3))
        last = n("Mod", n("Add", said, wrong), VOCABULARY)
        text, place = n("Add", text, last), n("Add", place, 1)
        window.append(last)
    lines = n("Concat", *map(n.column, window), axis=1)
    total = n("Expand", 1 + DRAFTS, n("Shape", n_path))
    return {"window": lines, "total": total, "drafter.key.0.out": _commit(n, "drafter.key.0", length, counts, path)}


def _model(n: Nodes, graph: Graph, values: dict[str, str]) -> bytes:
    def described(tensor: Tensor) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(tensor.name, TYPES[tensor.dtype], list(tensor.shape))

    for tensor in graph.outputs:
        n.name(values[tensor.name], tensor.name)
    inputs, outputs = (list(map(described, tensors)) for tensors in (graph.inputs, graph.outputs))
    made = helper.make_graph(n.made, graph.name, inputs, outputs, n.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _verify_tensors(*, samples: bool, constrained: bool) -> tuple[list[Tensor], list[Tensor]]:
    counts = [_tensor(name, "int64", BATCH) for name in ("n_given", "n_total", "length")]
    read, written = _cache("target")
    rows = _tensor("logit_rows", "int64", "logit_rows", role="index")
    inputs = [_tensor("window", "int64", BATCH, "window"), *counts, rows, read]
    if samples:
        inputs += [_tensor(name, dtype, BATCH) for name, dtype in SETTINGS.items()]
        inputs += [_tensor("history", "int64", BATCH, "history"), _tensor("uniforms", "float32", BATCH, "logit_rows")]
        for name, dtype in (("adjusted", "int64"), ("biases", "float32"), ("penalties", "float32")):
            inputs.append(_tensor(name, dtype, BATCH, "logit_rows", "adjusted"))
    if constrained:
        inputs.append(_tensor("allowed", "bool", BATCH, "logit_rows", "allowed"))
    path = _tensor("path", "int64", BATCH, "window+1")
    logits = _tensor("logits", "float32", BATCH, "logit_rows", VOCABULARY, role="optional")
    return inputs, [path, _tensor("n_path", "int64", BATCH), logits, written]


def _draft_tensors() -> tuple[list[Tensor], list[Tensor]]:
    read, written = _cache("drafter")
    given = [_tensor("path", "int64", BATCH, "window+1"), _tensor("n_path", "int64", BATCH)]
    drafted = [_tensor("next_window", "int64", BATCH, 1 + DRAFTS, buffer="window")]
    drafted += [_tensor("next_total", "int64", BATCH, buffer="n_total")]
    return [*given, _tensor("length", "int64", BATCH), read], [*drafted, written]


def _graphs(*, fused: bool, tells_windows: bool, **more: bool) -> dict[str, tuple[Graph, bytes]]:
    inputs, outputs = _verify_tensors(**more)
    n = Nodes()
    verify = Graph("verify", tuple(inputs), tuple(outputs))
    found = {"verify": (verify, _model(n, verify, _target(n, tells_windows=tells_windows, **more)))}
    drafter_inputs, drafter_outputs = _draft_tensors()
    n = Nodes()
    if fused:  # drafts into buffers of its own, which the host copies
        apart = [_tensor(t.name, t.dtype, *t.shape) if t.role == "io" else t for t in drafter_outputs]
        step = Graph("step", (*inputs, drafter_inputs[-1]), (*outputs, *apart))
        values = _target(n, tells_windows=tells_windows, **more)
        drafted = _drafter(n, values["path"], values["n_path"])
    else:
        step, values = Graph("draft", tuple(drafter_inputs), tuple(drafter_outputs)), {}
        drafted = _drafter(n, "path", "n_path")
    values |= drafted | {"next_window": drafted["window"], "next_total": drafted["total"]}
    return found | {step.name: (step, _model(n, step, values))}


def _write_tokenizer(folder: Path, chat: str | None) -> None:
    folder.mkdir()
    toy_tokenizer().save(str(folder / "tokenizer.json"))
    if chat is not None:
        said = {"template": chat, "special_tokens": {"bos_token": "<s>", "eos_token": "</s>"}}
        (folder / "chat.json").write_text(json.dumps(said))


def write_arithmetic_bundle(
    output: Path,
    *,
    samples: bool = False,
    fused: bool = False,
    constrained: bool = False,
    drafts: bool = True,
    tells_windows: bool = False,
    has_slices: bool = True,
    rows: int = 3,
    proof: Mapping[str, Any] | None = None,
    text: bool = True,
    chat: str | None = None,
    **changes: object,
) -> Path:
    """Write the folder of such a bundle. tells_windows: logits depend on how many rows a window has, and how wide it
    is. has_slices: whether a run may cover a slice of the batch slots. text: whether there is a tokenizer; chat:
    a chat template. changes: of its manifest."""
    graphs = _graphs(samples=samples, fused=fused, constrained=constrained, tells_windows=tells_windows)
    if not drafts:
        del graphs["step" if fused else "draft"]
    described = tuple(graph for graph, _ in graphs.values())
    run = described if has_slices else tuple(with_fixed_batch(graph, rows) for graph in described)
    files = {name: f"graphs/{name}.onnx" for name in graphs}
    precision = {"target": "float32", "drafter": "float32"}
    count = DRAFTS if drafts else 0
    values: dict[str, object] = {
        "decoding": "sampling" if samples else "greedy", "batch_size": rows, "max_length": MAX_LENGTH,
        "prefill_chunk": CHUNK, "tokens": count, "depth": count, "catch_up": count + 2 if drafts else 0,
        "tokenizer": text,
        "vocabulary_size": VOCABULARY, "eos_token_ids": (), "graphs": described,
        "engines": (EngineEntry("onnxruntime-cpu", "onnxruntime", "cpu", files, precision, run),),
    }  # fmt: skip
    made: Manifest = manifest(**(values | changes))
    with BundleWriter(output) as writer:
        (writer.folder / "graphs").mkdir()
        for name, (_, model) in graphs.items():
            (writer.folder / files[name]).write_bytes(model)
        if text:
            _write_tokenizer(writer.folder / "tokenizer", chat)
        writer.finish(made, {}, dict(proof or {}))
    return output
