"""Pictures from the network: a body gets data: URLs in place of http(s) URLs of hosts that the operator has listed.

An address is looked up once, checked, and connected to itself, so that a name cannot change its answer in between. Only
public addresses are taken, and one that is listed as a number. Redirects are refused; bytes and seconds are limited.
"""

import http.client
import ipaddress
import re
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import SplitResult, urlsplit

from speccompile.errors import UsageError
from speccompile.runtime.images.limits import MAX_BYTES, MAX_IMAGES
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.images import PART
from speccompile.serving.http.json_text import dumps, parse

_SECONDS = 10.0
"""Seconds for all pictures of a request."""
_CHUNK = 1 << 16
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z0-9_-]+(?::[0-9]{1,5})?|\[[0-9a-f:.]+\](?::[0-9]{1,5})?")


@dataclass(frozen=True)
class ImageHosts:
    """Hosts from which pictures are fetched. names: HOST or HOST:PORT in lower case; a name without a port stands for
    the usual ones, 80 and 443."""

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, names: tuple[str, ...]) -> "ImageHosts":
        """Return the hosts of these names. Raise UsageError for an invalid name."""
        for name in names:
            if not _HOST.fullmatch(name.lower()):
                raise UsageError(
                    f"--image-host: received {name!r}, expected the name of a host, or HOST:PORT",
                    hint="leave out https:// and the path; give the option once for each host",
                )
        return cls(frozenset(name.lower() for name in names))

    def inlined(self, data: bytes) -> bytes:
        """Return the body of a chat request with its pictures of these hosts in data: URLs; the same bytes without any.
        Raise RequestError for a URL of another host, and for a picture that cannot be had."""
        if not self.names or b"image_url" not in data or b"http" not in data.lower():
            return data
        body = parse(data)
        found, end, left = list(_urls(body)), monotonic() + _SECONDS, MAX_BYTES
        if len(found) > MAX_IMAGES:
            raise _refused("messages", f"{len(found)} pictures by URL", f"at most {MAX_IMAGES}", "send fewer")
        for where, holder in found:
            picture, kind = self._fetched(holder["url"], where, end, left)
            left -= len(picture)
            holder["url"] = f"data:{kind};base64,{b64encode(picture).decode()}"
        return dumps(body) if found else data

    def _fetched(self, url: str, where: str, end: float, most: int) -> tuple[bytes, str]:
        """Return the bytes of a picture and their type. end: until when they must have come; most: their number."""
        parts, port = self._allowed(url, where)
        connection = _connection(parts, port, where, end)
        try:
            with _until(end, connection.sock):
                connection.request("GET", f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}")
                answer = connection.getresponse()
                kind = (answer.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
                if answer.status != 200 or not re.fullmatch(r"image/[a-z0-9.+-]+", kind):
                    expected = "200 and a picture: redirects are not followed"
                    received = f"status {answer.status} and the type {kind[:40]!r}"
                    raise _refused(where, received, expected, "send its final URL")
                return _read(answer, where, most), kind
        except (OSError, http.client.HTTPException, ValueError) as error:
            if monotonic() >= end:
                raise _late(where) from error
            raise _refused(where, f"{type(error).__name__} from {parts.hostname}", "a picture", "try again") from error
        finally:
            connection.close()

    def _allowed(self, url: str, where: str) -> tuple[SplitResult, int]:
        """Return the parts of a URL and its port. Raise RequestError unless its host is listed."""
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").rstrip("."), parts.port
        except ValueError as error:
            raise _refused(where, f"the URL {url[:60]!r}", "a URL", str(error)) from error
        usual = _PORTS.get(parts.scheme)
        written = f"[{host}]" if ":" in host else host
        is_listed = f"{written}:{port or usual}" in self.names or (port in (None, usual) and written in self.names)
        if usual is None or parts.username is not None or re.search(r"[\x00-\x20\x7f]", url) or not is_listed:
            hint = "send the picture itself as a data: URL, or ask the operator for --image-host"
            raise _refused(where, f"a URL of the host {host[:60]!r}", "one of a host that this server lists", hint)
        return parts, port or usual


def _urls(body: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the object of each image_url whose URL is http or https."""
    messages = body.get("messages") if isinstance(body, dict) else None
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for index, part in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(part, dict) or part.get("type") != PART:
                continue
            if isinstance(part.get(PART), str):
                part[PART] = {"url": part[PART]}
            holder = part.get(PART)
            if not isinstance(holder, dict):
                continue
            url = holder.get("url")
            if isinstance(url, str) and url[:8].lower().startswith(("http://", "https://")):
                yield f"messages[{number}].content[{index}].image_url.url", holder


def _connection(parts: SplitResult, port: int, where: str, end: float) -> http.client.HTTPConnection:
    """Return a connection to the address of a host, which is checked. Raise RequestError."""
    host = (parts.hostname or "").rstrip(".")
    try:
        family, kind, protocol, _, address = _looked_up(host, port, end)
    except TimeoutError as error:
        raise _late(where) from error
    except (OSError, UnicodeError) as error:
        raise _refused(where, f"the host {host[:60]!r}", "one with an address", "check the URL") from error
    if not _is_public(str(address[0])) and str(address[0]) != host:
        raise _refused(where, f"the host {host!r}, whose address is private", "a public address", "check the host")
    made: http.client.HTTPConnection = http.client.HTTPConnection(host, port)
    made.default_port = _PORTS[parts.scheme]  # which is not written behind the name: signed URLs are signed without it
    connected = socket.socket(family, kind, protocol)
    try:
        connected.settimeout(max(end - monotonic(), 0.001))
        connected.connect(address)
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connected = context.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
            with _until(end, connected):
                connected.do_handshake()
    except OSError as error:
        connected.close()
        if monotonic() >= end:
            raise _late(where) from error
        raise _refused(where, f"{type(error).__name__} from {host}", "a picture", "try again") from error
    made.sock = connected
    return made


def _looked_up(host: str, port: int, end: float) -> Any:
    """Return the first address of a host, as `socket.getaddrinfo` does, which has no limit of time of its own. Raise
    TimeoutError, and the function's own errors."""
    found = Future[Any]()

    def look_up() -> None:
        try:
            found.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0])
        except BaseException as error:  # noqa: BLE001 -- raised where it is waited for
            found.set_exception(error)

    threading.Thread(target=look_up, daemon=True).start()
    return found.result(max(end - monotonic(), 0))


