"""`speccompile explain`: the meaning and the cure of an error, by its code."""

import json
from dataclasses import asdict
from difflib import get_close_matches

import click

from speccompile.cli.error_codes import Entry, catalogue
from speccompile.errors import UsageError


def render(entry: Entry) -> str:
    """Return an entry as text."""
    return f"{entry.code}: {entry.title}\n\n{entry.meaning}\n\nWhat to do: {entry.cure}\n\nExit code: {entry.exit_code}"


@click.command("explain")
@click.argument("code", metavar="[CODE]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, or a list of them without a CODE.")
def command(code: str | None, as_json: bool) -> None:
    """Explain an error and what to do about it, by the CODE below its message. Without a CODE, a list of all.

    \b
    Examples:
      speccompile explain SC301
      speccompile explain
    """
    entries = catalogue()
    if code is None:
        lines = "\n".join(f"{entry.code}  {entry.title}" for entry in entries.values())
        click.echo(json.dumps([asdict(entry) for entry in entries.values()], indent=2) if as_json else lines)
        return
    entry = entries.get(code.upper())
    if entry is None:
        near = next(iter(get_close_matches(code.upper(), entries, n=1)), None)
        raise UsageError(
            f"received the code '{code}', expected one such as {next(iter(entries))}",
            hint=f"did you mean {near}? `speccompile explain` lists all" if near else "`speccompile explain` lists all",
        )
    click.echo(json.dumps(asdict(entry), indent=2) if as_json else render(entry))
