"""Operations on batch slots, recorded as data: Python's decode loop and C++'s run them, and every state is compared.

`slot_traces.json` has the prompts and the traces. Of an operation, what is left out has these values:

admit     prompt: its name; speculative true; adaptive false; reuse 0; sampling none, as in bundles that are greedy
prefill   most: tokens of a chunk, by default those of the bundle; times: chunks, by default all that are left
decode    number of rounds
copy      source and destination;  release: the slot

`widths`, of a trace, are those of adaptive rounds in turn: a bundle takes the nearest that it has. What no bundle of a
kind can do is left out: `reuse` where states forbid it.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from blake3 import blake3

from speccompile.bundle.manifest import EngineEntry, Manifest
from speccompile.bundle.reader import open_bundle
from speccompile.bundle.sampling import SamplingParams
from speccompile.contract import BATCH, PERSISTENT_PREFIX, Tensor
from speccompile.runtime.devices.engines import choose, open_engine
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.decode_loop import DecodeLoop
from speccompile.runtime.rounds.host_drafts import find_proposer

FILE = json.loads(Path(__file__).with_name("slot_traces.json").read_text())
NEW_TOKENS = 24

Operation = Mapping[str, Any]


@dataclass(frozen=True)
class Trace:
    """A trace of the file. slots: the number that it needs."""

    name: str
    slots: int
    operations: list[dict[str, Any]]
    widths: tuple[int, ...] = (1,)

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


TRACES = [Trace(**each) for each in FILE["traces"]]


class RecordedPolicy:
    """A policy of widths in turn, which writes down what it is asked and told, but for the seconds."""

    def estimated_speedup(self, draft_lengths: Sequence[int], new_tokens: int) -> None:
        return None

    def __init__(self, widths: list[int]) -> None:
        self._widths, self._asked, self.calls = widths, 0, list[list[Any]]()

    def begin(self, prompt: int, room: int) -> int:
        return self._next("begin", prompt, room)

    is_resting = False  # every width comes from the test

    def next_width(self, lag: int) -> int:
        return self._next("next_width", lag)

    def join(self, prompt: int, room: int) -> None:
        self.calls.append(["join", prompt, room])

    def record_batch_size(self, rows: int) -> None:
        self.calls.append(["record_batch_size", rows])

    def record_autoregressive(self, seconds: float | None) -> None:
        self.calls.append(["record_autoregressive", seconds is not None])

    def record_verify(self, width: int, seconds: float | None, accepted: list[int], without: int) -> None:
        self.calls.append(["record_verify", width, seconds is not None, accepted, without])

    def record_draft(self, seconds: float | None) -> None:
        self.calls.append(["record_draft", seconds is not None])

    def record_catch_up(self, tokens: int, seconds: float, lost: float) -> None:
        self.calls.append(["record_catch_up", tokens, lost > 0])

    def _next(self, *call: Any) -> int:
        self.calls.append(list(call))
        self._asked += 1
        return self._widths[(self._asked - 1) % len(self._widths)]


class PythonSlots:
    """Python's decode loop over buffers of its own. `run` returns what native/tests/slots.cpp answers."""

    def __init__(self, folder: Path, trace: Trace) -> None:
        opened = open_bundle(folder)
        self.manifest: Manifest = opened.manifest
        self.entry: EngineEntry = choose(self.manifest, None)
        self.engine = open_engine(opened.folder, self.entry, 1, batch_size=self.manifest.batch_size)
        proposer = find_proposer(opened.folder, self.manifest, None)
        self.loop = DecodeLoop(self.engine, self.manifest, proposer=proposer, graphs=self.entry.graphs)
        self.widths = [self._offered(width) for width in trace.widths]
        self._policy = RecordedPolicy(self.widths)
        self.loop.drafting.policy = self._policy  # type: ignore[assignment]  # the rest is not asked for
        self.loop.start()

    def _offered(self, width: int) -> int:
        offered = self.loop.drafting.widths
        return next((each for each in offered if each >= width), offered[-1])

    def run(self, asked: Operation) -> dict[str, Any]:
        try:
            returned = self._operate(asked)
        except AssertionError as error:
            return {"refused": str(error)}
        calls, self._policy.calls = self._policy.calls, []
        slots = [self._state(slot) for slot in range(self.manifest.batch_size)]
        return {"returned": returned, "slots": slots, "buffers": self._digests(), "policy": calls}

    def _operate(self, asked: Operation) -> Any:
        match dict(asked):
            case {"admit": slot}:
                row = SequenceState(asked["prompt"], asked["new_tokens"], self.manifest.max_length,
                                    self.manifest.eos_token_ids, None, SamplingParams(**asked["sampling"]))  # fmt: skip
                how = {name: asked[name] for name in ("speculative", "adaptive", "reuse")}
                return self.loop.admit(slot, row, **how)
            case {"prefill": slot}:
                return self.loop.prefill(slot, asked["most"])
            case {"release": slot}:
                return list(self.loop.release(slot))
            case {"copy": [source, slot]}:
                return self.loop.copy(source, slot)
            case _:
                return self.loop.decode()

    def _state(self, index: int) -> dict[str, Any]:
        slot = self.loop._slots[index]
        row = slot.sequence_or_none
        return {
            "committed": slot.committed_length, "drafter": slot.drafter_length,
            "is_prefilled": self.loop.is_prefilled(index), "has_drafts": slot.has_drafts,
            "tokens": row and row.token_ids, "finish_reason": row and row.finish_reason,
        }  # fmt: skip

    def _digests(self) -> dict[str, list[str]]:
        tensors = (tensor for graph in self.entry.graphs for tensor in (*graph.inputs, *graph.outputs))
        return {tensor.buffer: self._digest(tensor) for tensor in tensors if _has_one_shape(tensor)}

    def _digest(self, tensor: Tensor) -> list[str]:
        """Return the digests of a buffer's lines, or of the whole of one that all slots share. What lies behind the
        committed tokens counts as well: equal runs leave equal drafts there."""
        values = self.engine.host_view(tensor.buffer, tensor.concrete_shape({BATCH: self.manifest.batch_size}))
        lines = [values] if tensor.buffer.startswith(PERSISTENT_PREFIX) else values
        return [blake3(line.tobytes()).hexdigest() for line in lines]


