"""`speccompile cache`: list and clear the caches."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from speccompile.bundle.cache import Entry, FolderCache
    from speccompile.bundle.result_cache import CachedResult, ResultCache


@click.group("cache", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """The caches of TensorRT engines, of steps of builds, of packed weights, and of which engines were found exact on
    this processor: what they hold, and how to empty them.

    Steps of builds are what `speccompile build` need not do again: see its --no-cache. Packed weights were packed by
    ONNX Runtime for this processor, and are mapped from there when a bundle is opened. Which engines were found exact
    here is a small file for each, and so is what rounds of a bundle cost here, from which later processes choose how
    many tokens to draft, and what lies in a checkpoint's file, which is read once for it.

    Engines lie in $SPECCOMPILE_CACHE_DIR, by default speccompile/engines in the user's folder for caches; steps,
    packed weights and the small files lie in its folders builds, packed, checked, times and hashes, by default beside
    engines.
    Each of the first three holds at most $SPECCOMPILE_CACHE_LIMIT_GB (20); what was unused for longest makes room.
    A limit of 0 switches all off: engines and steps are done again, every process packs its weights and compares its
    windows.

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
    """List the engines, the steps of builds, the graphs with packed weights and the engines that were checked, the last
    used first.

    \b
    The JSON object has the keys
      folder       where the engines lie
      limit_bytes  the most that they may take
      bytes        what they take
      entries      [{digest, size, used, key}]: used is in seconds since 1970;
                   key is what the engine was built from, null when unreadable
      builds       an object of the same four keys for steps of builds; the
                   key of an entry says which step it is
      packed       an object of the same four keys for packed weights; of what
                   several graphs share, each has its part in its size
      checked      {folder, bytes, entries}: an entry has found as well, the
                   widths of windows that were compared with single tokens,
                   those differing, and the largest difference
      times        {folder, bytes, entries}: an entry has found as well, the
                   seconds of rounds by the width of their window
      hashes       {folder, bytes, entries}: of files whose content is known

    \b
    Examples:
      speccompile cache list
      speccompile cache list --json | jq .bytes
    """
    from speccompile.bundle.build_cache import BuildCache
    from speccompile.bundle.file_hashes import FileHashCache
    from speccompile.compiler.engines.cache import Cache
    from speccompile.runtime.devices.invariance_cache import InvarianceCache
    from speccompile.runtime.devices.prepacked import PrepackedWeights
    from speccompile.runtime.round_times import RoundTimesCache

    engines, builds, packed, checked = Cache(), BuildCache(), PrepackedWeights(), InvarianceCache()
    if as_json:
        data = _limited(engines) | {"builds": _limited(builds), "packed": _limited(packed)}
        data |= {"checked": _contents(checked), "times": _contents(RoundTimesCache())}
        data |= {"hashes": _contents(FileHashCache())}
        click.echo(json.dumps(data, indent=2))
        return
    for cache, word, describe in (
        (engines, "engine", _engine),
        (builds, "step", _step),
        (packed, "packed graph", _packed),
    ):
        entries = cache.entries()
        for entry in entries:
            click.echo(f"{_line(entry)}  {describe(entry.key) if entry.key else 'unreadable'}")
        click.echo(f"{_total(entries, word)} of at most {cache.limit / 1e9:g} GB in {cache.folder}")
    records = checked.entries()
    for record in records:
        click.echo(f"{_line(record)}  {_checked(record)}")
    click.echo(f"{_total(records, 'checked engine')} in {checked.folder}")
    times = RoundTimesCache()
    click.echo(f"{_total(times.entries(), 'timed engine')} in {times.folder}")
    hashes = FileHashCache()
    click.echo(f"{_total(hashes.entries(), 'known file')} in {hashes.folder}")


@command.command("clear")
def clear() -> None:
    """Remove all engines, steps of builds and packed weights that no process is just reading, and what was found out
    about engines and the content of files.

    Processes that have weights mapped keep them to their end.

    \b
    Example:
      speccompile cache clear
    """
    from speccompile.bundle.build_cache import BuildCache
    from speccompile.bundle.file_hashes import FileHashCache
    from speccompile.compiler.engines.cache import Cache
    from speccompile.runtime.devices.invariance_cache import InvarianceCache
    from speccompile.runtime.devices.prepacked import PrepackedWeights
    from speccompile.runtime.round_times import RoundTimesCache

    caches = (
        (Cache(), "engine"),
        (BuildCache(), "step"),
        (PrepackedWeights(), "packed graph"),
        (InvarianceCache(), "checked engine"),
        (RoundTimesCache(), "timed engine"),
        (FileHashCache(), "known file"),
    )
    for cache, word in caches:
        click.echo(f"removed {_total(cache.clear(), word)} from {cache.folder}")


def _limited(cache: "FolderCache") -> dict[str, Any]:
    contents = _contents(cache)
    return {"folder": contents.pop("folder"), "limit_bytes": int(cache.limit)} | contents


def _contents(cache: "FolderCache | ResultCache") -> dict[str, Any]:
    entries = cache.entries()
    rows, size = [_json(entry) for entry in entries], sum(entry.size for entry in entries)
    return {"folder": str(cache.folder), "bytes": size, "entries": rows}


def _json(entry: "Entry") -> dict[str, Any]:
    """Return an entry with the documented keys, in their order."""
    found = asdict(entry)
    return {"used" if name == "last_used" else name: value for name, value in found.items()}


def _total(entries: "Sequence[Entry]", word: str) -> str:
    return f"{len(entries)} {word}{'' if len(entries) == 1 else 's'}, {sum(each.size for each in entries) / 1e6:.1f} MB"


def _line(entry: "Entry") -> str:
    size, age = f"{entry.size / 1e6:.1f} MB", _age(time.time() - entry.last_used)
    return f"{entry.digest[:12]}  {size:>12}  used {age:>10} ago"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"


def _engine(key: dict[str, Any]) -> str:
    settings = key["settings"]
    capability = settings["compute_capability"] or key["gpu"]
    words = " ".join(f"{part}={word}" for part, word in settings["precision"].items())
    return f"{settings['backend']} {key['builder']}  {capability}  {key['graph']['name']}  {words}"


def _step(key: dict[str, Any]) -> str:
    return str(key["step"])


def _packed(key: dict[str, Any]) -> str:
    graph = next(name for name in key["files"] if name.endswith(".onnx"))
    return f"onnxruntime {key['onnxruntime']}  {key['processor']['name']}  {graph.rpartition('/')[2]}"


def _checked(record: "CachedResult") -> str:
    """Return a line of a checked engine: its name, the code that ran it, and whether its windows differed."""
    if record.key is None or record.found is None:
        return "unreadable"
    key, word = record.key, "not exact" if record.found["differing"] else "exact"
    return f"{key['engine']}  {key['kernels'][0]}, onnxruntime {key['onnxruntime']}  {key['processor']['name']}  {word}"
