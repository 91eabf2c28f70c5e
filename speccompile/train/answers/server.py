"""Requests to a server that speaks OpenAI's completions: JSON there and back, tried again where that may help."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from speccompile.errors import SpeccompileError, UsageError

TIMEOUT = 600.0
"""Seconds without a byte from the server: it says nothing before an answer is whole."""

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before the second try, the third, .."""

LONGEST_WAIT = 60.0
"""Seconds that a server may ask for."""

BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
"""Statuses after which a request is tried again."""

UNFIT = (301, 302, 303, 307, 308, 401, 403, 404, 405)
"""Statuses that every request would get."""

GOES_ON = "mend that, and run the same command again: it goes on where it was"


class RefusedError(SpeccompileError):
    """The server does not take this request."""


class Server:
    """One address. `post` may be called by several threads at once."""

    def __init__(
        self,
        address: str,
        key: str | None,
        *,
        waits: tuple[float, ...] = WAITS,
        timeout: float = TIMEOUT,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """address: with or without /v1 and /completions. key: of the server, which goes nowhere else."""
        self.url, self._key = completions_url(address), key
        self._waits, self._timeout, self._sleep = waits, timeout, sleep
        self._opener = urllib.request.build_opener(_NoRedirect)

    def post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The server's answer.

        Raises RefusedError for what only this request has, or trying again has not mended; SpeccompileError where the
        server cannot be reached or takes no request at all.
        """
        for wait in (*self._waits, None):
            try:
                return self._once(body)
            except urllib.error.HTTPError as error:
                asked, problem = _asked_wait(error), self._refusal(error)
                if error.code not in BUSY:
                    raise problem from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                words = str(getattr(error, "reason", error)) or type(error).__name__
                asked, problem = 0.0, SpeccompileError(f"{self.url} does not answer: {words}", hint=GOES_ON)
            if wait is None:
                raise problem
            self._sleep(max(wait, min(asked, LONGEST_WAIT)))
        raise AssertionError("the last try returns or raises")

    def _once(self, body: Mapping[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - http or https, see completions_url
            self.url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        if self._key:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        with self._opener.open(request, timeout=self._timeout) as response:
            content = response.read()
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ValueError(f"received {content[:80]!r}, expected a JSON object")  # noqa: TRY004 - see `post`
        return found

    def _refusal(self, error: urllib.error.HTTPError) -> SpeccompileError:
        said = f"status {error.code}: {_reason(error)}"
        if error.code not in UNFIT:
            return RefusedError(f"the endpoint refused it with {said}")
        return SpeccompileError(
            f"{self.url}: received {said}, expected an endpoint that completes texts",
            hint="check the address, the model's name, and the environment variable with the key",
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another address is for the user to give: a key must not go there, and a redirected POST would come as a GET."""

    def redirect_request(self, *_: Any) -> None:
        return None


def completions_url(address: str) -> str:
    """The address of completions. Raises UsageError for one that is none, or that holds a password."""
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"train.data.answers.endpoint: received '{address}', expected an address, http or https",
            hint="for example http://localhost:8000/v1",
        )
    if parts.username or parts.password or parts.query:
        raise UsageError(
            "train.data.answers.endpoint: received an address with a user, a password or a query, expected a plain one",
            hint="put the key into an environment variable, and name that in train.data.answers.key",
        )
    path = parts.path.rstrip("/")
    if not path.endswith("/completions"):
        path = f"{path}/completions" if path.endswith("/v1") else f"{path}/v1/completions"
    return f"{parts.scheme}://{parts.netloc}{path}"


def _asked_wait(error: urllib.error.HTTPError) -> float:
    """Seconds that the server asks for, 0 where it does not."""
    value = error.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else 0.0


def _reason(error: urllib.error.HTTPError) -> str:
    """What the server says, on one line."""
    try:
        content = error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        content = ""
    try:
        said = json.loads(content)
        said = said.get("error", said.get("message", said))
        words = str(said.get("message", said) if isinstance(said, dict) else said)
    except (ValueError, AttributeError):
        words = content
    return " ".join(words.split())[:300] or str(error.reason)
