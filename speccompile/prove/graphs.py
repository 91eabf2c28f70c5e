"""The graph level: neutral ONNX against transformers eager, lowered ONNX against neutral.

A graph is driven over a script of windows, some wide, some narrow, some rows idle, through the runtime's own engine.
The logits of every window are compared with one eager forward over the whole text, and two graphs of the same round
must agree in everything: outputs and committed caches.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from speccompile.contract import Graph
from speccompile.errors import ProofError
from speccompile.prove.noise import NOISE, within_noise
from speccompile.prove.reference import Logits, check_greedy, sequence_logits
from speccompile.runtime.engine import Array, Engine
from speccompile.step.draft import Drafter

Outputs = list[dict[str, Array]]
"""What a graph gave for each window of a script, and the used part of its states at the end."""


@dataclass(frozen=True)
class Script:
    """A text a row, and the widths in which it is fed. Later rows sit out the first windows, as ragged prompts do."""

    texts: list[list[int]]
    widths: list[int]

    def windows(self) -> Iterator[tuple[int, list[int], list[int]]]:
        """Width, tokens fed to each row (0 or width), and tokens committed in each row before."""
        committed = [0] * len(self.texts)
        for step, width in enumerate(self.widths):
            fed = [width if step >= row % 2 else 0 for row in range(len(self.texts))]
            yield width, fed, list(committed)
            committed = [a + b for a, b in zip(committed, fed, strict=True)]


def make_script(vocabulary_size: int, batch: int, max_length: int, chunk: int, longest_window: int) -> Script:
    """Random tokens; prefill, single tokens and drafts in turn, past any attention window that is not too long."""
    wanted = min(max_length, max(40, longest_window + 24 if longest_window <= 512 else 0))
    widths: list[int] = []
    for width in (min(chunk, 17), 1, 5, 1, 2):
        widths += [width] if sum(widths) + width <= wanted else []
    while sum(widths) < wanted:
        widths.append(min(chunk, 24, wanted - sum(widths)))
    random = np.random.default_rng(0)
    texts = random.integers(0, vocabulary_size, (batch, sum(widths) + 1)).tolist()
    return Script(texts, widths)


def drive_verify(engine: Engine, script: Script, graph: Graph) -> Outputs:
    """Feed the script to `verify`, asking for the logits of every row. The host moves `length`, not the acceptance."""
    given, outputs = [(len(script.texts),)], []
    n_given, n_total, length = (engine.array(name, *given) for name in ("n_given", "n_total", "length"))
    for width, fed, committed in script.windows():
        run = engine.bind("verify", {"window": width, "logit_rows": width}, ("logits",))
        window = engine.array("window", (len(fed), width))
        for row, (text, start) in enumerate(zip(script.texts, committed, strict=True)):
            window[row] = text[start : start + width]
        n_given[:] = np.minimum(fed, 1)
        n_total[:], length[:] = fed, committed
        run()
        outputs.append(_read(engine, graph, {"window": width, "logit_rows": width}))
    return [*outputs, _states(_arrays(engine, graph), script)]


def drive_draft(engine: Engine, script: Script, graph: Graph) -> Outputs:
    """Feed the script to `draft`: each window's tokens are the accepted path, the token behind them the bonus."""
    shape, outputs = (len(script.texts),), []
    n_path, length = engine.array("n_path", shape), engine.array("length", shape)
    for width, fed, committed in script.windows():
        widths = {"window": width, "catch_up": width + 1}
        run = engine.bind("draft", widths)
        path = engine.array("path", (len(fed), width + 1))
        for row, (text, start) in enumerate(zip(script.texts, committed, strict=True)):
            path[row] = text[start : start + width + 1]
        n_path[:], length[:] = fed, committed
        run()
        outputs.append(_read(engine, graph, widths))
    return [*outputs, _states(_arrays(engine, graph), script)]


