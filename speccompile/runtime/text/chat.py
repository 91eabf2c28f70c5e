"""Chat templates: write the messages of a conversation as the model saw them in its training."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from speccompile.errors import BundleError, EngineError, PromptError

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

# Errors that a template can raise besides jinja2's own: it may compute anything with the messages.
_TEMPLATE_FAULTS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError, MemoryError)


def read_chat(path: Path) -> tuple[str, dict[str, str]]:
    """Return template and special tokens (name -> text) of a `tokenizer/chat.json`. Raise BundleError when it holds
    none."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BundleError(f"{path}: expected JSON: {error}", hint="build the bundle again") from error
    match data:
        case {"template": str(template), "special_tokens": dict(tokens)} if all(map(_is_text, tokens.values())):
            return template, tokens
    raise BundleError(
        f'{path}: expected {{"template": text, "special_tokens": {{name: text}}}}', hint="build the bundle again"
    )


def apply_chat_template(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    special_tokens: Mapping[str, str],
    add_generation_prompt: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> str:
    """Return the prompt for `messages` ({"role", "content"} each), special tokens included: encode it without adding
    any.

    special_tokens: name (bos_token, ..) -> text. add_generation_prompt: end where the model's answer begins. variables:
    further variables of the template, such as tools or enable_thinking; plain values, as in JSON. Raise PromptError
    when the template refuses the messages or accesses what no template may, EngineError without the jinja2 package.
    """
    given = {"tools": None, "documents": None} | dict(variables or {})
    given |= dict(special_tokens) | {"add_generation_prompt": add_generation_prompt}
    compiled = _compile(template)
    from jinja2 import TemplateError

    try:
        # through JSON, so that the template gets plain values: the sandbox does not know the methods of other types
        plain = json.loads(json.dumps(list(messages)))
        return compiled.render(given | {"messages": plain})
    except (TemplateError, *_TEMPLATE_FAULTS) as error:
        raise PromptError(
            f"the chat template does not take these messages: {error}", hint="change the messages, or leave --chat out"
        ) from error


@lru_cache(maxsize=8)
def _compile(template: str) -> "Template":
    try:
        from jinja2 import TemplateSyntaxError
    except ImportError:
        raise EngineError(
            "chat templates need the Python package jinja2, which is not installed",
            hint="pip install jinja2, or leave --chat out",
        ) from None
    # transformers' tag around the assistant's text, for training masks; `with` makes it do nothing
    plain = re.sub(r"(\{%[-+]?\s*(?:end)?)generation(?=\s*[-+]?%\})", r"\1with", template)
    try:
        return _environment().from_string(plain)
    except TemplateSyntaxError as error:
        raise PromptError(
            f"the chat template is broken in line {error.lineno}: {error}", hint="leave --chat out"
        ) from error


def _environment() -> "SandboxedEnvironment":
    """Return an environment with what transformers provides to templates, and nothing else."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _now
    return environment


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # not jinja2's own, which escapes HTML
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _now(format: str) -> str:  # noqa: A002 - templates may give it by this name
    return datetime.now().strftime(format)
