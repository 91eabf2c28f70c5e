"""Page to talk to the model: files that browsers load from this server, and from nowhere else."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from speccompile.serving.http.errors import NOT_FOUND, RequestError

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # browsers may keep it, and ask by its ETag whether it has changed
}


@dataclass(frozen=True)
class _File:
    """File of the page with its headers."""

    data: bytes
    headers: dict[str, str]


def page_routes() -> list[Route]:
    """Return the routes of the page. They need no API key: the page asks for it, and sends it to the API.

    Its addresses are relative, so that it also works below a path of a proxy."""
    return [
        Route("/", _index, methods=["GET"]),
        Route("/page/{name}", _asset, methods=["GET"]),
        Route("/favicon.ico", _no_icon, methods=["GET"]),
    ]


async def _index(http: HttpRequest) -> Response:
    return _respond(http, "index.html")


async def _asset(http: HttpRequest) -> Response:
    return _respond(http, http.path_params["name"])


async def _no_icon(http: HttpRequest) -> Response:
    """Return nothing: the page holds its icon, but browsers ask for this one beside other answers."""
    return Response(status_code=204, headers={"Cache-Control": "max-age=86400"})


def _respond(http: HttpRequest, name: str) -> Response:
    """Return a file, or 304 without it if the client has it. Raise RequestError for a name that is not there."""
    file = _page().get(name)
    if file is None:
        raise RequestError(f"the page has no file {name[:80]!r}", status=404, kind=NOT_FOUND)
    known = {tag.strip().removeprefix("W/") for tag in http.headers.get("if-none-match", "").split(",")}
    if file.headers["ETag"] in known or "*" in known:
        return Response(status_code=304, headers=file.headers)
    return Response(file.data, headers=file.headers)


@cache
def _page() -> dict[str, _File]:
    """Return name -> file."""
    found = {}
    for entry in files("speccompile.serving.http").joinpath("page").iterdir():
        kind = _TYPES.get(entry.name.rpartition(".")[2])
        if kind is not None:
            data = entry.read_bytes()
            tag = f'"{hashlib.sha256(data).hexdigest()[:24]}"'
            headers = {"Content-Type": f"{kind}; charset=utf-8", "ETag": tag}
            found[entry.name] = _File(data, _HEADERS | headers)
    return found
