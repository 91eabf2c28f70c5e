"""The native server as a process: its limits, hostile and leaving clients, keys, signals, and how it ends."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from random import Random

import openai
import pytest

from tests.light.serve_example import Running, status_over_unix
from tests.light.test_cli_serve import ready
from tests.light.test_serve_connections import CHUNKED, GET, POST, REFUSED, TAKEN, answer, connect
from tests.native.served import COMPLETIONS, client_of, folders, started

__all__ = ["folders"]


@pytest.fixture
def native(native_build, onnxruntime_library, folders):
    @contextmanager
    def serve(
        *given: object, name: str = "greedy", **variables: str
    ) -> Iterator[tuple[subprocess.Popen[str], Running]]:
        with started("native", native_build, onnxruntime_library, folders[name], *given, **variables) as (
            running,
            address,
        ):
            yield running, ready(address)

    return serve


def end(running: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    running.send_signal(number)
    _, talk = running.communicate(timeout=60)
    return running.returncode, talk


LIMITS = ("--header-bytes", 2048, "--headers", 20, "--header-seconds", 0.4, "--body-seconds", 0.6, "--connections", 6)
BY_SIZE = {
    "a length of many digits": (POST + b"Content-Length: " + b"9" * 20 + b"\r\n\r\n", b"413"),
    "a large length": (POST + b"Content-Type: application/json\r\nContent-Length: 99999999\r\n\r\n", b"413"),
    "a large chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n", b"413"),
}
"""Bodies beyond a limit, which Python's server answers without an end of the connection, or waits for."""


def told(server: Running, sent: bytes) -> bytes:
    """Return the answer, once connections that were refused before have come to their end."""
    for _ in range(100):
        got = answer(server, sent)
        if b"too many connections" not in got:
            break
        time.sleep(0.1)
    return got


