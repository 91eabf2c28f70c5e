"""Limits of connections before a client is known: sizes, times, numbers, and what is no request of this server."""

import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from speccompile.serving.http.connection_limits import RESERVE, ConnectionLimits, Connections
from speccompile.serving.http.model import ServedModel
from tests.light.serve_example import Running, chat_bundle, serving

LIMITS = ConnectionLimits(
    header_bytes=2048, headers=20, header_seconds=0.4, body_seconds=0.6, idle_seconds=2, connections=6
)


@pytest.fixture(scope="module")
def server():
    model = ServedModel("toy")
    model.start(chat_bundle())
    with serving(model, connections=LIMITS) as running:
        yield running


def connect(running: Running) -> socket.socket:
    where = urlsplit(running.address)
    return socket.create_connection((where.hostname, where.port), timeout=20)


def answer(running: Running, *parts: bytes) -> bytes:
    """Return what comes until the server closes the connection."""
    with connect(running) as connection:
        got = b""
        try:
            for part in parts:
                connection.sendall(part)
            while data := connection.recv(65536):
                got += data
        except ConnectionError:  # it closes while more is sent
            pass
        return got


GET, POST = b"GET /health HTTP/1.1\r\nHost: x\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
REFUSED = {
    "half a line": (b"GET /hea", b"408", b"the limit header_seconds"),
    "half a header": (GET + b"X: ", b"408", b"the limit header_seconds"),
    "half a body": (POST + b"Content-Length: 50\r\n\r\n{", b"408", b"the limit body_seconds"),
    "a body without end": (CHUNKED, b"408", b"the limit body_seconds"),
    "a long header": (GET + b"X: " + b"y" * 4096 + b"\r\n\r\n", b"431", b"the limit header_bytes"),
    "a long address": (b"GET /" + b"y" * 4096 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"431", b"the limit header_bytes"),
    "a header without end": (GET + b"X: " + b"y" * 4096, b"431", b"the limit header_bytes"),
    "many headers": (GET + b"X: y\r\n" * 30 + b"\r\n", b"400", b"the limit headers"),
    "more headers than bytes": (GET + b"X: y\r\n" * 5000 + b"\r\n", b"431", b"the limit header_bytes"),
    "an endless chunk": (
        POST + b"Transfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\n{}",
        b"400",
        b"size of a chunk",
    ),
    "trailers without end": (CHUNKED + b"0\r\n" + b"X: y\r\n" * 800, b"431", b"the limit header_bytes"),
    "another version": (b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n", b"400", b"neither HTTP/1.1 nor HTTP/1.0"),
    "a length beside chunks": (
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"400",
        b"Transfer-Encoding beside",
    ),
    "chunks in HTTP/1.0": (
        b"POST /tokenize HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"400",
        b"or in HTTP/1.0",
    ),
    "two codings": (POST + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n", b"501", b"headers transfer-encoding"),
    "a length of zeros": (POST + b"Content-Length: " + b"0" * 21 + b"2\r\n\r\n{}", b"400", b"is no number"),
    "a trailer that is no header": (CHUNKED + b"0\r\nx\r\n\r\n", b"400", b"is not NAME: VALUE"),
    "another coding beside a length": (
        POST + b"Content-Length: 2\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        b"501",
        b"is not chunked",
    ),
    "a control beside blanks": (GET + b"X: a\t\x01\r\n\r\n", b"400", b"the header x has controls"),
    "a DEL": (GET + b"X: a\x7f\r\n\r\n", b"400", b"the header x has controls"),
    "another expectation": (GET + b"Expect: more\r\n\r\n", b"417", b"is not 100-continue"),
    "a fragment": (b"GET /health#a HTTP/1.1\r\nHost: x\r\n\r\n", b"400", b"has a fragment"),
    "a path of other bytes": (b"GET /%E9 HTTP/1.1\r\nHost: x\r\n\r\n", b"400", b"the path of the request is no UTF-8"),
    "zeros": (b"\x00" * 9, b"400", b"is not METHOD TARGET VERSION"),
    "another protocol": (b"\x16\x03\x01\r\n\r\n", b"400", b"TLS is left to a proxy"),
    "a blank before the method": (b" GET /health HTTP/1.1\r\n", b"400", b"is not METHOD TARGET VERSION"),
    "no version": (b"GET /health\r\n\r\n", b"400", b"is not METHOD TARGET VERSION"),
    "a method of signs": (b"G@T /health HTTP/1.1\r\nHost: x\r\n\r\n", b"400", b"the method of the request"),
    "bytes in the target": (b"GET /h\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", b"400", b"letters beyond ASCII"),
    "a line without CR": (b"GET /health HTTP/1.1\nHost:", b"400", b"does not end with CR LF"),
    "a trailer without CR": (CHUNKED + b"0\r\nX: y\n\r\n", b"400", b"does not end with CR LF"),
    "a chunk's size without CR": (CHUNKED + b"1\n", b"400", b"does not end with CR LF"),
    "a folded header": (GET + b"X: a\r\n b\r\n\r\n", b"400", b"is not NAME: VALUE"),
    "a blank before the colon": (GET + b"X : a\r\n\r\n", b"400", b"is not NAME: VALUE"),
    "two hosts": (GET + b"Host: y\r\n\r\n", b"400", b"several headers host"),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", b"400", b"no header Host"),
    "two lengths": (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", b"400", b"headers content-length"),
    "a list of lengths": (POST + b"Content-Length: 2, 2\r\n\r\n{}", b"400", b"Content-Length of the request is no num"),
    "a length below zero": (
        POST + b"Content-Length: -1\r\n\r\n",
        b"400",
        b"Content-Length of the request is no number",
    ),
    "another coding": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", b"501", b"is not chunked"),
    "a chunk without size": (POST + b"Transfer-Encoding: chunked\r\n\r\n\r\n", b"400", b"size of a chunk"),
    "a chunk with a word": (POST + b"Transfer-Encoding: chunked\r\n\r\n2 x\r\n{}\r\n", b"400", b"size of a chunk"),
    "a chunk that is longer": (
        POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n",
        b"400",
        b"longer than its size",
    ),
    "a long extension": (CHUNKED + b"1;" + b"y" * 4096 + b"\r\n", b"431", b"the limit header_bytes"),
}


CLOSE = b"Host: x\r\nConnection: close\r\n\r\n"
TAKEN = {
    "a host in the target": b"GET HTTP://x:80/health?a HTTP/1.1\r\n" + CLOSE,
    "no path behind the host": b"GET https://x?a HTTP/1.1\r\n" + CLOSE,
    "a second header Connection": b"GET /health HTTP/1.1\r\nConnection: upgrade\r\n" + CLOSE,
    "an empty line behind a body": POST.replace(b"/v1/completions", b"/tokenize") + b"Content-Length: 14\r\n\r\n"
    b'{"prompt":"a"}\r\n' + b"GET /health HTTP/1.1\r\n" + CLOSE,
    "a body that nobody reads": GET + b"Content-Length: 3\r\n\r\nabcGET /health HTTP/1.1\r\n" + CLOSE,
    "empty lines before it": b"\r\n\r\nGET /health HTTP/1.1\r\n" + CLOSE,
    "a chunk's size with zeros": POST.replace(b"/v1/completions", b"/tokenize") + b"Content-Type: application/json\r\n"
    b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n00000000000e\r\n" + b'{"prompt":"a"}\r\n0\r\n\r\n',
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_rare_but_right_is_taken(server, name):
    assert answer(server, TAKEN[name]).count(b"HTTP/1.1 200 ") == TAKEN[name].count(b" HTTP/1.1\r\n")


@pytest.mark.parametrize("name", REFUSED)
def test_requests_beyond_a_limit_are_told_which_and_closed(server, name):
    sent, status, said = REFUSED[name]
    got = answer(server, sent)
    assert got.startswith(b"HTTP/1.1 " + status + b" ")
    assert said in got
    assert b"connection: close" in got.lower()


def test_the_time_of_headers_begins_with_their_first_byte(server):
    """Answer a client that waits between its connection and its request."""
    with connect(server) as connection:
        time.sleep(2 * LIMITS.header_seconds)
        connection.sendall(GET + b"\r\n")
        text = b""
        while b"}" not in text:  # head and body may come apart
            text += connection.recv(65536)
        assert text.startswith(b"HTTP/1.1 200 ")
        time.sleep(2 * LIMITS.header_seconds)
        connection.sendall(GET + b"Connection: close\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert answer(server) == b""  # nothing was asked, and nothing is said


def test_a_body_that_nobody_reads_ends_its_connection(server):
    got = answer(server, GET + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
    assert got.startswith(b"HTTP/1.1 200 ")


def test_an_upgrade_is_ignored_and_a_redirect_names_no_host(server):
    upgrade = b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
    assert answer(server, GET + upgrade).startswith(b"HTTP/1.1 200 ")
    got = answer(server, b"GET /health/ HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 404 ")
    assert b"elsewhere" not in got


def test_monitoring_gets_in_where_all_connections_are_taken(server):
    with ExitStack() as held:
        for _ in range(30):
            one = held.enter_context(connect(server))
            one.sendall(b"GET /version HTTP/1.1\r\nX: ")
        assert server.ask("GET", "/health").status == 200
        refused = server.ask("GET", "/version")
        assert (refused.status, refused.error["type"]) == (503, "unavailable_error")
        assert "too many connections" in refused.error["message"]
    deadline = time.monotonic() + 20
    while server.ask("GET", "/version").status != 200:
        assert time.monotonic() < deadline


def test_a_connection_of_the_reserve_has_less_time(monkeypatch):
    """Close a half request early: it must not keep monitoring out for as long as others may take for their headers."""
    monkeypatch.setattr("speccompile.serving.http.connection._RESERVE_SECONDS", 0.2)
    model = ServedModel("toy")
    model.start(chat_bundle())
    limits = ConnectionLimits(header_seconds=10, connections=1)
    with serving(model, connections=limits) as full, connect(full) as first:
        first.sendall(GET)
        assert b"did not come within 0.2 seconds" in answer(full, GET)


class Ended:
    """A connection that notes its end."""

    def __init__(self, is_idle: bool = False) -> None:
        self.is_ended, self.is_idle = False, is_idle

    def abort(self) -> None:
        self.is_ended = True


def test_one_address_leaves_room_for_others():
    connections = Connections(ConnectionLimits(connections=10))
    assert [connections.admit(Ended(), "a") for _ in range(7)] == [False] * 5 + [True] * 2
    assert [connections.admit(Ended(), "b") for _ in range(6)] == [False] * 5 + [True]


def test_places_come_back_and_the_reserve_goes_to_the_last_comer():
    connections, first = Connections(ConnectionLimits(connections=1, address_connections=1)), Ended()
    assert not connections.admit(first, "a")
    late = [Ended() for _ in range(RESERVE + 1)]
    assert all(connections.admit(one, "a") for one in late)
    assert [one.is_ended for one in late] == [True] + [False] * RESERVE
    connections.release(first)
    assert not connections.admit(Ended(), "a")


def test_idle_connections_make_room():
    connections = Connections(ConnectionLimits(connections=4))
    busy, idle, other = Ended(), Ended(is_idle=True), Ended(is_idle=True)
    assert not any([connections.admit(busy, "a"), connections.admit(idle, "a"), connections.admit(other, "b")])
    assert not connections.admit(Ended(), "a")  # in the place of its address's own
    assert (busy.is_ended, idle.is_ended, other.is_ended) == (False, True, False)
    assert connections.admit(Ended(), "a")
    assert not any(connections.admit(Ended(), "c") for _ in range(2))
    assert other.is_ended  # the oldest of all, where all are taken


def test_a_connection_between_two_requests_is_idle(server):
    with ExitStack() as held:
        for _ in range(3):  # half of all: the share of one address
            one = held.enter_context(connect(server))
            one.sendall(GET + b"\r\n")
            assert one.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert server.ask("GET", "/version").status == 200
