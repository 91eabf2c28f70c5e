"""`speccompile cache`: list and clear the caches."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from speccompile.cli.words import counted

if TYPE_CHECKING:
    from speccompile.bundle.cache import Entry, FolderCache
    from speccompile.bundle.result_cache import ResultCache
    from speccompile.recipe.gguf import DescriptionCache


@click.group("cache", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List or empty the caches of builds and of engines.

    \b
    folder    what lies there
    engines   engines of TensorRT
    builds    steps of builds, which `speccompile build` need not do again
    bundles   bundles that `speccompile run` and `chat` have built for a model
    packed    weights as ONNX Runtime packed them for this processor
    checked   whether an engine is exact on this processor
    times     seconds of a bundle's rounds here, from which later processes
              choose how many tokens to draft
    hashes    content of checkpoint files, each of which is read once for it
    verified  files of bundles that were compared with their hashes, which is
              not done again while they do not change
    gguf      config and tokenizer of GGUF files

    The folder engines is $SPECCOMPILE_CACHE_DIR, by default speccompile/engines in the user's folder for caches. The
    others lie inside $SPECCOMPILE_CACHE_DIR, by default beside engines. Each of the first four holds at most
    $SPECCOMPILE_CACHE_LIMIT_GB (20); what was unused for longest makes room. A limit of 0 switches all off: engines and
    steps are made again, every process packs its weights and compares its windows.

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
    """List the entries of all caches, the last used first.

    \b
    The JSON object has the keys
      folder       where the engines lie
      limit_bytes  the most that they may take
      bytes        what they take
      entries      [{digest, size, used, key}]: used is in seconds since 1970;
                   key is what the engine was built from, null when unreadable
      builds       an object of the same four keys for steps of builds; the
                   key of an entry says which step it is
      bundles      an object of the same four keys for bundles of models
      packed       an object of the same four keys for packed weights; of what
                   several graphs share, each has its part in its size
      checked      {folder, bytes, entries}: an entry has found as well, the
                   widths of windows that were compared with single tokens,
                   those differing, and the largest difference
      times        {folder, bytes, entries}: an entry has found as well, the
                   seconds of rounds by the width of their window
      hashes       {folder, bytes, entries}: of files whose content is known
      verified     {folder, bytes, entries}: of bundles whose files were
                   compared with their hashes
      gguf         {folder, bytes, entries}: of config and tokenizer of models
                   in GGUF files, which the key of an entry names

    \b
    Examples:
      speccompile cache list
      speccompile cache list --json | jq .bytes
    """
    rows = [(row, row.cache.entries()) for row in caches()]
    if as_json:
        data = {row.name: _contents(row.cache, entries) for row, entries in rows}
        click.echo(json.dumps(data.pop("engines") | data, indent=2))
        return
    for row, entries in rows:
        if row.describe is not None:
            for entry in entries:
                click.echo(f"{_line(entry)}  {row.describe(entry.key, entry) if entry.key else 'unreadable'}")
        click.echo(f"{total(entries, row.word)}{_limit(row.cache)} in {row.cache.folder}")


@command.command("clear")
def clear() -> None:
    """Empty all caches, but for entries that a process is just reading.

    Processes that have weights mapped keep them to their end.

    \b
    Example:
      speccompile cache clear
    """
    for row in caches():
        click.echo(f"removed {total(row.cache.clear(), row.word)} from {row.cache.folder}")


class _Row(NamedTuple):
    """A cache. name: its key in JSON, except that the values of engines stand at the top; word: what an entry is;
    describe: returns a line about an entry's key and the entry; None if only their number is listed."""

    name: str
    cache: "FolderCache | ResultCache | DescriptionCache"
    word: str
    describe: Callable[[dict[str, Any], Any], str] | None = None