def test_hostile_requests_are_refused_and_others_are_answered(native):
    with native(*LIMITS) as (running, server):
        for name, (sent, status, said) in REFUSED.items():
            got = told(server, sent)
            assert got.startswith(b"HTTP/1.1 " + status + b" "), (name, got)
            assert said in got, (name, got)
            assert b"connection: close" in got.lower()
        for name, (sent, status) in BY_SIZE.items():
            got = told(server, sent)
            assert got.startswith(b"HTTP/1.1 " + status + b" "), (name, got)
        for name, sent in TAKEN.items():
            assert told(server, sent).count(b"HTTP/1.1 200 ") == sent.count(b" HTTP/1.1\r\n"), name
        with connect(server) as connection:
            time.sleep(0.8)  # the time for headers begins with their first byte
            connection.sendall(GET + b"Connection: close\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert told(server, CHUNKED.replace(b"/v1/completions", b"/health")).startswith(b"HTTP/1.1 405 ")
        assert server.complete(max_tokens=3).status == 200
        assert end(running)[0] == 0


def test_it_finishes_what_was_asked_when_it_is_told_to_end(native):
    with native() as (running, server):
        body = {"prompt": "def", "max_tokens": 80, "stream": True}
        with server.asked("POST", COMPLETIONS, body) as response:
            assert response.readline().startswith(b"data: ")
            running.send_signal(signal.SIGTERM)
            assert response.read().endswith(b"data: [DONE]\n\n")
        _, talk = running.communicate(timeout=60)
        assert running.returncode == 0
        assert talk.splitlines()[-1] == "finishing what was asked; another signal ends at once"
        assert "batch size 3" in talk
        assert "/ in a browser to talk to it" in talk


def test_a_second_signal_does_not_wait_and_tells_clients(native):
    """Ask for as many tokens as there is room for: both signals come before the last of them."""
    with native() as (running, server):
        body = {"prompt": "def", "max_tokens": 100, "stream": True, "ignore_eos": True}
        with server.asked("POST", COMPLETIONS, body) as response:
            assert response.readline().startswith(b"data: ")
            running.send_signal(signal.SIGTERM)
            running.send_signal(signal.SIGINT)
            assert response.read().endswith(b"data: [DONE]\n\n")
        _, talk = running.communicate(timeout=60)
        assert running.returncode == 0
        assert talk.splitlines()[-1] == "finishing what was asked; another signal ends at once"


def test_connections_that_wait_end_at_once_when_it_is_told_to_end(native):
    """Idle ones, and those whose requests have not come whole."""
    with native("--grace", 0) as (running, server), ExitStack() as held:
        for sent in (b"", GET, GET + b"\r\n", POST + b"Content-Length: 9\r\n\r\n{"):
            one = held.enter_context(connect(server))
            one.sendall(sent)
        start = time.monotonic()
        assert end(running, signal.SIGINT)[0] == 0
        assert time.monotonic() - start < 5


def test_a_killed_server_leaves_nothing_behind(native, tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for _ in range(2):
        body = {"prompt": "def", "max_tokens": 80, "stream": True}
        with native(**cache) as (running, server), server.asked("POST", COMPLETIONS, body) as response:
            response.readline()
            running.kill()
    with native(**cache) as (running, server):
        assert server.complete(max_tokens=3).status == 200
        assert end(running)[0] == 0
    assert not list(tmp_path.rglob("*.lock"))


def test_it_listens_on_a_unix_socket_also_where_a_killed_one_did(native_build, onnxruntime_library, folders, tmp_path):
    path = tmp_path / "s"
    for kills in (True, False):
        with started("native", native_build, onnxruntime_library, folders["greedy"], "--unix", path) as (
            running,
            address,
        ):
            assert address == f"unix:{path}"
            assert status_over_unix(path) == 200
            if kills:
                running.kill()
                running.communicate()
                assert path.exists()
            else:
                assert end(running)[0] == 0
    assert not path.exists()


def test_keys_come_from_options_a_file_and_the_environment(native, tmp_path):
    file = tmp_path / "keys.txt"
    file.write_bytes(b"\xef\xbb\xbffrom-marked-file\n# mine\nfrom-file\n")  # with a byte order mark, as Python
    given = ("--api-key", "from-option", "--api-key-file", file, "--autoregressive", "--access-log")
    with native(*given, SPECCOMPILE_API_KEY="from-environment,other") as (running, server):
        for key in ("from-marked-file", "from-file", "from-option", "from-environment", "other"):
            client = client_of(server, api_key=key)
            assert (
                client.completions.create(model="demo", prompt="x", max_tokens=4).metrics["speculative_decoding"]
                is None
            )
        for wrong in ("from-fil", "from-file2", "", "x" * 9000):
            with pytest.raises(openai.AuthenticationError, match="an API key that is not known") as caught:
                client_of(server, api_key=wrong or "-").models.list()
            assert caught.value.code == "invalid_api_key"
        assert server.ask("GET", "/v1/models").status == 401
        assert server.ask("GET", "/v1/models", Authorization="Basic from-file").status == 401
        code, talk = end(running)
    assert code == 0
    assert '"POST /v1/completions HTTP/1.1" 200' in talk
    assert "from-" not in talk


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (["nowhere"], 1, "nowhere"),
    (["BUNDLE", "--api-key", " "], 2, "received an empty API key, expected at least one character"),
    (["BUNDLE", "--api-key-file", "EMPTY"], 2, "found no key, expected one a line"),
    (["BUNDLE", "--host", "203.0.113.1"], 2, "cannot listen on 203.0.113.1 port 0"),
    (["BUNDLE", "--engine", "none"], 2, "none"),
    (["BUNDLE", "--port", 65536], 2, "'--port': 65536 is not in the range 0<=x<=65535."),
    (["BUNDLE", "--header-seconds", 0], 2, "'--header-seconds': 0.0 is not in the range x>0."),
    (["BUNDLE", "--adapter", "poet"], 2, "--adapter poet: received no NAME=FOLDER"),
    (["BUNDLE", "--sessions", "x", "--no-reuse"], 2, "received --sessions and --no-reuse, expected one of them"),
    (["BUNDLE", "--sessions-limit-gb", "1"], 2, "--sessions-limit-gb 1: there is no folder to limit"),
])  # fmt: skip
def test_what_is_wrong_is_said_and_ends_it(
    native_build, onnxruntime_library, folders, tmp_path, arguments, code, words
):
    (tmp_path / "empty").touch()
    places = {"BUNDLE": folders["greedy"], "EMPTY": tmp_path / "empty"}
    folder, *given = (places.get(each, each) for each in arguments)
    with started("native", native_build, onnxruntime_library, folder, *given) as (running, _):
        _, talk = running.communicate(timeout=60)
    assert (running.returncode, words in talk) == (code, True), talk


