"""One trace of slot operations, run by both runtimes, over graphs that are arithmetic."""

from pathlib import Path
from typing import Any

import pytest

from tests.native.slot_operations import TRACES, NativeSlots, PythonSlots, Trace, check_trace, single_operations
from tests.native.toy_onnx import write_arithmetic_bundle

KINDS = {
    "alone": {"drafts": False},
    "drafted": {},
    "fused": {"fused": True},
    "sampled": {"samples": True},
    "sampled, fused": {"samples": True, "fused": True},
    "whole batch": {"samples": True, "has_slices": False},
    "whole batch, fused": {"fused": True, "has_slices": False},
}


def opened(folder: Path, program: Path, onnxruntime: Path, trace: Trace) -> tuple[PythonSlots, NativeSlots]:
    ours = PythonSlots(folder, trace)
    return ours, NativeSlots(program, folder, onnxruntime, ours.widths)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trace", TRACES, ids=str)
def test_both_runtimes_hold_the_same(tmp_path, native_build: Path, onnxruntime_library: Path, kind: str, trace: Trace):
    folder = write_arithmetic_bundle(tmp_path / "b", **KINDS[kind])
    answers = check_trace(trace, folder, native_build / "slot_lines", onnxruntime_library)
    tokens = [slot["tokens"] for answer in answers for slot in answer["slots"] if slot["tokens"]]
    assert max(map(len, tokens)) > 5


def test_traces_reach_what_they_are_for(tmp_path):
    """Slots in other phases, a drafter that lags, that catches up with a copy and after a pause."""
    folder, seen = write_arithmetic_bundle(tmp_path / "b"), dict[str, list[dict[str, Any]]]()
    for trace in TRACES:
        slots = PythonSlots(folder, trace)
        seen[trace.name] = [asked | slots.run(asked) for asked in single_operations(trace, slots)]
    phases = [
        {slot["is_prefilled"] for slot in each["slots"] if slot["tokens"] is not None} for each in seen["three slots"]
    ]
    assert {True, False} in phases
    lagging = [each["slots"] for each in seen["a drafter that has missed tokens"]]
    assert any(slot["drafter"] < slot["committed"] for slots in lagging for slot in slots if slot["is_prefilled"])
    assert any(slot["drafter"] == slot["committed"] > 37 for slots in lagging for slot in slots if slot["is_prefilled"])
    told = {call[0] for each in seen["drafting that pauses"] for call in each["policy"]}
    assert told >= {
        "begin",
        "join",
        "next_width",
        "record_autoregressive",
        "record_verify",
        "record_draft",
        "record_catch_up",
    }
    for trace in seen.values():
        for each in trace:
            if "copy" in each:
                source, slot = each["copy"]
                states = [lines for name, lines in each["buffers"].items() if ".key." in name]
                assert states
                assert all(lines[source] == lines[slot] for lines in states)


REFUSED = [
    ({"admit": 0}, "slot 0 is taken"),
    ({"prefill": 0, "most": None}, "the text of slot 0 has been read"),
    ({"copy": [1, 0]}, "slot 0 is taken"),
    ({"release": 1}, "slot 1 is free"),
    ({"prefill": 1, "most": None}, "slot 1 is free"),
    ({"admit": 1, "reuse": 1}, "slot 1 holds 0 tokens, not 1"),
    ({"admit": 2, "reuse": 5}, "the last token of a text is always read"),
]


def test_both_refuse_another_order(tmp_path, native_build: Path, onnxruntime_library: Path):
    """Refuse, and keep the state of before."""
    admit = {
        "prompt": [3, 4, 5, 6, 7],
        "new_tokens": 9,
        "speculative": True,
        "adaptive": False,
        "reuse": 0,
        "sampling": {},
    }
    folder = write_arithmetic_bundle(tmp_path / "b")
    ours, theirs = opened(folder, native_build / "slot_lines", onnxruntime_library, TRACES[0])
    with theirs:
        for asked in ({"admit": 0} | admit, {"prefill": 0, "most": None}, {"copy": [0, 2]}, {"decode": None}):
            held = ours.run(asked)
            assert theirs.run(asked) == held
        for asked, message in REFUSED:
            whole = asked if "admit" not in asked else {"admit": asked["admit"]} | admit | asked
            assert ours.run(whole) == theirs.run(whole) == {"refused": message}
        for each in (ours, theirs):
            assert each.run({"decode": None})["slots"][1:] == held["slots"][1:]
