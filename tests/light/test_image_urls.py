"""Pictures by URL: the hosts that are listed, and what is never fetched."""

import json
import socket
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import pytest

from speccompile.errors import UsageError
from speccompile.serving.http import image_urls
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.fields import CHAT, COMPLETION, validate
from speccompile.serving.http.image_urls import ImageHosts
from speccompile.serving.http.schema import Schema

PICTURE = b"\x89PNG and so on"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/latest")
        else:
            self.send_response(200 if self.path.startswith("/a.png") else 404)
            self.send_header("Content-Type", "text/html" if "page" in self.path else "image/png; charset=x")
        self.end_headers()
        self.wfile.write(PICTURE * (100 if "large" in self.path else 1))

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def body(url: Any, *, is_plain: bool = False) -> bytes:
    part = {"type": "image_url", "image_url": url if is_plain else {"url": url, "detail": "low"}}
    return json.dumps({"messages": [{"role": "user", "content": [{"type": "text", "text": "http"}, part]}]}).encode()


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_picture_of_a_listed_host_stands_in_the_body(port, is_plain):
    data = body(f"http://127.0.0.1:{port}/a.png?x=1", is_plain=is_plain)
    found = json.loads(ImageHosts.of((f"127.0.0.1:{port}",)).inlined(data))["messages"][0]["content"][1]["image_url"]
    head, _, encoded = found.pop("url").partition(",")
    assert (head, b64decode(encoded)) == ("data:image/png;base64", PICTURE)
    assert found == ({} if is_plain else {"detail": "low"})


def test_nothing_is_fetched_unless_a_host_is_listed(port, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a name is looked up"))
    url = f"http://127.0.0.1:{port}/a.png"
    assert ImageHosts().inlined(body(url)) == body(url)
    data = body("data:image/png;base64,aHR0cA==")
    assert ImageHosts.of(("a.org",)).inlined(data) == data
    for listed, other in (
        ("127.0.0.1", url), ("a.org", "https://b.a.org/x"), ("a.org", "https://a.org:444/x"), ("a.org", "http://a.org.b/"),
        ("a.org", "https://b@a.org/x"), ("a.org", "http://b\\@a.org:x/"), ("a.org", "HTTPS://A.ORG\n/x"),
        ("a.org", "http:///x"), ("a.org:81", "http://a.org/x"), ("a.org", "http://[a/"),
    ):  # fmt: skip
        with pytest.raises(RequestError, match=r"messages\[0\].content\[1\].image_url.url: received") as caught:
            ImageHosts.of((listed,)).inlined(body(other))
        assert caught.value.status == 400


PRIVATE = [
    "127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1",
    "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_names_of_private_addresses_are_refused(monkeypatch, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(family, socket.SOCK_STREAM, 6, "", (address, 80))])
    with pytest.raises(RequestError, match=r"the host .a.org., whose address is private, expected a public address"):
        ImageHosts.of(("a.org",)).inlined(body("http://a.org/a.png"))


def test_public_addresses_are_told():
    assert all(map(image_urls._is_public, ("1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101")))


@pytest.mark.parametrize(
    ("path", "said"),
    [("moved", "status 302 .*redirects are not followed"), ("none", "status 404"),
     ("a.png?page", "the type 'text/html'"), ("a.png?large", "more than .* bytes of pictures")],
)  # fmt: skip
def test_other_answers_are_refused(port, monkeypatch, path, said):
    monkeypatch.setattr(image_urls, "MAX_BYTES", 5 * len(PICTURE))
    with pytest.raises(RequestError, match=said):
        ImageHosts.of((f"127.0.0.1:{port}",)).inlined(body(f"http://127.0.0.1:{port}/{path}"))


def test_time_is_limited(port, monkeypatch):
    monkeypatch.setattr(image_urls, "_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        name = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RequestError, match=r"TimeoutError from 127\.0\.0\.1|a picture in more than"):
            ImageHosts.of((name,)).inlined(body(f"http://{name}/a.png"))


@contextmanager
def answering(*parts: bytes, pause: float = 0.02) -> Iterator[str]:
    """Yield HOST:PORT of a server that answers one request with these bytes, one part after another."""

    def answer(server: socket.socket) -> None:
        with suppress(OSError), server.accept()[0] as wire:
            wire.recv(4096)
            for part in parts:
                wire.sendall(part)
                time.sleep(pause)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, args=[server])
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nX: ", HEAD + b"Transfer-Encoding: chunked\r\n\r\n"])
def test_time_is_limited_where_bytes_come_now_and_then(monkeypatch, start):
    monkeypatch.setattr(image_urls, "_SECONDS", 0.2)
    with answering(start, *[b"0"] * 100) as name:  # 2 s
        began = time.monotonic()
        with pytest.raises(RequestError, match=r"a picture in more than 0.2 seconds"):
            ImageHosts.of((name,)).inlined(body(f"http://{name}/a.png"))
        assert time.monotonic() - began < 1


def test_time_is_limited_for_names_and_for_tls(monkeypatch):
    monkeypatch.setattr(image_urls, "_SECONDS", 0.2)
    began = time.monotonic()
    with answering(b"\x16\x03\x03\x40\0", *[b"0"] * 100) as name:  # a long record of a handshake
        with pytest.raises(RequestError, match=r"a picture in more than 0.2 seconds"):
            ImageHosts.of((name,)).inlined(body(f"https://{name}/a.png"))
        told = time.monotonic() - began
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(2))
    began = time.monotonic()
    with pytest.raises(RequestError, match=r"a picture in more than 0.2 seconds"):
        ImageHosts.of(("a.org",)).inlined(body("http://a.org/a.png"))
    assert max(told, time.monotonic() - began) < 1


def test_a_picture_without_its_end_is_refused():
    with answering(HEAD + b"Content-Length: 9\r\n\r\nabc") as name, pytest.raises(RequestError, match="IncompleteRead"):
        ImageHosts.of((name,)).inlined(body(f"http://{name}/a.png"))


@pytest.mark.parametrize(
    ("scheme", "port", "host"), [("https", 443, "a.org"), ("http", 80, "a.org"), ("https", 80, "a.org:80")]
)
def test_the_usual_port_is_not_written(monkeypatch, scheme, port, host):
    wire = mock.Mock()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("1.1.1.1", port))])
    monkeypatch.setattr(socket, "socket", lambda *_: wire)
    monkeypatch.setattr(image_urls.ssl.SSLContext, "wrap_socket", lambda _, wire, **__: wire)
    image_urls._connection(urlsplit(f"{scheme}://a.org:{port}/x"), port, "url", time.monotonic() + 9).request(
        "GET", "/x"
    )
    assert f"\r\nHost: {host}\r\n".encode() in wire.sendall.call_args[0][0]


@pytest.mark.parametrize("name", ["https://a.org", "a.org/x", "", "a b", "*.a.org"])
def test_what_is_no_host_is_refused(name):
    with pytest.raises(UsageError, match="--image-host: received"):
        ImageHosts.of((name,))


@pytest.mark.parametrize(("body", "schema"), [({"prompt": "a"}, COMPLETION), ({"messages": [{"role": "user"}]}, CHAT)])
def test_pictures_beside_the_text_are_refused(body: dict[str, Any], schema: Schema) -> None:
    with pytest.raises(RequestError, match="images: received"):
        validate(body | {"images": ["data:image/png;base64,AA=="]}, schema)
    validate(body | {"images": None}, schema)
    validate(body | {"images": []}, schema)
