"""Chat templates within limits: they come with a checkpoint from elsewhere, and run in the process that serves.

A template writes a prompt in milliseconds. One that loops on, or writes on, ends with an error that names its line.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from jinja2 import TemplateRuntimeError, TemplateSyntaxError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

SECONDS = 5.0
"""Time for one prompt."""
CHARACTERS = 1 << 24
"""Largest prompt, and largest text of an expression."""
_EXPONENT = 64
_WIDTH = re.compile(r"\d{7,}")
"""Widths in formats that no text needs."""

_DEADLINE: ContextVar[float] = ContextVar("deadline")


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Sandbox whose templates end: every pass of a loop and every call of a macro looks at the clock, and no expression
    makes a text without end."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        _limit(template, in_loop=False)
        return template

    def spend(self) -> None:
        """Raise TemplateRuntimeError when the time for a prompt is over."""
        if time.monotonic() > _DEADLINE.get(float("inf")):
            raise TemplateRuntimeError(f"it takes more than {SECONDS:.0f} seconds")

    def concatenate(self, *parts: object) -> str:
        """Return the texts of `parts` joined, as ~ does."""
        texts = [str(part) for part in parts]
        _check_size(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute a binary operator. Raise TemplateRuntimeError for a result that is too large."""
        sized = (str, bytes, list, tuple)
        if operator == "+" and isinstance(left, sized) and isinstance(right, sized):
            _check_size(len(left) + len(right))
        elif operator == "*":
            for each, times in ((left, right), (right, left)):
                if isinstance(each, sized) and isinstance(times, int):
                    _check_size(len(each) * times)
        elif operator == "**" and isinstance(right, int) and abs(right) > _EXPONENT:
            raise TemplateRuntimeError(f"it computes a power of {right}, the largest is {_EXPONENT}")
        elif operator == "%" and isinstance(left, str):
            _check_format(left)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Any:
        """Return the sandbox's own format of a text. Raise TemplateRuntimeError for widths that no text needs."""
        made = super().wrap_str_format(value)
        if made is not None:
            _check_format(value.__self__)
        return made

    def call(self, context: Any, function: Any, /, *arguments: Any, **options: Any) -> Any:
        """Call a function of the template. Raise TemplateRuntimeError for one that pads or repeats without end."""
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):
            _check_method(owner, function.__name__, arguments)
        return super().call(context, function, *arguments, **options)


def render(template: Any, variables: Mapping[str, Any]) -> str:
    """Return what a template of a LimitedEnvironment writes. Raise TemplateRuntimeError beyond the limits."""
    before = _DEADLINE.set(time.monotonic() + SECONDS)
    try:
        return "".join(_limited(template.generate(variables)))
    finally:
        _DEADLINE.reset(before)


def line_of(error: BaseException) -> int | None:
    """Return the line of the template that raised an error, None where jinja2 does not know it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _limited(pieces: Iterator[str]) -> Iterator[str]:
    size = 0
    for piece in pieces:
        size += len(piece)
        _check_size(size)
        yield piece


def _limit(node: nodes.Node, in_loop: bool) -> None:
    """Let loops and macros look at the clock, and ~ at its result's size. Raise TemplateSyntaxError for a break outside
    a loop, which jinja2 would leave to Python."""
    if isinstance(node, nodes.Break | nodes.Continue) and not in_loop:
        word = type(node).__name__.lower()
        raise TemplateSyntaxError(f"'{word}' stands outside a loop", node.lineno)
    for name, value in node.iter_fields():
        inner = (in_loop or isinstance(node, nodes.For)) if name == "body" else in_loop
        if isinstance(node, nodes.Macro | nodes.CallBlock):
            inner = False
        if isinstance(node, nodes.For) and name == "else_":
            inner = in_loop
        each_node = [value] if isinstance(value, nodes.Node) else value if isinstance(value, list) else []
        for each in each_node:
            if isinstance(each, nodes.Node):
                _limit(each, inner)
        if isinstance(value, nodes.Concat):
            setattr(node, name, _concatenation(value))
        elif isinstance(value, list):
            value[:] = [_concatenation(each) if isinstance(each, nodes.Concat) else each for each in value]
    if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
        call = nodes.Call(nodes.EnvironmentAttribute("spend"), [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(call).set_lineno(node.lineno))


def _concatenation(node: nodes.Concat) -> nodes.Node:
    assert node.environment is not None, "the parser gives every node its environment"
    made = nodes.Call(nodes.EnvironmentAttribute("concatenate"), node.nodes, [], None, None)
    return made.set_lineno(node.lineno).set_environment(node.environment)


def _check_size(size: int) -> None:
    if size > CHARACTERS:
        raise TemplateRuntimeError(f"it makes a text of more than {CHARACTERS} characters")


def _check_format(text: str) -> None:
    if found := _WIDTH.search(text):
        raise TemplateRuntimeError(f"it formats to a width of {found[0]}")


def _check_method(text: str, name: str, arguments: tuple[Any, ...]) -> None:
    numbers = [each for each in arguments if isinstance(each, int)]
    if name in ("center", "ljust", "rjust", "zfill", "expandtabs") and numbers:
        _check_size(numbers[0] * (text.count("\t") or 1 if name == "expandtabs" else 1))
    if name == "replace" and len(arguments) > 1 and all(isinstance(each, str) for each in arguments[:2]):
        _check_size(text.count(arguments[0]) * len(arguments[1]))