def _is_public(address: str) -> bool:
    """Return whether an address belongs to the public network, also one of IPv4 inside one of IPv6."""
    found = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    if inner is None and found.version == 6 and found in ipaddress.ip_network("64:ff9b::/96"):
        inner = ipaddress.ip_address(int(found) & 0xFFFFFFFF)
    return all(each.is_global and not each.is_multicast for each in (found, inner) if each is not None)


@contextmanager
def _until(end: float, wire: socket.socket) -> Iterator[None]:
    """Cut a connection at a time, and raise TimeoutError if it came. A socket's own limit is for one read, and a server
    that sends a byte of its headers now and then would hold a thread for hours."""
    timer = threading.Timer(max(end - monotonic(), 0), _cut, [wire])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if monotonic() >= end:  # the answer may lack its end
            raise TimeoutError


def _cut(wire: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        socket.socket.shutdown(wire, socket.SHUT_RDWR)  # a socket of TLS would forget that it is one


def _read(answer: http.client.HTTPResponse, where: str, most: int) -> bytes:
    held = bytearray()
    while part := answer.read1(_CHUNK):
        held += part
        if len(held) > most:
            raise _refused(where, f"more than {MAX_BYTES} bytes of pictures", f"at most {MAX_BYTES}", "send fewer")
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return bytes(held)


def _late(where: str) -> RequestError:
    return _refused(where, f"a picture in more than {_SECONDS:g} seconds", "a faster one", "send it itself")


def _refused(where: str, received: str, expected: str, hint: str) -> RequestError:
    return RequestError(f"{where}: received {received}, expected {expected}", param=where, hint=hint)
