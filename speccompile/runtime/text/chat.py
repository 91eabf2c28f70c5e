"""Chat templates: write the messages of a conversation as the model saw them in its training."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from speccompile.bundle.manifest import DEFAULT_TEMPLATE, TOOL_TEMPLATE
from speccompile.errors import BundleError, EngineError, PromptError
from speccompile.machine.plain_files import read_plain

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

# Errors that a template can raise besides jinja2's own: it may compute anything with the messages.
_TEMPLATE_FAULTS = (
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    NameError,  # of the name that jinja2 writes for 1e999
    RecursionError,
    MemoryError,
)

_BROKEN = "correct the tokenizer's chat template, and build the bundle again; or give a prompt without it"

Templates = str | Mapping[str, str]
"""Chat template, or several by their names."""


def read_chat(path: Path) -> tuple[Templates, dict[str, str]]:
    """Return template, or named templates, and special tokens (name -> text) of a `tokenizer/chat.json`. Raise
    BundleError when it holds none."""
    try:
        data = json.loads(read_plain(path))
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"{path}: expected JSON: {error}", hint="build the bundle again") from error
    match data:
        case {"template": str(template), "special_tokens": dict(tokens)} if all(map(_is_text, tokens.values())):
            return template, tokens
        case {"templates": dict(templates), "special_tokens": dict(tokens)} if templates and all(
            map(_is_text, (*templates.values(), *tokens.values()))
        ):
            return templates, tokens
    raise BundleError(
        f'{path}: expected {{"template": text, "special_tokens": {{name: text}}}}, or "templates": {{name: text}}',
        hint="build the bundle again",
    )


def choose_template(template: Templates, tools: object, name: object = None) -> str:
    """Return the template of a conversation as transformers chooses it: by its name, `tool_use` with tools, else
    `default`. A tokenizer's only template is always it. Raise PromptError if there is none of this name."""
    if isinstance(template, str):
        template = {DEFAULT_TEMPLATE: template}
        usual = DEFAULT_TEMPLATE
    else:
        usual = TOOL_TEMPLATE if tools is not None and TOOL_TEMPLATE in template else DEFAULT_TEMPLATE
    wanted = usual if name is None else name
    if not isinstance(wanted, str) or wanted not in template:
        raise PromptError(
            f"this bundle's tokenizer has no chat template {wanted!r}, only {', '.join(sorted(template))}",
            hint="name one of them as chat_template among the template's variables",
        )
    return template[wanted]


def apply_chat_template(
    template: Templates,
    messages: Sequence[Mapping[str, Any]],
    special_tokens: Mapping[str, str],
    add_generation_prompt: bool = True,
    variables: Mapping[str, Any] | None = None,
    *,
    instead: str = "",
) -> str:
    """Return the prompt for `messages` ({"role", "content"} each), special tokens included: encode it without adding
    any.

    special_tokens: name (bos_token, ..) -> text. add_generation_prompt: end where the model's answer begins. variables:
    further variables of the template, such as tools or enable_thinking; plain values, as in JSON; of named templates
    `tool_use` is taken with tools, and any by its name as `chat_template`. instead: what to do without the template, as
    a hint. Raise PromptError when the template refuses the messages or accesses what no template may, EngineError
    without the jinja2 package.
    """
    given = {"tools": None, "documents": None} | dict(variables or {})
    given |= dict(special_tokens) | {"add_generation_prompt": add_generation_prompt}
    compiled = _compile(choose_template(template, given["tools"], given.pop("chat_template", None)))
    from jinja2 import TemplateError

    from speccompile.runtime.text.template_limits import line_of, render
    from speccompile.runtime.text.template_sizes import check_depth

    try:
        # through JSON, so that the template gets plain values: the sandbox does not know the methods of other types
        plain = json.loads(json.dumps(list(messages)))
        given["messages"] = plain
        check_depth(given.values())
        return render(compiled, given)
    except (TemplateError, *_TEMPLATE_FAULTS) as error:
        line, said = line_of(error), str(error) or type(error).__name__
        raise PromptError(
            f"the chat template does not take these messages: {said}{f' (its line {line})' if line else ''}",
            hint=f"change the messages{f', or {instead}' if instead else ''}",
        ) from error


@lru_cache(maxsize=8)
def _compile(template: str) -> "Template":
    try:
        from jinja2 import TemplateSyntaxError
    except ImportError:
        raise EngineError(
            "chat templates need the Python package jinja2, which is not installed",
            hint="pip install jinja2",
        ) from None
    # transformers' tag around the assistant's text, for training masks; `with` makes it do nothing
    plain = re.sub(r"(\{%[-+]?\s*(?:end)?)generation(?=\s*[-+]?%\})", r"\1with", template)
    try:
        return _environment().from_string(plain)
    except TemplateSyntaxError as error:
        raise PromptError(f"the chat template is broken in line {error.lineno}: {error}", hint=_BROKEN) from error
    except (SyntaxError, *_TEMPLATE_FAULTS) as error:  # of the Python that jinja2 makes of it
        raise PromptError(f"the chat template is broken or nested too deep: {error}", hint=_BROKEN) from error


def _environment() -> "SandboxedEnvironment":
    """Return an environment with what transformers provides to templates, and nothing else."""
    from speccompile.runtime.text.template_limits import LimitedEnvironment

    environment = LimitedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _now
    return environment


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _now(format: str) -> str:  # noqa: A002 - templates may give it by this name
    return datetime.now().strftime(format)
