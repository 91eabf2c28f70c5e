"""`speccompile serve` as a process of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from speccompile.cli import serve_options
from speccompile.serving.http.model import ServedModel
from speccompile.serving.scheduler.limits import POLICIES
from tests.light.fake_bundle import write_toy_bundle
from tests.light.serve_example import Running, chat_bundle, serving, status_over_unix

ROOT = Path(__file__).resolve().parents[2]

SERVER = """
import os, sys, time
from pathlib import Path
from unittest.mock import patch
from speccompile.bundle import open_bundle
from speccompile.cli import main
from tests.light import toy_engine

gate, target = Path(sys.argv[1]), toy_engine.target

def gated(tokens):
    while gate.exists():
        time.sleep(0.01)
    time.sleep(float(os.environ.get("SLOW", "0")))
    return target(tokens)

with (
    patch(
        "speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine",
        lambda folder, *_: toy_engine.ToyEngine(open_bundle(folder, verify=False).manifest),
    ),
    patch("tests.light.toy_engine.target", gated),
):
    main(sys.argv[2:])
"""
"""A server whose model says nothing while a file is there."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_toy_bundle(tmp_path_factory.mktemp("built") / "toy")


@pytest.fixture
def gate(tmp_path) -> Path:
    return tmp_path / "gate"


@contextmanager
def process(gate: Path, *arguments: object, **variables: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """Yield a server that has said its address."""
    command = [sys.executable, "-c", SERVER, str(gate), "serve", *map(str, arguments)]
    running = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield running, running.stdout.readline().strip()
    finally:
        running.kill()
        running.communicate()


def ready(address: str) -> Running:
    running = Running(address, ServedModel("none"))
    while running.ask("GET", "/health").status != 200:
        time.sleep(0.05)
    return running


def ended(running: subprocess.Popen) -> tuple[int, str]:
    _, talk = running.communicate(timeout=60)
    return running.returncode, talk


def test_policies_of_the_command_are_the_scheduler_s():
    assert serve_options.POLICIES == POLICIES


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_finishes_what_was_asked_when_it_is_told_to_end(folder, gate, number):
    with process(gate, folder, "--port", 0, "--served-model-name", "mine") as (running, address):
        server = ready(address)
        assert server.ask("GET", "/v1/models").json["data"][0]["id"] == "mine"
        gate.touch()
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, "stream": True}
        with server.asked("POST", "/v1/chat/completions", body) as response:
            assert b'"role":"assistant"' in response.readline()
            running.send_signal(number)
            while listens(address):
                time.sleep(0.05)
            gate.unlink()
            assert response.read().endswith(b"data: [DONE]\n\n")
        code, talk = ended(running)
    assert code == 0
    assert talk.splitlines()[-1] == "finishing what was asked; another signal ends at once"
    assert f"serving mine on {address}, batch size 1" in talk


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_right_behind_the_address_ends_it_normally(folder, gate, number):
    with process(gate, folder, "--port", 0) as (running, _):
        running.send_signal(number)
        code, talk = ended(running)
    assert (code, talk.splitlines()[-1]) == (0, "finishing what was asked; another signal ends at once")


def listens(address: str) -> bool:
    host, port = address.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


def test_a_second_signal_does_not_wait(folder, gate):
    with process(gate, folder, "--port", 0) as (running, address):
        server = ready(address)
        gate.touch()
        body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
        with server.asked("POST", "/v1/chat/completions", body) as response:
            response.readline()
            running.send_signal(signal.SIGTERM)
            while listens(address):
                time.sleep(0.05)
            running.send_signal(signal.SIGTERM)
            code, talk = ended(running)
    assert code == 0
    assert "Traceback" not in talk
    assert talk.splitlines()[-1] == "finishing what was asked; another signal ends at once"


def test_a_second_signal_tells_clients_that_their_requests_are_not_finished(folder, gate):
    """Let the model go on, slowly: the request ends after the round in progress."""
    with process(gate, folder, "--port", 0, SLOW="0.2") as (running, address):
        server = ready(address)
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 60, "stream": True}
        with server.asked("POST", "/v1/chat/completions", body) as response:
            response.readline()
            for _ in range(2):
                running.send_signal(signal.SIGTERM)
                time.sleep(0.3)
            told = response.read()
        code, talk = ended(running)
    assert b"the server is closing and did not finish this request" in told
    assert told.endswith(b"data: [DONE]\n\n")
    assert (code, talk.splitlines()[-1]) == (0, "finishing what was asked; another signal ends at once")


