"""Whatever ends a build early: a signal, a limit, a full disk, the end of whoever started it."""

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorrt_rtx

from speccompile.compiler.engines import Limits, Settings
from speccompile.compiler.engines.tensorrt import build_engine
from speccompile.contract import Graph
from speccompile.errors import EngineError
from tests.compile import tiny_graphs
from tests.compile.engine_builds import LIMITS, build, refusal, wait_for, when_it_builds, worker_in_the_build, workers
from tests.compile.tiny_graphs import Tiny, slow
from tests.full_disk import largest_file

BUILD = """
import json, sys
from pathlib import Path
from speccompile.cli.exit_codes import _terminate_as_interrupt
from speccompile.contract import Graph
from speccompile.compiler.engines import Limits, Settings, process
onnx, graph, settings, output = sys.argv[1:]
graph, settings = Graph.from_json(json.loads(graph)), Settings.from_json(json.loads(settings))
with _terminate_as_interrupt():
    process.build(Path(onnx), graph, settings, Path(output), Limits(300, 8e9))
"""


@pytest.mark.parametrize(
    ("number", "what", "hint"),
    [
        (signal.SIGKILL, "the builder was killed", "most likely the system ran out of memory"),
        (signal.SIGSEGV, "the builder crashed with SIGSEGV", "this is a fault of TensorRT"),
    ],
)
def test_a_builder_that_is_killed_in_the_middle(tmp_path, number, what, hint):
    with when_it_builds(tmp_path / "out", number):
        error = refusal(tmp_path, slow)
    assert f"target float32): {what}; it was building the engine" in str(error)
    assert str(error.hint).startswith(hint)


def test_a_builder_that_takes_too_long(tmp_path):
    with when_it_builds(tmp_path / "out", signal.SIGSTOP):
        error = refusal(tmp_path, slow, limits=Limits(seconds=3, memory=8e9))
    assert "the builder was not done after 3 seconds; it was building the engine" in str(error)
    assert error.hint == "give it more with $SPECCOMPILE_BUILDER_SECONDS"
    assert workers(tmp_path) == []


def test_a_builder_that_takes_too_much_memory(tmp_path):
    error = refusal(tmp_path, slow, limits=Limits(seconds=300, memory=60e6))
    assert "the builder took more than 0.06 GB of memory (nine tenths of " in str(error)
    assert "choose a precision with fewer bits, give the builder more with $SPECCOMPILE_BUILDER_MEMORY_GB" in error.hint
    assert workers(tmp_path) == []


@pytest.mark.parametrize("size", [100_000, 100])
def test_a_disk_that_takes_no_more(tmp_path, size):
    """Limit files to 100,000 bytes, which the engine exceeds, and to 100, which the job exceeds."""
    tight = largest_file(size)

    def prepare(tiny: Tiny) -> Tiny:
        tight.__enter__()
        return tiny

    try:
        error = refusal(tmp_path, prepare=prepare)
    finally:
        tight.__exit__(None, None, None)
    assert "the engine could not be written: File too large" in str(error)
    assert error.hint == "free some disk space, or choose another output"


def test_a_device_that_is_full(tmp_path):
    tiny = tiny_graphs.write(tmp_path)
    with pytest.raises(OSError, match="No space left on device") as raised:
        build_engine(tensorrt_rtx, tiny.onnx, tiny.graph, tiny.settings(), Path("/dev/full"), LIMITS)
    assert raised.value.errno == errno.ENOSPC


def test_a_folder_that_is_not_there(tmp_path):
    tiny = tiny_graphs.write(tmp_path)
    with pytest.raises(EngineError, match="the engine could not be built: No such file or directory") as raised:
        build(tiny, tmp_path / "absent" / "verify.engine")
    assert raised.value.hint == "check the permissions of the output folder"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_builder_ends_with_whoever_started_it(tmp_path, number):
    tiny = tiny_graphs.write(tmp_path / "graphs", change=slow)
    output = tmp_path / "out" / "verify.engine"
    output.parent.mkdir()
    words = [str(tiny.onnx), *map(_json, (tiny.graph, tiny.settings())), str(output)]
    with subprocess.Popen([sys.executable, "-c", BUILD, *words], stderr=subprocess.PIPE, text=True) as parent:
        builder = worker_in_the_build(output.parent)
        parent.send_signal(number)
        parent.wait(20)
        wait_for(lambda: builder not in workers(tmp_path), 10)
        assert parent.stderr is not None
        assert ("KeyboardInterrupt" in parent.stderr.read()) == (number != signal.SIGKILL)
    if number != signal.SIGKILL:
        assert list(output.parent.iterdir()) == []


def _json(value: Graph | Settings) -> str:
    return json.dumps(value.to_json())
