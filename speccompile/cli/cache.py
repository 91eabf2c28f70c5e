"""`speccompile cache`: the engines that are kept so that they need not be built again."""

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from speccompile.engines.cache import Entry


@click.group("cache", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """The cache of TensorRT engines: what it holds, and how to empty it.

    It lies in $SPECCOMPILE_CACHE_DIR, by default speccompile/engines in the user's folder for caches, and holds at most
    $SPECCOMPILE_CACHE_LIMIT_GB (20); the engines unused for longest make room. 0 switches it off.

    \b
    Examples:
      speccompile cache list
      speccompile cache clear
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_entries(as_json: bool) -> None:
    """List the engines, the last used first.

    \b
    The JSON object has the keys
      folder       where the cache lies
      limit_bytes  the most that it may hold
      bytes        what it holds
      entries      [{digest, size, used, key}]: used is in seconds since 1970;
                   key is what the engine was built from, null when unreadable

    \b
    Examples:
      speccompile cache list
      speccompile cache list --json | jq .bytes
    """
    from speccompile.engines.cache import Cache

    cache = Cache()
    entries = cache.entries()
    size = sum(entry.size for entry in entries)
    if as_json:
        rows = [asdict(entry) for entry in entries]
        data = {"folder": str(cache.folder), "limit_bytes": int(cache.limit), "bytes": size, "entries": rows}
        click.echo(json.dumps(data, indent=2))
        return
    for entry in entries:
        click.echo(_line(entry))
    click.echo(f"{_engines(entries)} of at most {cache.limit / 1e9:g} GB in {cache.folder}")


@command.command("clear")
def clear() -> None:
    """Remove all engines that no process is using.

    \b
    Example:
      speccompile cache clear
    """
    from speccompile.engines.cache import Cache

    cache = Cache()
    click.echo(f"removed {_engines(cache.clear())} from {cache.folder}")


def _engines(entries: list["Entry"]) -> str:
    return f"{len(entries)} engine{'' if len(entries) == 1 else 's'}, {sum(each.size for each in entries) / 1e6:.1f} MB"


def _line(entry: "Entry") -> str:
    size, age = f"{entry.size / 1e6:.1f} MB", _age(time.time() - entry.used)
    return f"{entry.digest[:12]}  {size:>12}  used {age:>10} ago  {_what(entry.key)}"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"


def _what(key: dict[str, Any] | None) -> str:
    if key is None:
        return "unreadable"
    settings = key["settings"]
    capability = settings["compute_capability"] or key["gpu"]
    words = " ".join(f"{part}={word}" for part, word in settings["precision"].items())
    return f"{settings['backend']} {key['builder']}  {capability}  {key['graph']['name']}  {words}"
