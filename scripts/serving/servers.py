"""Servers of processes of their own."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOCAL = "127.0.0.1"
OURS = (sys.executable, "-m", "speccompile")


@dataclass(frozen=True)
class Server:
    """One that is ready."""

    address: str
    process: subprocess.Popen[str]


@contextmanager
def serving(bundle: Path, options: list[str], program: tuple[str, ...] = OURS) -> Iterator[Server]:
    """Start our server, and end it behind the block unless it was killed. program: `OURS`, or the one in C++."""
    command = [*program, "serve", str(bundle), "--port", "0", *options]
    with _ending(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None
        yield _ready(process.stdout.readline().strip(), process)


@contextmanager
def serving_llama_cpp(program: Path, bundle: Path, options: list[str], log: Path) -> Iterator[Server]:
    """Yield llama.cpp's, told to end behind it, with what the bundle has: rows, their length, whether it draws.

    log: a file for all that it says.
    """
    manifest = json.loads((bundle / "manifest.json").read_text())
    rows, length = manifest["batch_size"], manifest["max_length"]
    port = free_port()
    greedy = ["--samplers", "top_k", "--top-k", "1", "--temp", "0"]
    command = [
        str(program), "--host", LOCAL, "--port", str(port), "--alias", bundle.name, "--offline",
        "--parallel", str(rows), "--ctx-size", str(rows * length),
        *(greedy if manifest["decoding"] == "greedy" else ["--samplers", "temperature", "--temp", "1"]), *options,
    ]  # fmt: skip
    with _logging(command, port, log) as server:
        yield server


@contextmanager
def serving_openvino(python: Path, model: Path, bundle: Path, threads: int, log: Path) -> Iterator[Server]:
    """Start openvino_engine.py over a converted model, with as many rows as the bundle has."""
    rows, port = json.loads((bundle / "manifest.json").read_text())["batch_size"], free_port()
    script = Path(__file__).with_name("openvino_engine.py")
    options = ["--port", str(port), "--rows", str(rows), "--threads", str(threads)]
    with _logging([str(python), str(script), "serve", str(model), *options], port, log) as server:
        yield server


@contextmanager
def _logging(command: list[str], port: int, log: Path) -> Iterator[Server]:
    """Start a server that is told its port. log: a file for all that it says."""
    with log.open("w") as file, _ending(subprocess.Popen(command, stdout=file, stderr=file, text=True)) as process:
        try:
            server = _ready(f"http://{LOCAL}:{port}", process)
        except SystemExit as error:
            raise SystemExit(f"{error}: {log.read_text()[-500:]}") from None
        yield server


@contextmanager
def _ending(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _ready(address: str, process: subprocess.Popen[str]) -> Server:
    """Wait for the server. Raise SystemExit where it ends before it is ready."""
    while process.poll() is None and address:
        if _is_ready(address):
            return Server(address, process)
        time.sleep(0.2)
    raise SystemExit(f"the server ended with {process.wait()}")


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health") as response:
            return bool(response.status == 200)
    except OSError:
        return False


def free_port() -> int:
    """Return one that nobody listens on now."""
    with socket.socket() as tried:
        tried.bind((LOCAL, 0))
        return int(tried.getsockname()[1])
