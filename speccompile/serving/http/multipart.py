"""Bodies of forms with files: multipart/form-data (RFC 7578), whole in memory."""

import re
from typing import NamedTuple

from speccompile.serving.http.errors import RequestError

MEDIA = "multipart/form-data"
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^;\s"]{1,70}))', re.IGNORECASE)
_PARAMETER = re.compile(r';\s*(name|filename)="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
MOST_PARTS = 64
"""Fields of a form."""


class Part(NamedTuple):
    """Field of a form. filename: None of a field that is no file."""

    name: str
    filename: str | None
    data: bytes

    @property
    def text(self) -> str:
        """Return its value. Raise RequestError unless it is UTF-8 without a file's name."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            raise RequestError(f"{self.name}: received bytes that are not UTF-8", param=self.name) from None


def read_form(body: bytes, content_type: str) -> list[Part]:
    """Return the fields of a form, in order. content_type: the header, with the boundary of the parts. Raise
    RequestError for a body that is not whole."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise RequestError(f"received a Content-Type without a boundary, expected one of {MEDIA}", code="invalid_form")
    mark = b"\r\n--" + (found[1] or found[2]).encode("latin-1", "replace")  # as it came
    pieces = (b"\r\n" + body).split(mark)
    if len(pieces) > MOST_PARTS + 2:
        raise RequestError(f"the form has more than {MOST_PARTS} fields", code="invalid_form")
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise RequestError("the form does not end with its boundary: the body is not whole", code="invalid_form")
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> Part:
    head, separator, data = piece.lstrip(b" \t").partition(b"\r\n\r\n")
    lines = head.decode("utf-8", "replace").split("\r\n")
    said = next((line for line in lines if line.lower().startswith("content-disposition:")), "")
    parameters = {name.lower(): value.replace('\\"', '"') for name, value in _PARAMETER.findall(said)[::-1]}
    if not separator or "name" not in parameters:
        raise RequestError("a part of the form has no name", code="invalid_form")
    return Part(parameters["name"], parameters.get("filename"), data)
