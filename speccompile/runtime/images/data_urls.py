"""Pictures as data: URLs, and the errors of invalid ones."""

import re
from base64 import b64decode, b64encode
from binascii import Error

from speccompile.errors import PromptError
from speccompile.runtime.images.limits import MAX_BYTES

_DATA = re.compile(r"data:image/[a-z0-9.+-]+;base64,")
_NO_LETTER = re.compile(r"[^A-Za-z0-9+/]")
_LOST = 3
"""Letters that four lack where one stands alone, which is less than a byte."""
_WHOLE = "encode the whole file"
_HINTS = {
    **dict.fromkeys(" \t\r\n", "leave out spaces and line ends, as base64 -w0 FILE does"),
    **dict.fromkeys("-_", "write + in place of -, and / in place of _"),
    "%": "send the text as it is, not percent-encoded",
}
"""Character of another form of base64 -> what to do about it."""


def data_url(url: object, where: str) -> bytes:
    """Return the bytes of a data: URL. Raise PromptError for another URL and for one that is no base64."""
    if not isinstance(url, str) or not (found := _DATA.match(url[:80].lower())):
        shown = repr(url[:40] if isinstance(url, str) else url)
        raise PromptError(
            f"{where}: received the URL {shown}, expected data:image/..;base64,.. with the picture itself",
            hint="nothing is fetched from the network: encode the file, for example by base64 -w0 FILE",
        )
    if len(url) > MAX_BYTES * 4 // 3 + len(found.group()) + 4:
        raise PromptError(
            f"{where}: received a URL of {len(url)} characters, expected at most {MAX_BYTES} bytes",
            hint="give a smaller picture",
        )
    text = url[found.end() :]
    try:
        data = b64decode(text, validate=True)
    except (Error, ValueError):
        data = b""
    if (last := text[-4:]) and b64encode(data[len(text) // 4 * 3 - 3 :]).decode() != last:
        problem, hint = _problem(text)
        raise PromptError(f"{where}: the picture is no base64: {problem}", hint=hint)
    return data


def _problem(text: str) -> tuple[str, str]:
    """Return what makes a text no base64, and what to do about it."""
    letters = text.rstrip("=")
    count, ends, lacks = len(letters), len(text) - len(letters), -len(letters) % 4
    if found := _NO_LETTER.search(letters):
        wrong, expected = found.group(), "A to Z, a to z, 0 to 9, + and /"
        return f"character {found.start() + 1} is {wrong!r}, expected {expected}", _HINTS.get(wrong, _WHOLE)
    if lacks == _LOST:
        return f"it has {count} letters, which no number of bytes has", _WHOLE
    if ends != lacks:
        return f"it has {count} letters and then {ends} times '=', expected {lacks} times", _WHOLE
    return "its last letter has bits that belong to no byte", _WHOLE
