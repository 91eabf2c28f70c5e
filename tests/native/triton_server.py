"""Triton Inference Server itself, where scripts/triton_server/setup has put it; and its HTTP interface."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("SPECCOMPILE_TRITON", ROOT / "build" / "triton"))
PYTHON = FOLDER / "venv" / "bin" / "python"
"""Python with numpy 1, speccompile's runtime and tritonclient."""

ABSENT = (
    None
    if (FOLDER / "installed-from").is_file()
    else f"no server in {FOLDER.name}: scripts/triton_server/setup, or $SPECCOMPILE_TRITON"
)
"""Why the server cannot be tested; None where it can."""

SECONDS = 60


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Server:
    """A server that runs. `log` is what it says."""

    def __init__(self, repository: Path, log: Path) -> None:
        self.http_port, self.grpc_port, self.repository, self.log = free_port(), free_port(), repository, log
        server = FOLDER / "pytriton" / "tritonserver"
        self.region = f"speccompile_test_{os.getpid()}_{self.http_port}"
        command = [
            server / "bin" / "tritonserver", f"--model-repository={repository}",
            f"--backend-directory={server / 'backends'}", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1",
            f"--http-port={self.http_port}", f"--grpc-port={self.grpc_port}", "--allow-metrics=false",
            "--pinned-memory-pool-byte-size=0", "--exit-timeout-secs=3",
            f"--backend-config=python,shm-region-prefix-name={self.region}",
        ]  # fmt: skip
        libraries = "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"  # the stub needs libpython
        folder = subprocess.run([PYTHON, "-c", libraries], capture_output=True, text=True, check=True).stdout.strip()
        with log.open("w") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | {"LD_LIBRARY_PATH": folder}
            )

    def wait(self) -> None:
        """Wait until it is ready; a failure shows its log."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url("health/ready"), timeout=5):
                    return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"the server is not ready:\n{self.log.read_text()[-4000:]}")

    def has(self, model: str) -> bool:
        return (self.repository / model).is_dir()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.http_port}/v2/{path}"

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for left in Path("/dev/shm").glob(f"{self.region}*"):
            left.unlink()

    def statistics(self, model: str) -> dict[str, Any]:
        with urllib.request.urlopen(self.url(f"models/{model}/stats"), timeout=SECONDS) as answer:
            return json.load(answer)["model_stats"][0]

    def generate(self, model: str, **inputs: Any) -> dict[str, Any]:
        """Return one answer, or {"error": words}."""
        try:
            with self._post(model, "generate", inputs) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def stream(self, model: str, **inputs: Any) -> Iterator[dict[str, Any]]:
        """Yield the pieces of an answer, as they come."""
        with self._post(model, "generate_stream", inputs | {"stream": True}) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))

    def _post(self, model: str, path: str, inputs: dict[str, Any]) -> Any:
        body = json.dumps(inputs).encode()
        return urllib.request.urlopen(self.url(f"models/{model}/{path}"), body, timeout=SECONDS)

    def grpc(self, *commands: dict[str, Any]) -> list[Any]:
        """Return what triton_client.py answers to each command."""
        client = Path(__file__).with_name("triton_client.py")
        done = subprocess.run(
            [PYTHON, client, f"127.0.0.1:{self.grpc_port}"], input=json.dumps(commands), capture_output=True, text=True,
            timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@contextmanager
def serving(repository: Path, log: Path) -> Iterator[Server]:
    server = Server(repository, log)
    try:
        server.wait()
        yield server
    finally:
        server.stop()
