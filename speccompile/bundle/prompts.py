"""Prompt files: one JSON object a line, {"prompt": "text"} or {"token_ids": [1, 2, 3]}."""

import json
from pathlib import Path
from typing import Any

from speccompile.errors import PromptError

FORMS = '{"prompt": "text"} or {"token_ids": [1, 2, 3]}'


def read_prompts(path: Path) -> list[str | list[int]]:
    """The prompts of a file in order, each as text or as token ids; blank lines are skipped.

    Raises PromptError, with the line's number, for a file that is missing, empty or not in this form.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise PromptError(
            f"received the prompts file '{path}', expected a file: nothing lies there",
            hint=f"write one prompt a line: {FORMS}",
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise _wrong(path, line, "bytes that are not UTF-8", "text", "save the file as UTF-8") from None
    # Not splitlines: JSON text may hold U+2028 and the like as they are.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise PromptError(f"{path}: received no prompts, expected one a line", hint=f"add lines such as {FORMS}")
    return [_prompt(line, path, number) for number, line in lines]


def _prompt(line: str, path: Path, number: int) -> str | list[int]:
    try:
        data = json.loads(line)
    except ValueError:
        data = None
    match data:
        case {"prompt": str(prompt), **rest} if not rest:
            return _checked(prompt, path, number)
        case {"token_ids": [*ids], **rest} if not rest and all(map(_is_token_id, ids)):
            if ids:
                return ids
            raise _wrong(path, number, "no token ids", "one token id or more", "remove the line or add ids")
    received = line.strip()
    shown = received if len(received) <= 80 else f"{received[:80]}..."
    raise _wrong(path, number, shown, FORMS, "write each line as one JSON object with one of the two keys")


def _checked(prompt: str, path: Path, number: int) -> str:
    if not prompt:
        raise _wrong(path, number, "an empty prompt", "text", "remove the line or add text")
    try:
        prompt.encode()
    except UnicodeEncodeError:
        hint = "remove the lone surrogate (an escape from \\ud800 to \\udfff without its other half)"
        raise _wrong(path, number, "text that is not Unicode", "text that UTF-8 can hold", hint) from None
    return prompt


def _is_token_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _wrong(path: Path, line: int, received: str, expected: str, hint: str) -> PromptError:
    return PromptError(f"{path}, line {line}: received {received}, expected {expected}", hint=hint)
