"""The requests of a batch file, one JSON object a line."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from speccompile.errors import UsageError
from speccompile.machine.plain_files import read_plain
from speccompile.serving.http.fields import CHAT_URL, COMPLETIONS_URL
from speccompile.serving.http.prompt_prefix import prompt_prefix

_SHOWN = 10
"""Maximum number of wrong lines in a message."""


@dataclass(frozen=True)
class BatchRequest:
    """Request of a batch file. number: of its line, from 1. body: of a request to `url`, as JSON."""

    number: int
    custom_id: str
    url: str
    body: bytes

    @property
    def request_id(self) -> str:
        """Return an id that only equal requests share."""
        return f"req_{sha256(self.url.encode() + self.body).hexdigest()[:32]}"


def read_lines(path: Path) -> list[BatchRequest]:
    """Return the requests of a file in order. Skip blank lines.

    As with OpenAI, a file with a wrong line is refused as a whole before any work: UsageError, with the numbers of the
    lines. Bodies are not checked here: an invalid body gets its own error response.
    """
    try:
        data = read_plain(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="give a file of requests, one JSON object a line") from error
    lines: list[BatchRequest] = []
    wrong: list[str] = []
    first = dict[str, int]()
    for number, text in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            lines.append(_line(number, text, first))
        except _WrongLineError as error:
            wrong.append(f"line {number}: {error}")
    if wrong:
        raise UsageError(
            f"{path}: received {len(wrong)} lines that are no requests:\n{_some(wrong)}",
            hint=f'write each as {{"custom_id": "1", "method": "POST", "url": "{CHAT_URL}", "body": {{..}}}}',
        )
    if not lines:
        raise UsageError(f"{path}: received a file without lines, expected a request in each", hint="add a request")
    return lines


def sorted_by_prefix(lines: Sequence[BatchRequest]) -> list[BatchRequest]:
    """Return the requests sorted by their prompts, so that neighbours share cached prefixes."""
    return sorted(lines, key=lambda line: (line.url, _beginning(json.loads(line.body)), line.number))


class _WrongLineError(ValueError):
    """Error of a line."""


def _line(number: int, text: bytes, first: dict[str, int]) -> BatchRequest:
    """Parse a line. first: custom_id -> line where it first occurs; this line's is added."""
    try:
        data = json.loads(text.decode())
    except RecursionError:
        raise _WrongLineError("received JSON that is nested too deeply") from None
    except ValueError as error:  # invalid JSON, or invalid UTF-8
        raise _WrongLineError(f"received no JSON: {error}") from None
    if not isinstance(data, dict):
        raise _WrongLineError(f"received {_shown(data)}, expected an object")
    custom_id, method, url = (data.get(name) for name in ("custom_id", "method", "url"))
    if not isinstance(custom_id, str) or not custom_id:
        raise _WrongLineError(f"custom_id: received {_shown(custom_id)}, expected a text")
    if (before := first.setdefault(custom_id, number)) != number:
        raise _WrongLineError(f"custom_id: received {_shown(custom_id)}, which line {before} has already")
    if method != "POST":
        raise _WrongLineError(f"method: received {_shown(method)}, expected POST")
    if url not in (CHAT_URL, COMPLETIONS_URL):
        raise _WrongLineError(f"url: received {_shown(url)}, expected {CHAT_URL} or {COMPLETIONS_URL}")
    if not isinstance(data.get("body"), dict):
        raise _WrongLineError(f"body: received {_shown(data.get('body'))}, expected an object")
    return BatchRequest(number, custom_id, url, json.dumps(data["body"]).encode())


def _beginning(body: dict[str, Any]) -> str:
    """Return the beginning of the prompt: chat templates write the tools before the messages."""
    tools = body.get("tools")
    return f"{json.dumps(tools) if tools else ''}{prompt_prefix(body)}"


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}.."


def _some(wrong: Sequence[str]) -> str:
    def lines() -> Iterator[str]:
        yield from wrong[:_SHOWN]
        if len(wrong) > _SHOWN:
            yield f"and {len(wrong) - _SHOWN} more"

    return "\n".join(lines())
