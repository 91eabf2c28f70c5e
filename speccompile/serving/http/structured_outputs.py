"""Structured outputs: the constraint that a request asks for."""

from typing import TYPE_CHECKING, Any

from speccompile.errors import UsageError
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.schema import shown

if TYPE_CHECKING:
    from speccompile.runtime.constraints import Constraint
    from speccompile.runtime.text_bundle import Texts

GUIDED = {"guided_json": "json_schema", "guided_regex": "regex", "guided_grammar": "grammar",
          "guided_choice": "choice"}  # fmt: skip
"""vLLM's older fields -> kinds of constraints."""
STRUCTURED = {"json": "json_schema", "regex": "regex", "grammar": "grammar", "choice": "choice",
              "json_object": "json_object"}  # fmt: skip
"""Keys of vLLM's `structured_outputs` -> kinds of constraints."""


def constraint_of(body: dict[str, Any], bundle: "Texts") -> "Constraint | None":
    """Return the constraint that a request's fields ask for, or None.

    body: the result of `fields.validate`. Raise RequestError for a constraint that this bundle cannot impose: an answer
    that breaks the requested form would be silently wrong.
    """
    asked = [*_response_format(body), *_structured(body)]
    asked += [(name, kind, body[name]) for name, kind in GUIDED.items() if name in body]
    if not asked:
        return None
    (name, kind, text), *others = asked
    if others:
        raise RequestError(f"{others[0][0]}: received it beside {name}, expected one of them", param=others[0][0])
    return compile_constraint(bundle, name, kind, text)


def compile_constraint(bundle: "Texts", field: str, kind: str, text: Any) -> "Constraint":
    """Compile the constraint in a field. Raise RequestError for an invalid one."""
    check_supported(bundle, field)
    try:
        return bundle.constraint(kind, text)
    except UsageError as error:
        raise RequestError(f"{field}: {error}", param=field, hint=error.hint) from error


def check_supported(bundle: "Texts", field: str) -> None:
    """Raise RequestError for a field if the bundle takes no constraints."""
    if not bundle.grammars.is_supported:
        raise RequestError(
            f"{field}: this model was compiled without constraints", param=field, code="unsupported_parameter",
            hint="leave it out; a bundle with constraints: true takes it",
        )  # fmt: skip


def _response_format(body: dict[str, Any]) -> list[tuple[str, str, Any]]:
    wanted, name = body.get("response_format", {"type": "text"}), "response_format"
    match wanted["type"]:
        case "text":
            return []
        case "json_object":
            return [(name, "json_object", "")]
        case "json_schema" if isinstance(wanted.get("json_schema"), dict) and "schema" in wanted["json_schema"]:
            return [(name, "json_schema", wanted["json_schema"]["schema"])]
    raise RequestError(
        f"{name}: received {shown(wanted)}, expected a schema at json_schema.schema", param=f"{name}.json_schema"
    )


def _structured(body: dict[str, Any]) -> list[tuple[str, str, Any]]:
    name, given = "structured_outputs", body.get("structured_outputs", {})
    given = {key: value for key, value in given.items() if value is not None and value is not False}
    unknown = next((key for key in given if key not in STRUCTURED), None)
    if unknown is not None:
        raise RequestError(
            f"{name}.{unknown}: received {shown(given[unknown])}, which is not supported", param=f"{name}.{unknown}",
            code="unsupported_parameter", hint=f"give one of {', '.join(STRUCTURED)}",
        )  # fmt: skip
    return [(f"{name}.{key}", STRUCTURED[key], value) for key, value in given.items()]
