"""Chat templates within limits: they come with a checkpoint from elsewhere, and run in the process that serves.

A template writes a prompt in milliseconds. One that loops on, writes on, or calls what takes minutes or gigabytes, ends
with an error that names its line. Loops, macros, calls and filters look at the clock; a value is measured before
anything walks through it; and what one call would make is estimated before the call (template_sizes).
"""

import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast

from jinja2 import TemplateRuntimeError, TemplateSyntaxError, nodes
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from speccompile.machine.system import process_sizes
from speccompile.runtime.text.template_nodes import check_breaks, insert_calls
from speccompile.runtime.text.template_sizes import (
    Arguments,
    check_elements,
    check_filter,
    check_format,
    check_method,
    check_operands,
    check_size,
    written_size,
)

SECONDS = 5.0
"""Time for one prompt."""
TEMPLATE_CHARACTERS = 1 << 18
"""Largest template. Published ones have some ten thousand."""
MEMORY_MIB = 512
"""Memory for one prompt, in MiB."""
_STEP = 1 << 26
"""Bytes that are made between two looks at the memory, about."""
_REFERENCE = 8
"""Bytes of an element of a list."""


class _Budget:
    """Time and memory that are left for one prompt."""

    def __init__(self) -> None:
        self.deadline = time.monotonic() + SECONDS
        self._made, self._next_look = 0, _STEP
        self._before: int | None = None

    def count(self, size: int) -> None:
        """Count bytes that were made. Raise TemplateRuntimeError when the memory is used up: they may
        all be kept, in variables and in calls of macros."""
        self._made += size
        if self._made < self._next_look:
            return
        self._next_look = self._made + _STEP
        now = process_sizes().get("RssAnon", 0)  # 0 on systems that do not say
        if self._before is None:
            self._before = now
        elif now - self._before > MEMORY_MIB * 2**20:
            raise TemplateRuntimeError(f"it takes more than {MEMORY_MIB} MiB of memory")


_BUDGET: ContextVar[_Budget | None] = ContextVar("budget", default=None)


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Sandbox whose templates end, in time and memory that are known before."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=self.measured, **options)
        del self.globals["lipsum"]  # writes as much as it is asked to, and belongs to no prompt
        self.filters["tojson"] = _to_json
        self.filters = {name: self._limited(function, name) for name, function in self.filters.items()}
        tests = cast("dict[str, Callable[..., Any]]", self.tests)
        self.tests = {name: self._limited(function) for name, function in tests.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > TEMPLATE_CHARACTERS:
            raise TemplateSyntaxError(f"it has {len(source)} characters, expected at most {TEMPLATE_CHARACTERS}", 1)
        template = super()._parse(source, name, filename)
        check_breaks(template)
        insert_calls(template)
        return template

    def spend(self) -> None:
        """Raise TemplateRuntimeError when the time for a prompt is over."""
        budget = _BUDGET.get()
        if budget is not None and time.monotonic() > budget.deadline:
            raise TemplateRuntimeError(f"it takes more than {SECONDS:.0f} seconds")

    def measured(self, value: Any) -> Any:
        """Return a value that something will walk through. Raise TemplateRuntimeError for one that is too large."""
        written_size(value)
        return value

    @staticmethod
    def concat(pieces: Any) -> str:
        """Return the texts that a block, macro or template has written, joined."""
        texts = list(pieces)
        check_size(sum(map(len, texts)))
        made: str = _made("".join(texts))
        return made

    def concatenate(self, *parts: object) -> str:
        """Return the texts of `parts` joined, as ~ does."""
        check_size(sum(map(written_size, parts)))
        texts = [str(part) for part in parts]
        check_size(sum(map(len, texts)))
        made: str = _made("".join(texts))
        return made

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute a binary operator. Raise TemplateRuntimeError for a result that is too large."""
        check_operands(operator, left, right)
        return _made(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return the sandbox's own format of a text, which raises TemplateRuntimeError for results too large."""
        function = super().wrap_str_format(value)
        if function is None:
            return None

        @functools.wraps(function)
        def limited(*positional: Any, **named: Any) -> str:
            check_format(value.__self__, Arguments(positional, named))
            return function(*positional, **named)

        return limited

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item or attribute. Raise TemplateRuntimeError for a key that is too large or nested too deep."""
        if isinstance(argument, tuple):
            written_size(argument)
        return super().getitem(obj, argument)

    def call(self, context: Any, function: Any, /, *positional: Any, **named: Any) -> Any:
        """Call a function of the template. Raise TemplateRuntimeError for one whose result is too large."""
        owner = getattr(function, "__self__", None)
        if owner is self:  # a call that `insert_calls` has written
            return function(*positional)
        self.spend()
        written_size((positional, named))
        if owner is not None:
            check_method(owner, function.__name__, Arguments(positional, named))
        return self._passed(super().call(context, function, *positional, **named))

    def _limited(self, function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
        """Return a filter or test that looks at the clock and at sizes. name: of a filter."""
        own = 1 if hasattr(function, "jinja_pass_arg") else 0  # the first argument is jinja2's

        @functools.wraps(function)
        def limited(*positional: Any, **named: Any) -> Any:
            self.spend()
            before, (value, *rest) = positional[:own], positional[own:] or (None,)
            if name == "join" and isinstance(value, Iterator):
                value = list(value)
            check_filter(name, value, Arguments(tuple(rest), named))
            return self._passed(function(*before, value, *rest, **named))

        return limited

    def _passed(self, value: Any) -> Any:
        """Return a result, counted; items of a generator are counted as they come."""
        if isinstance(value, Iterator) and not isinstance(value, LoopContext):
            return self._counted(value)
        return _made(value)

    def _counted(self, values: Iterator[Any]) -> Iterator[Any]:
        count = size = 0
        for value in values:
            self.spend()
            count, size = count + 1, size + written_size(value)
            check_elements(count)
            check_size(size)
            yield value


def render(template: Any, variables: Mapping[str, Any]) -> str:
    """Return what a template of a LimitedEnvironment writes. Raise TemplateRuntimeError beyond the limits."""
    before = _BUDGET.set(_Budget())
    try:
        return "".join(_written(template.generate(variables)))
    finally:
        _BUDGET.reset(before)


def line_of(error: BaseException) -> int | None:
    """Return the line of the template that raised an error, None where jinja2 does not know it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _written(pieces: Any) -> Iterator[str]:
    size = 0
    for piece in pieces:
        size += len(piece)
        try:
            check_size(size)
        except TemplateRuntimeError as error:
            pieces.throw(error)  # inside the template, which knows the line
        yield piece


def _made(value: Any) -> Any:
    """Return what a template has made. Raise TemplateRuntimeError if it is too large, or the memory is used up."""
    if isinstance(value, str | bytes):
        size = len(value)
        check_size(size)
    elif isinstance(value, list | tuple):
        size = _REFERENCE * len(value)
        check_elements(len(value))
    else:
        return value
    budget = _BUDGET.get()
    if budget is not None:
        budget.count(size)
    return value


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # as transformers; not jinja2's own, which escapes HTML
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None and separators is None:
        return encoder.encode(value)
    pieces, size = [], 0
    for piece in encoder.iterencode(value):  # blanks of deep levels add up
        pieces.append(piece)
        size += len(piece)
        check_size(size)
    return "".join(pieces)
