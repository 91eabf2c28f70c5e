"""`speccompile finish`: build on the device what a build has deferred to it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speccompile.errors import EngineError
from speccompile.progress import LOGGER

if TYPE_CHECKING:
    from speccompile.compiler.engines.finish import Finished


@click.command("finish")
@click.argument("folder", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option("--engine", metavar="NAME", help="Finish this engine; by default all that are deferred.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, engine: str | None, as_json: bool) -> None:
    """Build the deferred engines of BUNDLE with the TensorRT of this machine.

    The bundle's files are verified first. It may be run again: engines that are built are left alone, and an engine
    that cannot be built stays deferred, with exit code 1. An engine for another compute capability than that of this
    machine's GPU stays deferred too. A build may take at most $SPECCOMPILE_BUILDER_SECONDS (3600) and
    $SPECCOMPILE_BUILDER_MEMORY_GB (nine tenths of the memory).

    \b
    The JSON object has the keys
      bundle   the folder
      digest   the bundle's identity, a new one when an engine was built
      built    {engine: {graph: {file, bytes, seconds}}}
      waiting  {engine: why it is not for this machine}
      failed   {engine: {error, hint}}

    \b
    Examples:
      speccompile finish build/demo
      speccompile finish build/demo --engine tensorrt --json
    """
    from speccompile.compiler.engines.finish import finish

    finished = finish(folder, engine=engine)
    for line in [json.dumps(_as_object(folder, finished), indent=2)] if as_json else _lines(folder, finished):
        click.echo(line)
    for name, reason in finished.waiting.items():
        LOGGER.warning("engine %s stays deferred: %s", name, reason)
    if finished.failed:
        lines = [f"engine {name!r} could not be built: {error}" for name, error in finished.failed.items()]
        hints = dict.fromkeys(error.hint for error in finished.failed.values() if error.hint)
        raise EngineError("\n".join(lines), hint="; ".join(hints))


def _as_object(folder: Path, finished: "Finished") -> dict[str, Any]:
    from speccompile.bundle.hashes import read_hashes

    return {
        "bundle": str(folder),
        "digest": read_hashes(folder).digest,
        "built": _built(finished),
        "waiting": finished.waiting,
        "failed": {name: {"error": str(error), "hint": error.hint} for name, error in finished.failed.items()},
    }


def _built(finished: "Finished") -> dict[str, dict[str, dict[str, Any]]]:
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for entry in finished.built:
        assert entry.build is not None, "it was built"
        rows[entry.name] = {
            graph: {"file": entry.files[graph], "bytes": report["bytes"], "seconds": report["seconds"]}
            for graph, report in entry.build.reports.items()
        }
    return rows


def _lines(folder: Path, finished: "Finished") -> list[str]:
    if not (finished.built or finished.waiting or finished.failed):
        return [f"{folder}: no engine is deferred, nothing was done"]
    return [
        f"{engine}  {row['file']}  {row['bytes'] / 1e6:.2f} MB  {row['seconds']:.1f} s"
        for engine, graphs in _built(finished).items()
        for row in graphs.values()
    ]