def test_a_client_that_leaves_cancels_its_request(native):
    """Leave before an answer has begun, and in a stream: slots are free again then."""
    with native("--waiting", 200) as (running, server):
        body = {"prompt": "def", "max_tokens": 90, "n": 1}
        for _ in range(20):
            for stream in (False, True):
                with server.asked_without_answer(COMPLETIONS, body | {"stream": stream}):
                    pass
        assert server.complete(max_tokens=5).status == 200
        assert server.ask("GET", "/health").status == 200
        assert end(running)[0] == 0


def test_slow_readers_hold_up_nobody_and_are_ended(native):
    with native("--body-seconds", 0.5) as (running, server), ExitStack() as held:
        data = json.dumps({"prompt": [[1, 2, 3]] * 128, "max_tokens": 90, "logprobs": 20}).encode()
        head = POST + b"Content-Type: application/json\r\nContent-Length: " + str(len(data)).encode() + b"\r\n\r\n"
        slow = [held.enter_context(connect(server)) for _ in range(3)]
        for each in slow:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.sendall(head + data)
        for _ in range(5):
            assert server.ask("GET", "/health").status == 200
        code, talk = end(running)
        assert (code, "defect" in talk) == (0, False)


def test_a_full_queue_is_told_with_when_to_come_again(native):
    with native("--waiting", 0, "--client-rows", 1) as (running, server):
        many = [[number, 5, 6] for number in range(60)]
        answered = server.complete(many, max_tokens=80)
        assert (answered.status, answered.error["code"]) == (429, "rate_limit_exceeded")
        assert int(answered.headers["Retry-After"]) >= 1
        deadline = time.monotonic() + 20
        while (
            server.complete(max_tokens=3).status != 200
        ):  # what was queued of the refused request leaves between rounds
            assert time.monotonic() < deadline
        assert end(running)[0] == 0


def test_monitoring_gets_in_where_all_connections_are_taken(native):
    with native("--connections", 6, "--header-seconds", 20) as (running, server):
        with ExitStack() as held:
            for number in range(40):
                one = held.enter_context(connect(server))
                one.sendall(b"GET /version HTTP/1.1\r\nX: ")
                # a connection of before may have ended meanwhile: its place is taken then
                if number > 30 and (refused := server.ask("GET", "/version")).status != 200:
                    break
            assert server.ask("GET", "/health").status == 200
            assert (refused.status, refused.error["type"]) == (503, "unavailable_error")
            assert "too many connections" in refused.error["message"]
        deadline = time.monotonic() + 20
        while server.ask("GET", "/version").status != 200:
            assert time.monotonic() < deadline
        assert end(running)[0] == 0


def test_requests_of_one_connection_follow_each_other(native):
    """Kept alive, sent ahead, in HTTP/1.0, and with a body that is announced."""
    with native() as (running, server):
        body = b'{"prompt": "x", "max_tokens": 2}'
        post = POST + b"Content-Type: application/json\r\nContent-Length: " + str(len(body)).encode() + b"\r\n"
        got = answer(server, (post + b"\r\n" + body) * 3 + GET + b"Connection: close\r\n\r\n")
        assert got.count(b"HTTP/1.1 200 OK") == 4
        old = b"GET /version HTTP/1.0\r\n\r\n"
        assert answer(server, old).startswith(b"HTTP/1.1 200 ")
        with connect(server) as connection:
            connection.sendall(post + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
            assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(body)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert end(running)[0] == 0


def test_random_bytes_end_no_server(native):
    random = Random(1)
    with native("--header-seconds", 0.2, "--body-seconds", 0.2) as (running, server):
        whole = (
            POST + b"Content-Type: application/json\r\nContent-Length: 32\r\n\r\n" + b'{"prompt": "x", "max_tokens": 2}'
        )
        for _ in range(300):
            changed = bytearray(whole)
            for _ in range(random.randint(1, 6)):
                place = random.randrange(len(changed))
                changed[place : place + random.randint(0, 2)] = random.randbytes(random.randint(0, 2))
            with connect(server) as connection, suppress(OSError):
                connection.sendall(bytes(changed))
                connection.shutdown(socket.SHUT_WR)
                connection.recv(65536)
        assert server.complete(max_tokens=3).status == 200
        assert end(running)[0] == 0
