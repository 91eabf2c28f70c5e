"""Client of a server with OpenAI's completions API: JSON requests, with retries."""

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
"""Seconds without a byte from the server, which sends nothing before a response is complete."""

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before the first retry, the second, .."""

LONGEST_WAIT = 60.0
"""Maximum seconds of a server's Retry-After."""

BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
"""HTTP statuses after which a request is retried."""

UNFIT = (301, 302, 303, 307, 308, 401, 403, 404, 405)
"""HTTP statuses that every request to this address would get."""

GOES_ON = "mend that, and run the same command again: it goes on where it was"


class RefusedError(SpeccompileError):
    """Server error that concerns a single request."""


class Server:
    """Client of one address. `post` is thread-safe."""

    def __init__(
        self,
        address: str,
        key: str | None,
        *,
        waits: tuple[float, ...] = WAITS,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """address: with or without /v1 and /completions. key: the server's API key, sent to this address only."""
        self.url, self._key = completions_url(address), key
        self._waits, self._sleep = waits, sleep
        self._opener = urllib.request.build_opener(_NoRedirect)

    def post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the server's JSON object.

        Raise RefusedError if the server refuses this request, after retries for busy statuses; SpeccompileError if it
        cannot be reached or would refuse every request.
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
        with self._opener.open(request, timeout=TIMEOUT) as response:
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
    """Refusal of redirects: a key must not reach another address, and a redirected POST would become a GET."""

    def redirect_request(self, *_: Any) -> None:
        return None


def completions_url(address: str) -> str:
    """Return the URL of the completions API. Raise UsageError for an invalid address or one with a password."""
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
    """Return the seconds of the Retry-After header, or 0."""
    value = error.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else 0.0


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the server's error message on one line."""
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
