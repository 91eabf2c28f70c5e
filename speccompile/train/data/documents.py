"""Documents of three kinds: prompts, conversations, text. Errors name the place of an invalid row."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from speccompile.errors import RecipeError
from speccompile.plan.training_plan import CONVERSATIONS, PROMPTS, TEXT
from speccompile.train.data.rows import Key, Row, key_of, shortened, wrong

FORMS = {
    PROMPTS: '{"prompt": "text"}, {"messages": [..]}, {"token_ids": [..]}, {"text": ".."} or, of a target that hears, '
    '{"audio": "talk.wav", "language": "en"}',
    CONVERSATIONS: '{"messages": [{"role": "user", "content": ".."}, ..]} or {"conversations": [{"from": "human", '
    '"value": ".."}, ..]}',
    TEXT: '{"text": ".."}, {"token_ids": [..]} or a file of text',
}

_SHARE_GPT = {
    "system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
    "chatgpt": "assistant", "bing": "assistant", "bard": "assistant", "model": "assistant", "tool": "tool",
    "observation": "tool", "function_response": "tool",
}  # fmt: skip
"""ShareGPT's speaker -> OpenAI's role."""

_KEYS = {
    PROMPTS: ("prompt", "messages", "token_ids", "text", "audio"),
    CONVERSATIONS: ("messages", "conversations"),
    TEXT: ("text", "token_ids"),
}
_HELD = "held-out/"
_ANSWERS = ("answer", "completion")


@dataclass(frozen=True)
class Chat:
    """Conversation. messages: in OpenAI's format, with text contents. tools: JSON schemas for the chat template."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Sound:
    """Sound of a file. language: the name of what is spoken, None where the row says none."""

    path: Path
    language: str | None

    @property
    def key(self) -> int:
        """Number of 128 bits that is the same for the same file and language."""
        said = json.dumps([str(self.path), self.language])
        return int.from_bytes(hashlib.blake2b(said.encode(), digest_size=16).digest())


Content = str | tuple[int, ...] | Chat | Sound


@dataclass(frozen=True)
class Document:
    """Document or part of one. where: file and row, for messages. content: text, ids, a conversation, a sound. answer:
    the given response, or None. is_first_part: no earlier part exists. is_held_out: its file is the held-out file."""

    where: str
    key: Key
    content: Content
    answer: str | None = None
    is_first_part: bool = True
    is_held_out: bool = False


class Prompt(NamedTuple):
    """Prompt. document: number or name of its source document. tokens: ids of the target's vocabulary."""

    document: int | str
    tokens: Sequence[int]


def document_name(key: Key, held: bool) -> str:
    """Return the name of a document, by which responses refer to it."""
    return f"{_HELD if held else ''}{key:016x}"


def read_name(name: Any, where: str) -> tuple[Key, bool]:
    """Invert `document_name`. Raise RecipeError for an invalid name."""
    digits = name.removeprefix(_HELD) if isinstance(name, str) else ""
    try:
        return int(digits, 16), digits != name
    except ValueError:
        raise wrong(
            where, f"the document {shortened(name)}", "16 hexadecimal digits", "have the answers made again"
        ) from None


def read_documents(rows: Iterator[Row], kind: str, *, answered: bool = False, held: bool = False) -> Iterator[Document]:
    """Yield the documents of rows. answered: prompts need a response in their row. Raise RecipeError for a row of
    another kind."""
    for row in rows:
        document = _of_text(row, kind) if row.text is not None else _of_row(row, kind, answered=answered)
        yield replace(document, is_held_out=held)


def _of_text(row: Row, kind: str) -> Document:
    if kind != TEXT:
        raise wrong(row.where, "text", f"a table of {kind}: .jsonl, .json or .parquet", f"write lines: {FORMS[kind]}")
    assert row.text is not None
    return Document(row.where, row.key, row.text, is_first_part=row.begins)


