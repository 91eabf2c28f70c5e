"""What a request says of the form of its answer."""

from typing import TYPE_CHECKING, Any

from speccompile.serve.refusal import RefusedError
from speccompile.serve.schema import shown

if TYPE_CHECKING:
    from speccompile.runtime import Bundle


def constraint_of(body: dict[str, Any], bundle: "Bundle") -> Any | None:
    """The constraint that a request's fields ask for, None where its answer is free.

    body: as `fields.read` gives it. Raises RefusedError for what this bundle cannot impose: an answer that breaks the
    form that was asked for would be wrong without a word.
    """
    kind = body.get("response_format", {"type": "text"})
    if kind != {"type": "text"}:
        raise _refused("response_format", kind, 'only {"type": "text"} is supported')
    for name in ("structured_outputs", "tools"):
        if body.get(name):
            raise _refused(name, body[name], "which is not supported")
    if body.get("tool_choice", "none") not in ("none", "auto"):
        raise _refused("tool_choice", body["tool_choice"], "expected none or auto, as there are no tools")
    return None


def _refused(name: str, value: Any, why: str) -> RefusedError:
    return RefusedError(
        f"{name}: received {shown(value)}, {why}", param=name, code="unsupported_parameter", hint="leave it out"
    )
