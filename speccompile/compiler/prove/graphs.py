"""The graph level: neutral ONNX against transformers eager, lowered ONNX against neutral.

The logits of every window of a schedule are compared with one eager forward over the whole text, and two graphs of the
same round must agree in everything: outputs and committed caches.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from speccompile.bundle.caches import scale_name
from speccompile.compiler.models.eager import attend_eagerly
from speccompile.compiler.models.sourced import has_source, head_input, read_source
from speccompile.compiler.prove.reference import Logits, sequence_logits
from speccompile.compiler.prove.schedule import DRAFTED, Schedule
from speccompile.compiler.prove.schedule_runs import Outputs, Recording, committed_part
from speccompile.compiler.prove.tolerance import CARRIED_NOISE, TOLERANCE, arithmetic_over, tolerance
from speccompile.compiler.step.draft import Accepted, Drafter
from speccompile.compiler.step.layers import counting_layers, find_layers, hidden_output
from speccompile.contract import COMPONENTS, PERSISTENT_PREFIX, Graph, has_recurrent_states
from speccompile.errors import ProofError
from speccompile.runtime.devices.engine import Array

TRACED = "float32"
"""Precision of traced models."""
EAGER = "neutral against eager"
"""Name of the level of traced graphs."""

_HINT = "the graph computes something else than the model: please report it with the recipe"


@torch.no_grad()
def eager_logits(model: nn.Module, script: Schedule) -> list[Logits]:
    """Run transformers eager over each whole text, and return float32 [n, V] for each batch slot."""
    with counting_layers(model, "running transformers", len(script.texts)):
        found = []
        for row, text in enumerate(script.texts):
            read_source(model, script.source(row))
            found.append(sequence_logits(model, text[:-1]))
        return found


def noise_of(graph: Graph) -> float:
    """Return the tolerance of a traced graph against transformers: larger if recurrent states propagate rounding, or
    quantized caches."""
    noise = TOLERANCE[arithmetic_over(TRACED, [graph])]
    return max(noise, CARRIED_NOISE) if has_recurrent_states([graph], COMPONENTS[0]) else noise


def check_verify(
    outputs: Outputs, script: Schedule, eager: Sequence[Logits], limit: float, *, all_given: bool
) -> dict[str, Any]:
    """Check the logits of every window of text against the eager ones. Raise ProofError naming window, batch slot and
    difference.

    limit: of the difference, relative to the largest value, or to one. all_given: every token of a window is given, and
    only the last one's logits are computed.
    """
    compared = 0
    for step, (width, fed, committed) in enumerate(script.windows()):
        for row, start in enumerate(committed):
            if fed[row]:
                expected = eager[row][start : start + width][-1 if all_given else 0 :]
                got = outputs[step]["logits"][row][: len(expected)]
                _check_close(got, expected, limit, f"verify, window {step}, row {row}")
                compared += expected.size
    return {"graph": "verify", "level": EAGER, "values": compared, "tolerance": limit}


@torch.no_grad()
def check_nodes(model: nn.Module, outputs: Outputs, script: Schedule, limit: float) -> dict[str, Any]:
    """Check the logits of every node of the schedule's first tree against eager ones over the text and the path to the
    node."""
    assert script.tree is not None
    compared, step = 0, len(script.widths) + 1  # after the text and the states
    leaves = [node for node, children in enumerate(script.tree.children) if not children]
    for row, tokens in enumerate(script.rounds[0]):
        read_source(model, script.source(row))
        for leaf in leaves:
            lineage = list(script.tree.root_paths[leaf])
            text = script.texts[row][: script.rounds_at] + [tokens[node] for node in lineage]
            expected = sequence_logits(model, text)[-len(lineage) :]
            got = outputs[step]["logits"][row, lineage]
            _check_close(got, expected, limit, f"verify, row {row}, nodes {lineage}")
            compared += expected.size
    return {"graph": "verify", "level": f"{EAGER}, nodes", "values": compared, "tolerance": limit}


@torch.no_grad()
def eager_taps(model: nn.Module, tokens: list[int], taps: Sequence[str]) -> Array:
    """Return float32 [n, F]: the taps (see `step.taps`) of transformers eager over n tokens, concatenated.

    They are its own hidden states, of which the last is the output of the final norm; a hook reads the norm's input.
    """
    attend_eagerly(model)
    last: list[Tensor] = []
    hook = find_layers(model)[-1].register_forward_hook(lambda _, given, output: last.append(hidden_output(output)))
    with hook:
        output = model(input_ids=torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    hidden = output.decoder_hidden_states if has_source(model) else output.hidden_states
    found = []
    for tap in taps:
        place, _, side = tap.rpartition(".")
        index = int(place.partition(".")[2] or 0) + (side == "output")
        is_last = place != "norm" and index == len(hidden) - 1
        found.append(head_input(model, hidden[-1]) if place == "norm" else last[0] if is_last else hidden[index])
    features: Array = torch.cat(found, 2)[0].float().numpy()
    return features


def check_features(outputs: Outputs, script: Schedule, expected: Sequence[Array], limit: float) -> dict[str, Any]:
    """Check the features of every window of text against the eager ones, float32 [n, F] of each batch slot's text.
    Raise ProofError."""
    compared = 0
    for step, (width, fed, committed) in enumerate(script.windows()):
        for row, start in enumerate(committed):
            if fed[row]:
                wanted = expected[row][start : start + width]
                _check_close(
                    outputs[step]["features"][row],
                    wanted,
                    limit,
                    f"verify, features of window {step}, row {row}",
                )
                compared += wanted.size
    return {"graph": "verify", "level": f"{EAGER}, features", "values": compared, "tolerance": limit}


@torch.no_grad()
def module_drafts(drafter: Drafter, driven: Recording) -> Outputs:
    """Run a drafter without weights in eager torch over its graph's inputs, and return drafts, and states after the
    text."""
    names = [state.name for state in drafter.states()]
    states = [torch.zeros(state.shape, dtype=state.dtype) for state in drafter.states()]
    found: Outputs = []
    for number, (_, window, outputs) in enumerate(driven.runs()):
        read = (torch.tensor(each) for each in (window.values["path"], window.fed, window.committed))
        links = {**outputs, **driven.links[number]} if driven.links else outputs
        ranked = {n: torch.tensor(links[n]) for n in ("successors", "row_tokens") if drafter.target_top_k}
        for name in ("source_length", "source_tokens") if drafter.source_rows else ():
            ranked[name] = torch.tensor(window.values[name])
        if drafter.reads_whole_batch and len(window.fed) > 1:
            ranked["batch_rows"] = torch.arange(len(window.fed))
        drafted = drafter(Accepted(*read, **ranked), states)
        states = drafted.states
        found.append({"next_window": drafted.window.numpy(), "next_total": drafted.n_total.numpy()})
        if drafted.parents is not None:
            found[-1]["next_parents"] = drafted.parents.numpy()
        if len(found) == len(driven.script.widths):
            found.append(
                committed_part(dict(zip(names, (state.numpy() for state in states), strict=True)), driven.script)
            )
    return found


def check_same(got: Outputs, expected: Outputs, graph: str, level: str, precision: str) -> dict[str, Any]:
    """Check that two runs of one schedule agree in every output: integers exactly, numbers within noise. Raise
    ProofError.

    Drafts are the exception, and states made of the target's best tokens: some of many are near-ties. Windows in which
    they differ are counted in the row's `other_drafts`, and the caller must check them against the drafter itself.
    """
    compared, others = 0, set[str]()
    for where, a, b in _pairs(got, expected, graph, level):
        is_draft = where.startswith((f"{graph}, {level}, {DRAFTED}", f"{graph}, {level}, {PERSISTENT_PREFIX}"))
        window = where.rpartition(" after ")[2]
        if a.dtype.kind == "i" and is_draft:
            if not np.array_equal(a, b):
                others.add(window)
        elif a.dtype.kind == "i":
            _check_equal(a, b, where)
        elif not (is_draft and window in others):
            _check_close(a, b, TOLERANCE[precision], where)
        compared += a.size
    row = {"graph": graph, "level": level, "values": compared, "tolerance": TOLERANCE[precision]}
    return row | ({"other_drafts": len(others)} if others else {})


def check_exact(got: Outputs, expected: Outputs, graph: str, level: str) -> dict[str, Any]:
    """Check that two runs of one schedule of an integer-only graph agree in everything, drafts included. Raise
    ProofError."""
    compared = 0
    for where, a, b in _pairs(got, expected, graph, level):
        _check_equal(a, b, where)
        compared += a.size
    return {"graph": graph, "level": level, "values": compared, "tolerance": 0.0}


def check_near(
    got: Outputs, expected: Outputs, graph: str, level: str, precision: str, layers: int = 1
) -> dict[str, Any]:
    """Check two runs of one schedule in the same reduced precision: numbers within its noise. Raise ProofError.

    layers: of the model. Tokens may then differ: the row of the proof counts equal ones. Windows with other drafts are
    counted as in `check_same`: their probabilities are those of other tokens.
    """
    compared = tokens = same = 0
    limit, others = tolerance(precision, layers), set[str]()
    for where, a, b in _pairs(got, expected, graph, level):
        is_draft, window = where.startswith(f"{graph}, {level}, {DRAFTED}"), where.rpartition(" after ")[2]
        if a.dtype == np.int8:  # codes of a cache
            _check_close(a.astype(np.float32), b.astype(np.float32), limit, where)
            compared += a.size
        elif a.dtype.kind == "i":
            tokens, same = tokens + a.size, same + int((a == b).sum())
            others |= {window} if is_draft and not np.array_equal(a, b) else set()
        elif not (is_draft and window in others):
            _check_close(a, b, limit, where)
            compared += a.size
    row = {"graph": graph, "level": level, "values": compared, "tolerance": limit}
    row |= {"precision": precision, "tokens": tokens, "same_tokens": same}
    return row | ({"other_drafts": len(others)} if others else {})


def _pairs(got: Outputs, expected: Outputs, graph: str, level: str) -> Iterator[tuple[str, Array, Array]]:
    """Yield (location for messages, both arrays) for every output of every window; the first in the second's shape and
    dtype."""
    for step, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.keys() == b.keys(), f"{graph}, {level}: outputs {sorted(a)} and {sorted(b)}"
        for name in a:
            one, other = a[name].reshape(b[name].shape).astype(b[name].dtype), b[name]
            scales = b.get(scale_name(name))
            if scales is not None and scales.shape[-1] == 2 and scale_name(name) != name:
                one, other = _levels(one), _levels(other)
            if name == "successors" and "logits" in b:  # equally good tokens may come in either order
                one, other = (np.take_along_axis(b["logits"], each, 2) for each in (one, other))
            yield f"{graph}, {level}, {name} after window {step}", one, other


def decoded_rows(codes: Array, scales: Array) -> Array:
    """Return the numbers of int8 codes with their scales: of two scales a row the second is the row's least number."""
    if scales.shape[-1] == 1:
        return codes * scales
    levels = _levels(codes).reshape(*codes.shape[:-1], -1)
    return levels * scales[..., :1] + scales[..., 1:]


def _levels(codes: Array) -> Array:
    """Return int8 codes, 0 to 15, of bytes that hold two: see `step.ops.quantize`."""
    pairs = codes.astype(np.uint8) ^ 0x80
    return np.stack([pairs & 15, pairs >> 4], -1).astype(np.int8)


def _check_equal(got: Array, expected: Array, where: str) -> None:
    if not np.array_equal(got, expected):
        raise ProofError(f"{where}: {got.tolist()}, expected {expected.tolist()}", hint=_HINT)


def _check_close(got: Array, expected: Array, tolerance: float, where: str) -> None:
    difference, largest = float(np.abs(got - expected).max(initial=0)), float(np.abs(expected).max(initial=0))
    if not difference <= tolerance * max(largest, 1.0):
        raise ProofError(
            f"{where}: differs by {difference:.3g}, more than {tolerance} of the largest value {largest:.3g}",
            hint=_HINT,
        )