def _read(engine: Engine, graph: Graph, widths: Mapping[str, int]) -> dict[str, Array]:
    outputs = (t for t in graph.outputs if t.role != "state")
    return {t.name: engine.array(t.buffer, t.concrete_shape(dict(widths))).copy() for t in outputs}


def _arrays(engine: Engine, graph: Graph) -> dict[str, Array]:
    states = (t for t in graph.outputs if t.role == "state")
    return {t.buffer: engine.array(t.buffer, t.concrete_shape({})) for t in states}


def _states(arrays: Mapping[str, Array], script: Script) -> dict[str, Array]:
    """The committed part of every state: what lies behind it is never read."""
    found = {}
    for name, whole in arrays.items():
        for row in range(len(script.texts)):
            used = sum(fed[row] for _, fed, _ in script.windows())
            found[f"{name} row {row}"] = (whole[row, :, :used] if whole.ndim == 4 else whole[row, :used]).copy()
    return found


@torch.no_grad()
def eager_logits(model: nn.Module, script: Script) -> list[Logits]:
    """transformers eager over each whole text: float32 [n, V] a row."""
    return [sequence_logits(model, text[:-1]) for text in script.texts]


def check_verify(outputs: Outputs, script: Script, eager: Sequence[Logits], precision: str) -> dict[str, Any]:
    """Logits of every window against the eager ones. Raises ProofError naming window, row and difference."""
    compared = 0
    for step, (width, fed, committed) in enumerate(script.windows()):
        for row, start in enumerate(committed):
            if fed[row]:
                expected = eager[row][start : start + width]
                _check_close(outputs[step]["logits"][row], expected, precision, f"verify, window {step}, row {row}")
                compared += expected.size
    return {"graph": "verify", "level": "neutral against eager", "values": compared, "tolerance": NOISE[precision]}


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


def check_draft(outputs: Outputs, script: Script, eager: list[list[Logits]], precision: str) -> dict[str, Any]:
    """Drafts of every window against the eager drafter's greedy ones. Raises ProofError at a difference."""
    compared = 0
    for step, (_, fed, _) in enumerate(script.windows()):
        for row, n in enumerate(fed):
            if n:
                drafts = outputs[step]["next_window"][row, 1 : 1 + len(eager[step][row])].tolist()
                ties = check_greedy(
                    eager[step][row], drafts, precision, f"draft, window {step}, row {row}", "the graph"
                )
                compared += ties[0].index if ties else len(drafts)  # behind a near-tie the texts differ
    return {"graph": "draft", "level": "neutral against eager", "values": compared, "tolerance": NOISE[precision]}


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
    return [*outputs, _states({name: s.numpy() for name, s in zip(names, states, strict=True)}, script)]


def check_same(got: Outputs, expected: Outputs, graph: str, level: str, precision: str) -> dict[str, Any]:
    """Two runs of one script agree in every output: integers exactly, numbers within noise. Raises ProofError."""
    compared = 0
    for step, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.keys() == b.keys(), f"{graph}, {level}: outputs {sorted(a)} and {sorted(b)}"
        for name in a:
            where = f"{graph}, {level}, {name} after window {step}"
            if a[name].dtype.kind == "i":
                if not np.array_equal(a[name], b[name]):
                    raise ProofError(f"{where}: {a[name].tolist()}, expected {b[name].tolist()}")
            else:
                _check_close(a[name], b[name], precision, where)
            compared += a[name].size
    return {"graph": graph, "level": level, "values": compared, "tolerance": NOISE[precision]}


def _check_close(got: Array, expected: Array, precision: str, where: str) -> None:
    difference, largest = float(np.abs(got - expected).max(initial=0)), float(np.abs(expected).max(initial=0))
    if not within_noise(difference, largest, precision):
        raise ProofError(
            f"{where}: differs by {difference:.3g}, more than {NOISE[precision]} of the largest value {largest:.3g}",
            hint="the graph computes something else than the model: please report it with the recipe",
        )
