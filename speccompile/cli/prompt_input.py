"""The prompt of a command line: text, a file, stdin or token ids."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from speccompile.errors import PromptError, UsageError
from speccompile.machine.plain_files import read_plain

if TYPE_CHECKING:
    from speccompile.runtime.bundle import Prompt

SOURCES = ("--prompt", "--prompt-file", "--token-ids")


def read_prompt(sources: dict[str, str | None], *, chat: bool) -> "Prompt":
    """Return the prompt from the single given source."""
    found = [(option, value) for option, value in sources.items() if value is not None]
    if len(found) != 1:
        received = " and ".join(option for option, _ in found) or "no prompt"
        raise UsageError(f"received {received}, expected one of {', '.join(SOURCES)}", hint="give exactly one of them")
    option, value = found[0]
    if option == "--token-ids":
        if chat:
            raise UsageError("received --chat with --token-ids, expected a text", hint="leave one of them out")
        return token_ids(option, value)
    is_file = option == "--prompt-file" or value == "-"
    where, text = (f"{option} {value}", read_text(option, value)) if is_file else (option, value)
    check_text(where, text)
    return text


def check_text(where: str, text: str) -> None:
    """Raise PromptError, naming the option, for an empty prompt."""
    if not text:
        raise PromptError(f"{where}: received an empty prompt, expected text", hint="give at least one character")


def read_text(option: str, name: str) -> str:
    """Return the text of a file, or of stdin for -. Raise PromptError, naming the option."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else read_plain(Path(name))
    except OSError as error:
        raise PromptError(
            f"{option} {name}: {error.strerror}", hint="give a file that can be read, or - for stdin"
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{option} {name}: byte {error.start} is 0x{data[error.start]:02x}, expected UTF-8 text",
            hint="save the prompt as UTF-8",
        ) from error


def token_ids(option: str, text: str) -> list[int]:
    """Return the numbers of an option. Raise PromptError, naming it, for something else."""
    return [_token_id(option, part) for part in text.split(",")]


def _token_id(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise PromptError(
            f"{option}: received {text[:40]!r}, expected whole numbers with commas between them",
            hint=f"write them as in {option} 1,2,3",
        ) from None
