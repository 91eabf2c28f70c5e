"""The line and headers of a request, held to what the runtime in C++ holds them to: h11 takes more."""

import re
from typing import NoReturn
from urllib.parse import unquote_to_bytes

import h11

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_ORIGIN = re.compile(rb"https?://[^/?]*", re.IGNORECASE)


def checked_head(request: h11.Request) -> h11.Request:
    """Return a request whose target is a path, also where it named a host. Raise h11.RemoteProtocolError for what
    servers and proxies read in several ways."""
    names = {name for name, _ in request.headers}
    if request.http_version not in (b"1.1", b"1.0"):
        _refuse("the version of the request is neither HTTP/1.1 nor HTTP/1.0")
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
        _refuse("the request has a Transfer-Encoding beside a Content-Length, or in HTTP/1.0")
    for name, value in request.headers:
        if _CONTROL.search(value):
            _refuse(f"the header {name.decode()[:80]} has controls in its value")
        if name == b"expect" and value.lower() != b"100-continue":
            _refuse("the header Expect is not 100-continue", 417)
    return _with_path(request)


def _with_path(request: h11.Request) -> h11.Request:
    if b"#" in request.target:
        _refuse("the target of the request has a fragment")
    origin = _ORIGIN.match(request.target)
    target = request.target[origin.end() :] if origin else request.target
    if origin and not target.startswith(b"/"):
        target = b"/" + target
    try:
        unquote_to_bytes(target.partition(b"?")[0]).decode()
    except UnicodeDecodeError:
        _refuse("the path of the request is no UTF-8")
    return h11.Request(method=request.method, headers=request.headers, target=target, http_version=request.http_version)


def _refuse(said: str, status: int = 400) -> NoReturn:
    raise h11.RemoteProtocolError(said, error_status_hint=status)
