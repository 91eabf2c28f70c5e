"""Messages of a conversation in OpenAI's form, checked and written as chat templates know them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from speccompile.errors import PromptError

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

_HINT = 'write messages as in [{"role": "user", "content": "Hello"}]'
_CALL = 'as in {"type": "function", "function": {"name": "search", "arguments": "{}"}}'
_LONGEST = 80
"""Maximum number of characters of a value in a message."""


def plain_messages(messages: object) -> list[dict[str, Any]]:
    """Return a conversation as templates know it: contents are texts, the arguments of tool calls values instead of
    JSON text, and the role developer is system.

    messages: mappings with `role` and `content`, a text or a list of parts {"type": "text", "text": ..}; other keys
    stay as they are. Raise PromptError, which names the message, for anything else.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise PromptError(f"messages: received {_shown(messages)}, expected a list of messages", hint=_HINT)
    if not messages:
        raise PromptError("messages: received none, expected at least one", hint=_HINT)
    return [plain_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def plain_message(message: object, where: str) -> dict[str, Any]:
    """Return one message as templates know it. where: its name in errors. Raise PromptError."""
    if not isinstance(message, Mapping):
        raise PromptError(f"{where}: received {_shown(message)}, expected a message", hint=_HINT)
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        received = _shown(role) if "role" in message else "nothing"
        raise PromptError(f"{where}.role: received {received}, expected one of {', '.join(ROLES)}", hint=_HINT)
    if message.get("images") not in (None, [], ()):  # of Ollama and others: a template would leave them out
        raise PromptError(
            f"{where}.images: received pictures beside the content, expected them as its parts, as in "
            '{"type": "image_url", "image_url": {"url": ..}}',
            hint=_HINT,
        )
    plain = {**message, "role": "system" if role == "developer" else role}
    plain["content"] = _text(message.get("content"), f"{where}.content", is_required=role != "assistant")
    calls = plain.pop("tool_calls", None)
    if calls not in (None, [], ()):  # none at all is what clients send back: templates ask whether the key is there
        plain["tool_calls"] = _plain_calls(calls, f"{where}.tool_calls")
    return plain


def _text(content: object, where: str, *, is_required: bool) -> str:
    """Return a content as text. That of an assistant may be missing: its message then has tool calls."""
    if content is None and not is_required:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(content):
            return "\n".join(texts)
        wrong = content[[isinstance(part, str) for part in parts].index(False)]
        raise PromptError(f"{where}: received the part {_shown(wrong)}, expected parts with a text", hint=_HINT)
    raise PromptError(
        f"{where}: received {'nothing' if content is None else _shown(content)}, expected a text", hint=_HINT
    )


def _plain_calls(calls: object, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list | tuple):
        raise PromptError(f"{where}: received {_shown(calls)}, expected a list of calls", hint=_CALL)
    return [_plain_call(call, where) for call in calls]


def _plain_call(call: Any, where: str) -> dict[str, Any]:
    try:
        function = call["function"]
        arguments = function["arguments"]
        if arguments is None or arguments == "":  # as clients send back a call of a function without parameters
            arguments = {}
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
        plain = {**call, "function": {**function, "arguments": read}}
    except (TypeError, KeyError, ValueError):
        raise PromptError(
            f"{where}: received the call {_shown(call)}, expected a function with its arguments as JSON",
            hint=_CALL,
        ) from None
    return plain


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}.."
