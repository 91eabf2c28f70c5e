"""The graph level: neutral ONNX against transformers eager, lowered ONNX against neutral.

The logits of every window of a script are compared with one eager forward over the whole text, and two graphs of the
same round must agree in everything: outputs and committed caches.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from speccompile.errors import ProofError
from speccompile.prove.noise import NOISE
from speccompile.prove.reference import Logits, check_greedy, sequence_logits
from speccompile.prove.script import Outputs, Script, used
from speccompile.runtime.engine import Array
from speccompile.step.draft import Drafter

TRACED = "float32"
"""What models are traced in."""


@torch.no_grad()
def eager_logits(model: nn.Module, script: Script) -> list[Logits]:
    """transformers eager over each whole text: float32 [n, V] a row."""
    return [sequence_logits(model, text[:-1]) for text in script.texts]


def check_verify(outputs: Outputs, script: Script, eager: Sequence[Logits]) -> dict[str, Any]:
    """Logits of every window against the eager ones. Raises ProofError naming window, row and difference."""
    compared = 0
    for step, (width, fed, committed) in enumerate(script.windows()):
        for row, start in enumerate(committed):
            if fed[row]:
                expected = eager[row][start : start + width]
                _check_close(outputs[step]["logits"][row], expected, NOISE[TRACED], f"verify, window {step}, row {row}")
                compared += expected.size
    return {"graph": "verify", "level": "neutral against eager", "values": compared, "tolerance": NOISE[TRACED]}


@torch.no_grad()
def eager_drafts(model: nn.Module, script: Script, tokens: int, max_length: int) -> list[list[Logits]]:
    """For each window and row, the eager drafter's logits float32 [n, V] before each of its own greedy drafts.

    n is `tokens`, less at the end of the longest sequence, behind which a draft means nothing.
    """
    found = []
    for _, fed, committed in script.windows():
        rows = []
        for text, n, start in zip(script.texts, fed, committed, strict=True):
            known, logits = text[: start + n + 1], []
            for _ in range(min(tokens, max_length - len(known)) if n else 0):
                logits.append(sequence_logits(model, known)[-1])
                known = [*known, int(logits[-1].argmax())]
            rows.append(np.array(logits))
        found.append(rows)
    return found


def check_draft(outputs: Outputs, script: Script, eager: list[list[Logits]]) -> dict[str, Any]:
    """Drafts of every window against the eager drafter's greedy ones. Raises ProofError at a difference."""
    compared = 0
    for step, (_, fed, _) in enumerate(script.windows()):
        for row, n in enumerate(fed):
            if n:
                drafts = outputs[step]["next_window"][row, 1 : 1 + len(eager[step][row])].tolist()
                ties = check_greedy(eager[step][row], drafts, TRACED, f"draft, window {step}, row {row}", "the graph")
                compared += ties[0].index if ties else len(drafts)  # behind a near-tie the texts differ
    return {"graph": "draft", "level": "neutral against eager", "values": compared, "tolerance": NOISE[TRACED]}


@torch.no_grad()
def module_drafts(drafter: Drafter, script: Script) -> Outputs:
    """A drafter without weights, run in eager torch over the script, as `drive_draft` runs its graph."""
    states = [torch.zeros(state.shape, dtype=state.dtype) for state in drafter.states()]
    outputs: Outputs = []
    for width, fed, committed in script.windows():
        path = [text[start : start + width + 1] for text, start in zip(script.texts, committed, strict=True)]
        window, n_total, states = drafter(
            torch.tensor(path), torch.tensor(fed), torch.tensor(committed), torch.arange(width + 1), states
        )
        outputs.append({"next_window": window.numpy(), "next_total": n_total.numpy()})
    names = [state.name for state in drafter.states()]
    return [*outputs, used({name: s.numpy() for name, s in zip(names, states, strict=True)}, script)]


def check_same(got: Outputs, expected: Outputs, graph: str, level: str, precision: str) -> dict[str, Any]:
    """Two runs of one script agree in every output: integers exactly, numbers within noise. Raises ProofError."""
    compared = 0
    for where, a, b in _pairs(got, expected, graph, level):
        if a.dtype.kind != "i":
            _check_close(a, b, NOISE[precision], where)
        elif not np.array_equal(a, b):
            raise ProofError(f"{where}: {a.tolist()}, expected {b.tolist()}")
        compared += a.size
    return {"graph": graph, "level": level, "values": compared, "tolerance": NOISE[precision]}


def check_near(got: Outputs, expected: Outputs, graph: str, level: str, precision: str) -> dict[str, Any]:
    """Two runs of one script in the same reduced precision: numbers within its noise. Raises ProofError.

    Tokens may then differ: the row of the proof counts how many agree.
    """
    compared = tokens = same = 0
    for where, a, b in _pairs(got, expected, graph, level):
        if a.dtype.kind == "i":
            tokens, same = tokens + a.size, same + int((a == b).sum())
        else:
            _check_close(a, b, NOISE[precision], where)
            compared += a.size
    row = {"graph": graph, "level": level, "values": compared, "tolerance": NOISE[precision]}
    return row | {"precision": precision, "tokens": tokens, "same_tokens": same}


def _pairs(got: Outputs, expected: Outputs, graph: str, level: str) -> Iterator[tuple[str, Array, Array]]:
    """Words that say where, and both arrays, for every output of every window; the first in the form of the second."""
    for step, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.keys() == b.keys(), f"{graph}, {level}: outputs {sorted(a)} and {sorted(b)}"
        for name in a:
            yield (
                f"{graph}, {level}, {name} after window {step}",
                a[name].reshape(b[name].shape).astype(b[name].dtype),
                b[name],
            )


def _check_close(got: Array, expected: Array, tolerance: float, where: str) -> None:
    difference, largest = float(np.abs(got - expected).max(initial=0)), float(np.abs(expected).max(initial=0))
    if not difference <= tolerance * max(largest, 1.0):
        raise ProofError(
            f"{where}: differs by {difference:.3g}, more than {tolerance} of the largest value {largest:.3g}",
            hint="the graph computes something else than the model: please report it with the recipe",
        )
