"""Caches and buffers are static: updated where they lie, never moved, never copied."""

import subprocess
import sys

import onnx
import pytest

from speccompile.contract import BATCH
from tests.compile.tiny_bundles import FIRST, NEW_TOKENS, each

GENERATE_LOUDLY = """
import sys
import onnxruntime
onnxruntime.set_default_logger_severity(2)
from speccompile.runtime import Bundle
for folder in sys.argv[1:]:
    bundle = Bundle.open(folder, threads=1)
    for mode in (False, True):
        prompts = [[5], list(range(3, 43))][: bundle.manifest.batch_size]
        bundle.generate_batch(prompts, max_new_tokens=20, autoregressive=mode)
"""


def states(bundle):
    """Name -> (address, the memory seen from here), for everything that is kept from round to round."""
    found = {}
    for graph in bundle.manifest.graphs:
        for tensor in graph.inputs:
            if tensor.role == "state":
                found[tensor.buffer] = (
                    bundle.engine.address(tensor.buffer),
                    bundle.engine.host_view(tensor.buffer, tensor.concrete_shape({BATCH: bundle.manifest.batch_size})),
                )
    return found


@pytest.mark.parametrize("name", each())
def test_caches_are_written_where_they_lie(built, name):
    case = built(name)
    for prompt in case.prompts():
        case.bundle.generate(prompt, max_new_tokens=1, adaptive=False)
    before = states(case.bundle)
    assert before
    for _, memory in before.values():
        memory[:] = 0
    prompt = case.prompts()[6]
    prompts = [prompt] * case.bundle.manifest.batch_size
    case.bundle.generate_batch(prompts, max_new_tokens=NEW_TOKENS, adaptive=False)  # every round writes every state
    after = states(case.bundle)
    assert {name: address for name, (address, _) in after.items()} == {name: one for name, (one, _) in before.items()}
    for address, memory in after.values():
        assert memory.ctypes.data == address
        rows = memory[:, :, : len(prompt)] if memory.ndim == 4 else memory[:, : len(prompt)]
        assert (rows != 0).any(axis=tuple(range(2, rows.ndim))).all()


@pytest.mark.parametrize("name", each())
def test_a_state_is_scattered_into_and_nothing_else(built, name):
    """Find one TensorScatter between a state's input and its output: any other node would copy the whole buffer."""
    case = built(name)
    (engine,) = case.bundle.manifest.engines
    for graph in case.bundle.manifest.graphs:
        nodes = onnx.load(case.path / engine.files[graph.name], load_external_data=False).graph.node
        made_by = {output: node for node in nodes for output in node.output}
        for output, read in graph.aliases.items():
            assert (made_by[output].op_type, made_by[output].input[0]) == ("TensorScatter", read)


def test_the_engine_has_nothing_to_complain_of(built):
    folders = [built(name).path for name in FIRST]
    command = [sys.executable, "-c", GENERATE_LOUDLY, *folders]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
