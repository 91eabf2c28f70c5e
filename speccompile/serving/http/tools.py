"""Tools: what a request says that the model may call, how its family writes calls, and what an answer calls."""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.schema import shown
from speccompile.serving.http.structured_outputs import check_supported, compile_constraint

if TYPE_CHECKING:
    from speccompile.runtime import Bundle
    from speccompile.runtime.constraints import Constraint


class ToolCallFormat(NamedTuple):
    """How some models write calls. name: for people; begin, end: around one call, or around all of them where they are
    a list; arguments: the key beside `name`. mark: what templates of the family hold."""

    name: str
    mark: str
    begin: str
    end: str
    arguments: str
    is_list: bool = False


FAMILIES = (
    ToolCallFormat("Hermes", "<tool_call>", "<tool_call>\n", "\n</tool_call>", "arguments"),
    ToolCallFormat("Mistral", "[TOOL_CALLS]", "[TOOL_CALLS] ", "", "arguments", is_list=True),
    ToolCallFormat("Llama", '"parameters"', "", "", "parameters"),
)
_OTHERS = ("<function=", "[ARGS]")
"""What templates hold of models that write calls in forms of their own."""


def find_tool_call_format(template: str) -> ToolCallFormat | None:
    """The family of a chat template, None where it takes no tools or is of none of these."""
    if "tools" not in template or any(mark in template for mark in _OTHERS):
        return None
    return next((family for family in FAMILIES if family.mark in template), None)


class Call(NamedTuple):
    """arguments: as JSON."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Tools:
    """family: of the model. functions: those that may be called; given: all of them, as the template is told. forced:
    whether one must be; parallel: whether several may be."""

    family: ToolCallFormat
    functions: list[dict[str, Any]]
    declared: list[dict[str, Any]]
    forced: bool
    parallel: bool

    @classmethod
    def of(cls, body: dict[str, Any], bundle: "Bundle") -> "Tools | None":
        """What a request's fields say of tools, None where none is to be called. Raises RefusedError."""
        given, choice = body.get("tools", []), body.get("tool_choice", "auto")
        if not given:
            if choice not in ("none", "auto"):
                raise RequestError(
                    f"tool_choice: received {shown(choice)} without tools, expected none or auto", param="tool_choice",
                    hint="give tools",
                )  # fmt: skip
            return None
        if choice == "none":
            return None
        family = find_tool_call_format(bundle.chat_template[0]) if bundle.chat_template else None
        if family is None:
            raise RequestError(
                "tools: this model's chat template takes none, or has calls in a form that is not known here",
                param="tools", code="unsupported_parameter",
                hint=f"known are the forms of {', '.join(each.name for each in FAMILIES)}",
            )  # fmt: skip
        functions = [tool["function"] for tool in given]
        forced = choice != "auto"
        if isinstance(choice, dict):
            wanted = choice["function"]["name"]
            functions = [function for function in functions if function["name"] == wanted]
            if not functions:
                raise RequestError(
                    f"tool_choice: received {wanted!r}, expected one of the tools", param="tool_choice",
                    hint="name a function of tools",
                )  # fmt: skip
        parallel = bool(body.get("parallel_tool_calls", True)) and not isinstance(choice, dict)
        return cls(family, functions, given, forced, parallel)

    def constraint(self, bundle: "Bundle") -> "Constraint | None":
        """What makes a call certain, None where the model may choose. Raises RefusedError."""
        if not self.forced:
            return None
        check_supported(bundle, "tool_choice")
        return compile_constraint(bundle, "tool_choice", "grammar", self._grammar(bundle))

    def _grammar(self, bundle: "Bundle") -> str:
        """In Lark's form: each function with its own schema, whose references begin there."""
        family, bodies = self.family, [f"body_{index}" for index in range(len(self.functions))]
        begin, end = _literal(family.begin, bundle), _literal(family.end, bundle)
        call = f"{begin} ({' | '.join(bodies)}) {end}"
        if family.is_list:
            call = f"({' | '.join(bodies)})"
            more = f'(", " {call})*' if self.parallel else ""
            start = f'{begin} "[" {call} {more} "]"'
        else:
            start = f'{call} ("\\n" {call})*' if self.parallel and family.begin else call
        rules = [f"start: {start}"]
        for index, function in enumerate(self.functions):
            head = f'{{"name": {json.dumps(function["name"])}, "{family.arguments}": '
            schema = function.get("parameters") or {"type": "object", "properties": {}, "additionalProperties": False}
            written = json.dumps(schema | {"x-guidance": {"whitespace_pattern": " ?", "lenient": False}})
            rules += [f'body_{index}: {json.dumps(head)} args_{index} "}}"', f"args_{index}: %json {written}"]
        return "\n".join(rules)

    def read(self, text: str) -> tuple[str, list[Call]]:
        """What an answer says, and what it calls. Where that is not in the family's form, or of no known function, all
        of it is said."""
        said, found = _written(self.family, text)
        names = {function["name"] for function in self.functions}
        calls = [_call(each, self.family, names) for each in found]
        known = [call for call in calls if call is not None]
        if not known or len(known) < len(calls):
            return text, []
        return said, known if self.parallel else known[:1]


def to_json(call: Call) -> dict[str, Any]:
    """A call as OpenAI writes it."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def template_messages(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as templates know them: arguments of calls are values, and no JSON in a text. Raises RefusedError."""
    return [message | {"tool_calls": [_told(call) for call in message["tool_calls"]]} if message.get("tool_calls")
            else message for message in messages]  # fmt: skip


def _told(call: dict[str, Any]) -> dict[str, Any]:
    try:
        function = call["function"]
        arguments = function["arguments"]
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
        return call | {"function": function | {"arguments": read}}
    except (TypeError, KeyError, ValueError):
        raise RequestError(
            f"messages: received the call {shown(call)}, expected a function with its arguments as JSON",
            param="messages",
        ) from None


def _literal(text: str, bundle: "Bundle") -> str:
    """A text in Lark's form; by its number where it begins with a special token, which no text can spell."""
    mark = text.strip()
    number = bundle.grammars.special(mark) if mark else None
    if number is None:
        return json.dumps(text) if text else ""
    before, _, behind = text.partition(mark)
    return " ".join(
        filter(None, (json.dumps(before) if before else "", f"<[{number}]>", json.dumps(behind) if behind else ""))
    )


def _written(family: ToolCallFormat, text: str) -> tuple[str, list[Any]]:
    """What stands before the calls of a text, and their JSON values. Special tokens may have been left out of it."""
    begin, end = family.begin.strip(), family.end.strip()
    if end and begin in text:
        said, _, rest = text.partition(begin)
        parts = re.findall(f"{re.escape(begin)}(.*?){re.escape(end)}", begin + rest, re.DOTALL)
    else:
        said, _, rest = text.partition(begin) if begin and begin in text else ("", "", text)
        parts = [rest]
    values = [value for part in parts for value in _values(part)]
    flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return said.strip(), flat


def _values(text: str) -> list[Any]:
    """JSON values, one behind the other; None for what is none."""
    decoder, found = json.JSONDecoder(), list[Any]()
    while text := text.strip():
        try:
            value, end = decoder.raw_decode(text)
        except ValueError:
            return [*found, None]
        found.append(value)
        text = text[end:]
    return found


def _call(value: Any, family: ToolCallFormat, names: set[str]) -> Call | None:
    if not isinstance(value, dict) or value.get("name") not in names:
        return None
    arguments = value.get(family.arguments)
    return Call(value["name"], json.dumps(arguments, ensure_ascii=False)) if isinstance(arguments, dict) else None
