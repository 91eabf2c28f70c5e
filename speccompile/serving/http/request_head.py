"""The line and headers of a request, held to what the runtime in C++ holds them to: h11 takes more."""

import re
from typing import NoReturn
from urllib.parse import unquote_to_bytes

import h11

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VISIBLE = re.compile(rb"[\x21-\x7e]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LENGTH = re.compile(rb"[0-9]{1,20}")
_ORIGIN = re.compile(rb"https?://[^/?]*", re.IGNORECASE)

Header = tuple[bytes, bytes]


def check_head(lines: list[bytes]) -> None:
    """Raise h11.RemoteProtocolError for lines that are no head of a request, or one that servers and proxies read in
    several ways."""
    method, _, rest = lines[0].partition(b" ")
    target, blank, version = rest.rpartition(b" ")
    if not blank:
        refuse("the first line of the request is not METHOD TARGET VERSION")
    if not _TOKEN.fullmatch(method):
        refuse("the method of the request is no token")
    if not _VISIBLE.fullmatch(target):
        refuse("the target of the request has blanks, or letters beyond ASCII")
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        refuse("the version of the request is neither HTTP/1.1 nor HTTP/1.0")
    path_of(target)
    _check_headers([read_header(line) for line in lines[1:]], is_new=version == b"HTTP/1.1")


def read_header(line: bytes) -> Header:
    """Return the name and the value of a header. Raise h11.RemoteProtocolError for another line."""
    name, colon, value = line.partition(b":")
    if not colon or not _TOKEN.fullmatch(name):
        refuse("a header of the request is not NAME: VALUE")
    name, value = name.lower(), value.strip(b" \t")
    if _CONTROL.search(value):
        refuse(f"the header {name.decode()[:80]} has controls in its value")
    return name, value


def path_of(target: bytes) -> bytes:
    """Return the path and query of a target, also where it names a host."""
    if b"#" in target:
        refuse("the target of the request has a fragment")
    origin = _ORIGIN.match(target)
    path = target[origin.end() :] if origin else target
    if origin and not path.startswith(b"/"):
        path = b"/" + path
    try:
        unquote_to_bytes(path.partition(b"?")[0]).decode()
    except UnicodeDecodeError:
        refuse("the path of the request is no UTF-8")
    return path


def refuse(said: str, status: int = 400) -> NoReturn:
    """Raise what h11 raises for a request that is none."""
    raise h11.RemoteProtocolError(said, error_status_hint=status)


def _check_headers(headers: list[Header], *, is_new: bool) -> None:
    if _only(headers, b"host") is None and is_new:
        refuse("the request has no header Host")
    length, coding = _only(headers, b"content-length"), _only(headers, b"transfer-encoding", 501)
    if coding is not None and coding.lower() != b"chunked":
        refuse("the Transfer-Encoding of the request is not chunked", 501)
    if coding is not None and (length is not None or not is_new):
        refuse("the request has a Transfer-Encoding beside a Content-Length, or in HTTP/1.0")
    if length is not None and not _LENGTH.fullmatch(length):
        refuse("the Content-Length of the request is no number")
    expected = next((value for name, value in headers if name == b"expect"), b"100-continue")
    if expected.lower() != b"100-continue":
        refuse("the header Expect is not 100-continue", 417)


def _only(headers: list[Header], wanted: bytes, status: int = 400) -> bytes | None:
    found = [value for name, value in headers if name == wanted]
    if len(found) > 1:
        refuse(f"the request has several headers {wanted.decode()}", status)
    return found[0] if found else None
