"""One trace of slot operations, run by both runtimes over models: chains, trees, states and drafters of every form that
has several batch slots."""

import pytest

from tests.compile.combinations import FIRST, ON_STATES, REASON, Combination, every, is_tried
from tests.native.slot_operations import TRACES, Trace, check_trace
from tests.suite.selection import sweep_but

ALL = [each for each in (*filter(is_tried, every()), *ON_STATES) if each.batch_size > 1]
SEVERAL = [each for each in FIRST if each in ALL]
BATCHES = ("model_4", "lookup_3")
"""Bundles of three slots: a draft model with a cache of its own, and a look-up in the text."""


@pytest.mark.parametrize("trace", TRACES, ids=str)
@pytest.mark.parametrize("name", BATCHES)
def test_bundles_with_three_slots(built, native_build, onnxruntime_library, name: str, trace: Trace):
    check_trace(trace, built(name).path, native_build / "slot_lines", onnxruntime_library)


@pytest.mark.parametrize("trace", [each for each in TRACES if each.slots == 2], ids=str)
@pytest.mark.parametrize("combination", sweep_but(SEVERAL, ALL, REASON), ids=str)
def test_bundles_with_two_slots(workshop, native_build, onnxruntime_library, combination: Combination, trace: Trace):
    check_trace(trace, workshop.bundle(combination), native_build / "slot_lines", onnxruntime_library)
