"""During a build: compare two versions of one graph, window by window from the same state, by polygraphy's Comparator.

In the proof each graph has its own caches, where a difference in one window hides in the next. Here both start every
window from the reference's state, so that a difference is reported where it arises. One graph is open at a time.
"""

from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from speccompile.compiler.diagnose.silence_polygraphy import quiet
from speccompile.compiler.diagnose.windows import Array, Window, meaningful, windows, with_new_rows
from speccompile.compiler.prove.schedule import DRAFTED, Schedule
from speccompile.compiler.weights.session import is_linked, open_linked
from speccompile.contract import (
    ENDS,
    PERSISTENT_PREFIX,
    Graph,
    Tensor,
    is_own_cache,
    is_recurrent_state,
    with_fixed_batch,
)
from speccompile.errors import ProofError
from speccompile.machine.system import available_cores
from speccompile.runtime.devices.sessions import AS_WRITTEN, session_options

_ERRORS_ONLY = 3  # ONNX Runtime's severities


def compare_graphs(
    reference: Path, candidate: Path, graph: Graph, script: Schedule, *, level: str, tolerance: float, exact: bool
) -> dict[str, Any]:
    """Run both ONNX files in ONNX Runtime on the CPU over a schedule; `graph` is the reference's contract.

    Numbers may differ by `tolerance` of the largest value of their tensor, or of 1. Integers must be equal if `exact`,
    except drafts, some of which are near-ties; equal drafts are counted. The candidate receives every state in its own
    dtype. Return counts: equal graphs give equal ones. Raise ProofError naming graph, output, window, difference,
    tolerance.
    """
    from polygraphy.comparator import Comparator

    checker, graph = _Checker(tolerance, exact=exact), with_fixed_batch(graph, len(script.texts))
    with quiet():
        fed = list(windows(graph, script, drafts=exact))
        expected, states = _reference(_cpu(reference), graph, fed)
        got = _candidate(_cpu(candidate), graph, fed, states)
        with closing(got):
            streams = [_stream("expected", expected), _stream("got", got)]
            (result,) = Comparator.compare_accuracy(streams, compare_func=checker, fail_fast=True)
    (verdicts,) = result.values()
    for step, outputs in enumerate(verdicts):
        for name, verdict in outputs.items():
            if not verdict:
                where = f"{graph.name}, {level}, {name} after window {step}"
                raise ProofError(f"{where}: {checker.describe(name, verdict)}", hint=_HINT)
    assert len(verdicts) == len(fed), "polygraphy compared other windows than the script has"
    counts = {"values": checker.values, "tolerance": tolerance}
    return {"graph": graph.name, "level": level, **counts, "tokens": checker.tokens, "same_tokens": checker.same_tokens}


def _cpu(onnx: Path) -> Any:
    from polygraphy.backend.onnxrt import OnnxrtRunner

    def open_session() -> ort.InferenceSession:
        if is_linked(onnx):
            return open_linked(onnx, available_cores())
        options = session_options(available_cores())
        options.log_severity_level = _ERRORS_ONLY  # it warns that caches are copied, as intended here
        providers = ["CPUExecutionProvider"]
        return ort.InferenceSession(str(onnx), options, providers=providers, disabled_optimizers=AS_WRITTEN)

    return OnnxrtRunner(open_session, name=onnx.name)


_HINT = "the graph computes something else than its reference: please report it with the recipe"