def caches() -> list[_Row]:
    """Return all caches, in the order in which they are listed."""
    from speccompile.bundle import file_hashes, verified_files
    from speccompile.bundle.cache import BUILDS, BUNDLES, FolderCache
    from speccompile.bundle.result_cache import ResultCache
    from speccompile.compiler.engines.cache import Cache
    from speccompile.recipe.gguf import CACHE as GGUF
    from speccompile.recipe.gguf import DescriptionCache
    from speccompile.runtime import round_times, window_invariance
    from speccompile.runtime.devices import prepacked

    return [
        _Row("engines", Cache(), "engine", _engine),
        _Row("builds", FolderCache.named(BUILDS), "step", _step),
        _Row("bundles", FolderCache.named(BUNDLES), "bundle", _bundle),
        _Row("packed", FolderCache.named(prepacked.NAME), "packed graph", _packed),
        _Row("checked", ResultCache.named(window_invariance.NAME), "checked engine", _checked),
        _Row("times", ResultCache.named(round_times.NAME), "timed engine"),
        _Row("hashes", ResultCache.named(file_hashes.NAME), "known file"),
        _Row("verified", ResultCache.named(verified_files.NAME), "verified bundle"),
        _Row("gguf", DescriptionCache.named(GGUF), "GGUF description", _description),
    ]


def _limit_bytes(cache: "FolderCache | ResultCache | DescriptionCache") -> int | None:
    """Return the limit of a cache; None for small results, which have none."""
    from speccompile.bundle.cache import FolderCache

    return int(cache.limit) if isinstance(cache, FolderCache) else None


def _limit(cache: "FolderCache | ResultCache | DescriptionCache") -> str:
    limit = _limit_bytes(cache)
    return "" if limit is None else f" of at most {limit / 1e9:g} GB"


def _contents(cache: "FolderCache | ResultCache | DescriptionCache", entries: "Sequence[Entry]") -> dict[str, Any]:
    limit = _limit_bytes(cache)
    limited = {} if limit is None else {"limit_bytes": limit}
    rows, size = [_json(entry) for entry in entries], sum(entry.size for entry in entries)
    return {"folder": str(cache.folder), **limited, "bytes": size, "entries": rows}


def _json(entry: "Entry") -> dict[str, Any]:
    """Return an entry with the documented keys, in their order."""
    found = asdict(entry)
    return {"used" if name == "last_used" else name: value for name, value in found.items()}


def total(entries: "Sequence[Entry]", word: str) -> str:
    return f"{counted(len(entries), word)}, {sum(each.size for each in entries) / 1e6:.1f} MB"


def _line(entry: "Entry") -> str:
    size, age = f"{entry.size / 1e6:.1f} MB", _age(time.time() - entry.last_used)
    return f"{entry.digest[:12]}  {size:>12}  used {age:>10} ago"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return counted(round(max(seconds, 0)), "second")


def _engine(key: dict[str, Any], _entry: "Entry") -> str:
    settings = key["settings"]
    capability = settings["compute_capability"] or key["gpu"]
    words = " ".join(f"{part}={word}" for part, word in settings["precision"].items())
    return f"{settings['backend']} {key['builder']}  {capability}  {key['graph']['name']}  {words}"


def _step(key: dict[str, Any], _entry: "Entry") -> str:
    return str(key["step"])


def _bundle(key: dict[str, Any], _entry: "Entry") -> str:
    return str(key["model"])


def _description(key: dict[str, Any], _entry: "Entry") -> str:
    return ", ".join(key["files"])


def _packed(key: dict[str, Any], _entry: "Entry") -> str:
    graph = next(name for name in key["files"] if name.endswith(".onnx"))
    return f"onnxruntime {key['onnxruntime']}  {key['processor']['name']}  {graph.rpartition('/')[2]}"


def _checked(key: dict[str, Any], record: Any) -> str:
    """Return a line of a checked engine: its name, the code that ran it, and whether its windows differed."""
    word = "not exact" if record.found["differing"] else "exact"
    return f"{key['engine']}  {key['kernels'][0]}, onnxruntime {key['onnxruntime']}  {key['processor']['name']}  {word}"
