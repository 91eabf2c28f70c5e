"""Tool calls: the functions of a request, the call format of a model, and the calls in an answer."""

import json
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from speccompile.errors import PromptError
from speccompile.runtime.text.chat import choose_template
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.schema import shown
from speccompile.serving.http.structured_outputs import check_supported, compile_constraint

if TYPE_CHECKING:
    from speccompile.runtime.constraints import Constraint
    from speccompile.runtime.text_bundle import Texts


class ToolCallFormat(NamedTuple):
    """Format of tool calls. name: for messages; begin, end: around one call, or around the list of all calls;
    arguments: the key next to `name`. mark: text that identifies the format in chat templates."""

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
OTHER_MARKS = ("<function=", "[ARGS]")
"""Texts in chat templates of models with call formats that are not supported."""


def find_tool_call_format(template: str) -> ToolCallFormat | None:
    """Return the tool-call format of a chat template, or None if it takes no tools or has an unknown format."""
    if "tools" not in template or any(mark in template for mark in OTHER_MARKS):
        return None
    return next((family for family in FAMILIES if family.mark in template), None)


def _format_of(bundle: "Texts") -> ToolCallFormat | None:
    """Return the tool-call format of the template that conversations with tools get."""
    if bundle.chat_template is None:
        return None
    try:
        return find_tool_call_format(choose_template(bundle.chat_template[0], tools=[]))
    except PromptError:
        return None


class Call(NamedTuple):
    """A tool call. arguments: as JSON."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Tools:
    """Tools of a request. family: call format of the model. functions: those that may be called; declared: all of them,
    for the template. forced: whether a call is required; parallel: whether several calls are allowed."""

    family: ToolCallFormat
    functions: list[dict[str, Any]]
    declared: list[dict[str, Any]]
    forced: bool
    parallel: bool

    @classmethod
    def of(cls, body: dict[str, Any], bundle: "Texts") -> "Tools | None":
        """Return the tools of a request's fields, or None if none may be called. Raise RequestError for invalid
        ones."""
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
        family = _format_of(bundle)
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

    def constraint(self, bundle: "Texts") -> "Constraint | None":
        """Return the constraint that forces a tool call, or None when the model may choose. Raise RequestError if the
        bundle takes no constraints."""
        if not self.forced:
            return None
        check_supported(bundle, "tool_choice")
        return compile_constraint(bundle, "tool_choice", "grammar", self._grammar(bundle))

    def _grammar(self, bundle: "Texts") -> str:
        """Return the grammar of calls in Lark's form: each function with its own schema, which is the root of its
        references."""
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
        """Return the text of an answer and its calls. If a call has another format or an unknown function, return all
        as text."""
        said, found = _written(self.family, text)
        names = {function["name"] for function in self.functions}
        calls = [_call(each, self.family, names) for each in found]
        known = [call for call in calls if call is not None]
        if not known or len(known) < len(calls):
            return text, []
        return said, known if self.parallel else known[:1]


def to_json(call: Call) -> dict[str, Any]:
    """Return a call in OpenAI's form."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def _literal(text: str, bundle: "Texts") -> str:
    """Return a text in Lark's form. A special token, which no text can spell, is written by its number."""
    mark = text.strip()
    number = bundle.grammars.special(mark) if mark else None
    if number is None:
        return json.dumps(text) if text else ""
    before, _, behind = text.partition(mark)
    return " ".join(
        filter(None, (json.dumps(before) if before else "", f"<[{number}]>", json.dumps(behind) if behind else ""))
    )


def _written(family: ToolCallFormat, text: str) -> tuple[str, list[Any]]:
    """Return the text before the calls, and the calls' JSON values. Special tokens may be missing from the text."""
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
    """Return consecutive JSON values, with None for the first invalid one."""
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
