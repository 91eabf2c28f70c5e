"""What scripts/acceptance.py times is the acceptance: exported alone and lowered, it decides as eager torch does."""

import runpy
from pathlib import Path

import pytest
import torch

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "acceptance.py"))
VOCABULARY = 9001  # in blocks, and a prime


@pytest.mark.sweep("a trace each; what is drawn has all the parts", but=["drawn"])
@pytest.mark.parametrize("kind", ["greedy", "sampling", "drawn"])
def test_the_timed_graph_accepts_as_torch_does(kind):
    session = SCRIPT["opened"](SCRIPT["lowered"](kind, VOCABULARY))
    module = SCRIPT["Alone"](kind)
    for _, settings, history in SCRIPT["CASES"].values():
        feeds = SCRIPT["inputs_of"](kind, VOCABULARY, settings, history)
        read = {value.name for value in session.get_inputs()}
        got = session.run(None, {name: value for name, value in feeds.items() if name in read})
        expected = module({name: torch.from_numpy(value) for name, value in feeds.items()})
        for value, wanted in zip(got, expected, strict=True):
            assert value.tolist() == wanted.tolist()