class _Checker:
    """polygraphy's comparison function for one window: expected and got, as `meaningful` returns them."""

    def __init__(self, tolerance: float, *, exact: bool) -> None:
        self._tolerance, self._exact = tolerance, exact
        self._largest: dict[str, float] = {}
        self.values = self.tokens = self.same_tokens = 0

    def __call__(self, expected: Mapping[str, Array], got: Mapping[str, Array]) -> "OrderedDict[str, Any]":
        from polygraphy.comparator import IterationResult, SimpleCompareFunc

        drafts = [name for name in expected if name.startswith(DRAFTED) and expected[name].dtype.kind == "i"]
        are_same = all(np.array_equal(expected[name], got[name]) for name in drafts)
        numbers = {
            name: array
            for name, array in expected.items()
            if array.dtype.kind == "f" and (are_same or not name.startswith(DRAFTED))
        }
        self._largest = {name: max(float(np.abs(array).max()), 1.0) for name, array in numbers.items()}
        limits = {name: self._tolerance * largest for name, largest in self._largest.items()}
        self.values += sum(array.size for array in numbers.values())
        compare = SimpleCompareFunc(check_error_stat="max", atol=limits, rtol=0.0)
        verdicts: OrderedDict[str, Any] = compare(
            IterationResult(numbers), IterationResult({name: got[name] for name in numbers})
        )
        for name, array in expected.items():
            if array.dtype.kind != "f":
                same = int((array == got[name]).sum()) if array.shape == got[name].shape else 0
                self.tokens, self.same_tokens = self.tokens + array.size, self.same_tokens + same
                if self._exact and not name.startswith(DRAFTED):
                    verdicts[name] = same == array.size
        return verdicts

    def describe(self, name: str, verdict: Any) -> str:
        """Return a message for a failed comparison of the last window."""
        if name not in self._largest:
            return "other integers than expected"
        if verdict is False:  # polygraphy's value for it
            return "another shape than expected"
        return (
            f"differs by {verdict.max_absdiff:.3g}, more than {self._tolerance} of the largest value "
            f"{self._largest[name]:.3g}"
        )


def _reference(runner: Any, graph: Graph, fed: list[Window]) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
    """Return the reference's outputs for every window, and the used part of the states from which it starts each
    one."""
    states = {tensor.name: _empty(tensor) for tensor in graph.inputs if tensor.role == "state"}
    found, before = [], []
    with closing(_run(runner, (window.feed | states for window in fed))) as runs:
        for window, outputs in zip(fed, runs, strict=True):
            most, several = max(window.committed), ENDS in states
            before.append(
                {
                    name: _rows(whole)[..., : _used(name, most, several=several), :].copy()
                    for name, whole in states.items()
                }
            )
            found.append(meaningful(graph, window, outputs))
            states |= {read: outputs[written] for written, read in graph.aliases.items()}
    return found, before


def _candidate(
    runner: Any, graph: Graph, fed: list[Window], states: list[dict[str, Array]]
) -> Generator[dict[str, Array]]:
    read = [tensor for tensor in graph.inputs if tensor.role == "state"]

    def feed(window: Window, before: dict[str, Array]) -> dict[str, Array]:
        whole = {tensor.name: _empty(tensor) for tensor in read}
        for name, rows in before.items():
            _rows(whole[name])[..., : rows.shape[-2], :] = rows
        return window.feed | whole

    feeds = (feed(window, before) for window, before in zip(fed, states, strict=True))
    with closing(_run(runner, feeds)) as runs:
        for window, before, outputs in zip(fed, states, runs, strict=True):
            with_new_rows(graph, window, feed(window, before), outputs)
            yield meaningful(graph, window, outputs)


def _used(state: str, most: int, *, several: bool) -> int | None:
    """Return the number of meaningful rows of a state; None for all: persistent and recurrent states have no row per
    token, and caches of a drafter with another tokenizer have several."""
    is_whole = state.startswith(PERSISTENT_PREFIX) or is_recurrent_state(state) or (several and is_own_cache(state))
    return None if is_whole else most


def _empty(tensor: Tensor) -> Array:
    return np.zeros(tensor.concrete_shape({}), tensor.dtype)


def _rows(state: Array) -> Array:
    """Return a view of a state, [B, G, S, D] or [B, S], whose axis before the last is that of the rows."""
    return state if state.ndim == 4 else state[..., None]


def _run(runner: Any, feeds: Iterable[dict[str, Array]]) -> Generator[dict[str, Array]]:
    """Yield the outputs of a runner, which takes the next feed once the last outputs have been used, and casts it.

    The runner is open until the generator is closed: an unclosed one reports that on stdout.
    """
    from polygraphy.comparator import Comparator

    with closing(Comparator.run([runner], data_loader=feeds, streaming=True)) as stream:
        for single in stream:
            ((_, (outputs,)),) = single
            yield dict(outputs.items())


def _stream(name: str, results: Iterable[dict[str, Array]]) -> Iterator[Any]:
    from polygraphy.comparator import IterationResult, RunResults

    for outputs in results:
        yield RunResults([(name, [IterationResult(outputs, runner_name=name)])])