def _has_one_shape(tensor: Tensor) -> bool:
    varies = any(isinstance(size, str) and size != BATCH for size in tensor.shape)
    return tensor.role not in ("link", "optional") and not varies


class NativeSlots:
    """The same in C++, in a process of its own."""

    def __init__(self, program: Path, folder: Path, onnxruntime: Path, widths: list[int], **more: Any) -> None:
        """more: what else the program is told at first."""
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._say({"open": str(folder), "onnxruntime": str(onnxruntime), "widths": widths} | more)

    def run(self, asked: Operation) -> dict[str, Any]:
        self._say(asked)
        assert self._process.stdout
        answered = self._process.stdout.readline()
        assert answered, f"the program ended at {asked}"
        found: dict[str, Any] = json.loads(answered)
        return found

    def _say(self, line: Operation) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()
        assert kind or self._process.returncode == 0


def single_operations(trace: Trace, slots: PythonSlots) -> Iterator[dict[str, Any]]:
    """Yield the operations of a trace one by one, as a bundle can take them."""
    is_greedy, can_reuse = slots.manifest.decoding == "greedy", slots.loop.supports_prefix_reuse
    for each in trace.operations:
        match each:
            case {"admit": slot}:
                default = {
                    "admit": slot,
                    "new_tokens": NEW_TOKENS,
                    "speculative": True,
                    "adaptive": False,
                    "reuse": 0,
                    "sampling": {},
                }
                asked = default | each | {"prompt": FILE["prompts"][each["prompt"]]}
                asked["speculative"] = asked["speculative"] and slots.loop.can_draft
                yield asked | ({"sampling": {}} if is_greedy else {}) | ({} if can_reuse else {"reuse": 0})
            case {"prefill": slot}:
                left = each.get("times", -1)
                while left and not slots.loop.is_prefilled(slot):
                    yield {"prefill": slot, "most": each.get("most")}
                    left -= 1
            case {"decode": rounds}:
                yield from ({"decode": None} for _ in range(rounds))
            case _:
                yield each


def check_trace(trace: Trace, folder: Path, program: Path, onnxruntime: Path) -> list[dict[str, Any]]:
    """Run a trace in both languages and compare what they hold after each operation. Return Python's answers."""
    ours, answers = PythonSlots(folder, trace), list[dict[str, Any]]()
    with NativeSlots(program, folder, onnxruntime, ours.widths) as theirs:
        for number, asked in enumerate(single_operations(trace, ours)):
            expected, found = ours.run(asked), theirs.run(asked)
            where = f"operation {number}: {asked}"
            for name in ("returned", "slots", "policy"):
                assert found[name] == expected[name], where
            assert found["buffers"].keys() == expected["buffers"].keys()
            differing = [name for name, lines in expected["buffers"].items() if found["buffers"][name] != lines]
            assert not differing, where
            answers.append(expected)
    return answers
