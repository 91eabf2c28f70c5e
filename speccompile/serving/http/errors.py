"""Error responses: an HTTP status, and an error in OpenAI's form."""

import math
from typing import Any

from speccompile.errors import OverloadedError, SpeccompileError, UsageError
from speccompile.progress import LOGGER

INVALID, NOT_FOUND, UNAVAILABLE, FAULT = "invalid_request_error", "not_found_error", "unavailable_error", "server_error"
"""Types of errors. OpenAI's clients look at the status only."""

_NO_RETRY = {"x-should-retry": "false"}
"""Header against retries: OpenAI's clients otherwise repeat requests that got 408, 409, 429, or 500 and above."""


class RequestError(UsageError):
    """Error of a request. status: of HTTP; kind: one of the types above; param: the invalid field, as in
    `messages[0].role`; code: machine-readable name of the error."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        hint: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.kind, self.param, self.code, self.headers = status, kind, param, code, headers or {}

    def to_json(self) -> dict[str, Any]:
        """Return {"error": ..} in OpenAI's form."""
        message = f"{self} (hint: {self.hint})" if self.hint else str(self)
        return {"error": {"message": message, "type": self.kind, "param": self.param, "code": self.code}}


def to_request_error(error: BaseException) -> RequestError:
    """Return the error for the client. A defect of speccompile is logged, and its details are not sent."""
    match error:
        case RequestError():
            return error
        case OverloadedError(retry_after=None):
            headers = {"Retry-After": "1"}  # by then another replica has replaced this one
            return RequestError(str(error), status=503, kind=UNAVAILABLE, code="draining", headers=headers)
        case OverloadedError():
            headers = {"Retry-After": str(max(1, math.ceil(error.retry_after or 0)))}
            return RequestError(
                str(error), status=429, kind="rate_limit_error", code="rate_limit_exceeded", headers=headers
            )
        case RecursionError():
            return RequestError("the body is nested too deeply", code="invalid_json")
        case UsageError():
            return RequestError(str(error), hint=error.hint)
        case SpeccompileError():
            LOGGER.error("a request failed: %s", error)
            return RequestError(str(error), status=500, kind=FAULT, hint=error.hint)
    LOGGER.error("a request failed, by a defect of speccompile", exc_info=error)
    return RequestError("the server failed: its log says how", status=500, kind=FAULT, code="defect")


def cancelled_error(reason: str, tokens: int) -> RequestError:
    """Return the error for a sequence with finish_reason `cancelled` or `timeout`, after `tokens` new tokens."""
    if reason == "cancelled":
        return RequestError(
            "the server is closing and did not finish this request", status=503, kind=UNAVAILABLE, code="draining",
            headers={"Retry-After": "1"},
        )  # fmt: skip
    if not tokens:
        return RequestError(
            "the request waited for longer than this server allows", status=503, kind=UNAVAILABLE, code="timeout",
            headers={"Retry-After": "1"},
        )  # fmt: skip
    return RequestError(
        f"the request took longer than this server allows: it was ended after {tokens} new tokens",
        status=504, kind=UNAVAILABLE, code="timeout", hint="ask for fewer tokens, or stream", headers=_NO_RETRY,
    )  # fmt: skip