def _of_row(row: Row, kind: str, *, answered: bool) -> Document:
    value, where = row.value, row.where
    if not isinstance(value, dict):
        raise wrong(where, shortened(value), FORMS[kind], "write every row as an object with one of these keys")
    fields = {key: field for key, field in value.items() if field is not None}
    given = [key for key in _KEYS[kind] if key in fields]
    if len(given) != 1:
        received = " and ".join(map(repr, given)) or f"the keys {', '.join(map(repr, fields)) or 'none'}"
        raise wrong(where, received, FORMS[kind], f"give one of {', '.join(_KEYS[kind])}, or another train.data.kind")
    content = _content(given[0], fields, row)
    answer = _answer(fields, where) if answered and kind == PROMPTS else None
    return Document(where, key_of(_said(content)), content, answer)


def _content(key: str, fields: Mapping[str, Any], row: Row) -> Content:
    value, where = fields[key], row.where
    if key == "audio":
        language = fields.get("language")
        path = row.folder / _checked(value, key, where)
        return Sound(path.resolve(), None if language is None else _checked(language, "language", where))
    if key == "token_ids":
        return _ids(value, key, where)
    if key in ("messages", "conversations") or (key == "prompt" and isinstance(value, list)):
        tools = fields.get("tools")
        if tools is not None and not isinstance(tools, list):
            raise wrong(where, f"tools {shortened(tools)}", "a list of JSON schemas", "write 'tools' as a list")
        return Chat(_messages(value, where), None if not tools else tuple(tools))
    return _checked(value, key, where)


def _said(content: Content) -> Any:
    """Return the JSON values that identify a document: equal contents in different rows are one document."""
    if isinstance(content, Sound):
        return [str(content.path), content.language]
    if isinstance(content, Chat):
        return [list(map(dict, content.messages)), content.tools]
    return content if isinstance(content, str) else list(content)


def _answer(fields: Mapping[str, Any], where: str) -> str:
    given = [key for key in _ANSWERS if key in fields]
    if len(given) != 1:
        raise wrong(
            where, "a prompt without an answer" if not given else "two answers", 'one under "answer" or "completion"',
            "add what the target answered, or have it asked: train.data.answers: bundle",
        )  # fmt: skip
    return _checked(fields[given[0]], given[0], where)


def _ids(value: Any, key: str, where: str) -> tuple[int, ...]:
    if isinstance(value, list) and all(isinstance(each, int) and not isinstance(each, bool) for each in value):
        return tuple(value)
    raise wrong(where, f"{key} {shortened(value)}", "a list of token ids", "write whole numbers")


def _checked(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise wrong(where, f"{type(value).__name__} under {key!r}", "text", "write a text there")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise wrong(
            where, f"{value[error.start]!r} as character {error.start} of {key!r}", "text that UTF-8 can hold",
            "remove half surrogates",
        ) from None  # fmt: skip
    return value


def _messages(value: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not value:
        raise wrong(where, shortened(value), FORMS[CONVERSATIONS], "write a list of one message or more")
    return tuple(_message(each, f"{where}, message {number}") for number, each in enumerate(value, 1))


def _message(value: Any, where: str) -> Mapping[str, Any]:
    fields = {key: field for key, field in value.items() if field is not None} if isinstance(value, dict) else {}
    if "from" in fields and "role" not in fields:
        return {"role": _role(fields["from"], where), "content": _checked(fields.get("value"), "value", where)}
    if not isinstance(fields.get("role"), str) or not ("content" in fields or "tool_calls" in fields):
        raise wrong(where, shortened(value), '{"role": "user", "content": ".."}', "give every message both keys")
    if "content" in fields:
        fields["content"] = _words(fields["content"], where)
    return fields


def _role(value: Any, where: str) -> str:
    if isinstance(value, str) and value in _SHARE_GPT:
        return _SHARE_GPT[value]
    raise wrong(where, f"'from' {shortened(value)}", f"one of {', '.join(_SHARE_GPT)}", "rename who speaks")


def _words(content: Any, where: str) -> str:
    """Return the text of a message's content, which is a text or a list of text parts."""
    if not isinstance(content, list):
        return _checked(content, "content", where)
    kinds = [part.get("type") if isinstance(part, dict) else None for part in content]
    if others := {shortened(kind) for kind in kinds if kind != "text"}:
        raise RecipeError(
            f"{where}: received parts of {', '.join(sorted(others))}, expected text alone",
            hint="of a multimodal model the text decoder alone is compiled: leave this conversation out",
        )
    return "".join(_checked(part.get("text"), "text", where) for part in content)