def test_it_listens_on_a_unix_socket_and_leaves_none_behind(folder, gate, tmp_path):
    path = tmp_path / "s"
    with process(gate, folder, "--unix", path) as (running, address):
        assert address == f"unix:{path}"
        assert status_over_unix(path) == 200
        running.send_signal(signal.SIGTERM)
        assert ended(running)[0] == 0
    assert not path.exists()


def test_keys_come_from_options_a_file_and_the_environment(folder, gate, tmp_path):
    file = tmp_path / "keys.txt"
    file.write_text("# mine\nfrom-file\n")
    given = ("--port", 0, "--api-key", "from-option", "--api-key-file", file, "--autoregressive", "--access-log")
    with process(gate, folder, *given, SPECCOMPILE_API_KEY="from-environment") as (running, address):
        server = ready(address)
        for key in ("from-file", "from-option", "from-environment"):
            answered = server.ask(
                "POST", "/v1/completions", {"prompt": "x", "max_tokens": 4}, Authorization=f"Bearer {key}"
            )
            assert answered.status == 200
            assert answered.json["metrics"]["speculative_decoding"] is None
        assert server.ask("GET", "/v1/models").status == 401
        running.send_signal(signal.SIGTERM)
        talk = ended(running)[1]
    assert '"POST /v1/completions HTTP/1.1" 200' in talk
    assert "from-" not in talk


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (["nowhere"], 1, "nowhere"),
    (["BUNDLE", "--api-key", " "], 2, "received an empty API key, expected at least one character"),
    (["BUNDLE", "--api-key-file", "EMPTY"], 2, "found no key, expected one a line"),
    (["BUNDLE", "--host", "203.0.113.1"], 2, "cannot listen on 203.0.113.1 port 8000: Cannot assign requested address"),
    (["BUNDLE", "--unix", "."], 2, "cannot listen on .: Address already in use"),
    (["BUNDLE", "--port", 0, "--engine", "none"], 2, "none"),
])  # fmt: skip
def test_what_is_wrong_is_said_and_ends_it(folder, gate, tmp_path, arguments, code, words):
    empty = tmp_path / "empty"
    empty.touch()
    places = {"BUNDLE": folder, "EMPTY": empty}
    with process(gate, *(places.get(each, each) for each in arguments)) as (running, _):
        found, talk = ended(running)
    assert (found, words in talk) == (code, True), talk


def test_a_bundle_is_served_as_it_generates():
    model = ServedModel("toy")
    model.start(chat_bundle())
    with serving(model) as running:
        text = json.loads(running.complete(max_tokens=30).data)["choices"][0]["text"]
    assert text == chat_bundle().generate("def", max_new_tokens=30).text


def test_a_prompt_is_not_read_again_after_a_restart(folder, gate, tmp_path):
    kept, body = tmp_path / "kept", {"prompt": "a prompt of more than sixteen bytes", "max_tokens": 3}
    cached = []
    for _ in range(2):
        with process(gate, folder, "--port", 0, "--sessions", kept) as (running, address):
            answer = ready(address).ask("POST", "/v1/completions", body)
            cached.append(answer.json["usage"]["prompt_tokens_details"]["cached_tokens"])
            running.send_signal(signal.SIGTERM)
            assert ended(running)[0] == 0
    assert cached[0] == 0
    assert cached[1] > 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sessions-limit-gb", 2), "there is no folder to limit"),
        (("--sessions", "kept", "--no-reuse"), "received --sessions and --no-reuse"),
        (("--sessions", "missing/kept"), "the folder cannot be made: No such file"),
    ],
)
def test_sessions_that_cannot_be_kept_are_refused_before_it_listens(folder, gate, arguments, message):
    with process(gate, folder, *arguments) as (running, address):
        assert address == ""
        code, talk = ended(running)
    assert code == 2
    assert message in talk
