"""Sessions of processes that are killed or that write one file at once: the file is an old one or a new one, whole."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from speccompile.runtime.session_file import read_session
from speccompile.runtime.sessions import TOKENS
from tests.light.fake_bundle import toy_bundle

WRITE = (
    "import sys; from tests.light.fake_bundle import toy_bundle\n"
    "bundle, first = toy_bundle(), int(sys.argv[2])\n"
    "print('ready', flush=True)\n"
    "for number in range(int(sys.argv[3])):\n"
    "    bundle.generate([first] * (20 + number % 60), max_new_tokens=4)\n"
    "    bundle.save_session(sys.argv[1])\n"
)


def started(path: Path, first: int, times: int) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", WRITE, path, str(first), str(times)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def read(path: Path) -> list[int]:
    """Return the tokens of a file, which is whole."""
    return read_session(path, 1 << 30).tensors[TOKENS][1].tolist()


def test_a_writer_that_is_killed_leaves_a_whole_file(tmp_path):
    path, dice, named = tmp_path / "s", Random(5), {"s"}
    for _ in range(3):
        process = started(path, 3, 10**6)
        while not path.exists():
            time.sleep(0.001)
        time.sleep(dice.random() / 20)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert set(read(path)[:20]) == {3}
        assert toy_bundle().load_session(path)[:20] == [3] * 20
        named.add(f".s.{process.pid}")  # of one that was killed between the two calls that name and move it
    assert {file.name for file in tmp_path.iterdir()} <= named
    if sys.platform == "linux":
        assert all(set(read(file)[:20]) == {3} for file in tmp_path.iterdir())
    assert path.stat().st_mode & 0o777 == 0o600


def test_of_two_processes_on_one_file_one_has_the_last_word(tmp_path):
    path = tmp_path / "s"
    writers = [started(path, first, 150) for first in (3, 4)]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            seen.add(read(path)[0])
    assert [writer.wait() for writer in writers] == [0, 0]
    assert seen <= {3, 4}
    assert toy_bundle().load_session(path)[0] in (3, 4)
    assert [file.name for file in tmp_path.iterdir()] == ["s"]
