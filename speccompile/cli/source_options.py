"""Options of `speccompile generate` for targets with an encoder: the source, and the languages of source and answer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from speccompile.cli.options import Option
from speccompile.cli.prompt_input import SOURCES, read_prompt, read_text, token_ids
from speccompile.errors import PromptError, UsageError

if TYPE_CHECKING:
    from speccompile.runtime.bundle import Prompt

F = TypeVar("F", bound=Callable[..., Any])

GIVEN = {"source": "--source", "source_file": "--source-file", "source_ids": "--source-ids"}
"""Parameters that give a source, and their options."""


def source_options(command: F) -> F:
    """Add the options to a command, by the names of `GIVEN` and of `GenerationOptions`."""
    for option in (
        click.option(
            "--target-language",
            metavar="NAME",
            help="Language of the answer, for a target with an encoder for several.",
        ),
        click.option("--source-language", metavar="NAME", help="Language of the source."),
        click.option("--source-ids", metavar="1,2,3", help="The source's token ids."),
        click.option("--source-file", metavar="FILE", help="A file with the source, taken as it is; - for stdin."),
        click.option("--source", metavar="TEXT", cls=Option, help="What a target with an encoder reads; - for stdin."),
    ):
        command = option(command)
    return command


def take_source(options: dict[str, Any]) -> Any:
    """Remove the options of `GIVEN`, and put what they give under `source`. Return it, None without any. Raise
    UsageError for several, PromptError for an empty text or a file that cannot be read."""
    found = [(GIVEN[name], value) for name in GIVEN if (value := options.pop(name, None)) is not None]
    if len(found) > 1:
        received = " and ".join(option for option, _ in found)
        raise UsageError(f"received {received}, expected one source", hint="give exactly one of them")
    options["source"] = None
    if not found:
        return None
    option, value = found[0]
    if option == GIVEN["source_ids"]:
        options["source"] = token_ids(option, value)
        return options["source"]
    text = read_text(option, value) if option == GIVEN["source_file"] or value == "-" else value
    if not text:
        raise PromptError(f"{option}: received an empty source, expected text", hint="give at least one character")
    options["source"] = text
    return text


def read_beginning(sources: dict[str, str | None], source: Any, *, chat: bool) -> "Prompt | None":
    """Return the prompt of a command line: the beginning of the answer, None for none, if there is a source."""
    if source is not None and not any(sources.values()):
        return None
    return read_prompt(dict(zip(SOURCES, sources.values(), strict=True)), chat=chat)
