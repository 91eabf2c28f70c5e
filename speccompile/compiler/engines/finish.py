"""Build the deferred engines of a bundle, on the device that will run them.

The new bundle is prepared next to the old one, of the same files and the new engines, and replaces it atomically.
"""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from speccompile.bundle import BundleWriter, EngineEntry, OpenedBundle, open_bundle
from speccompile.bundle.manifest import LOCK, MANIFEST, PROOF
from speccompile.compiler.engines import flavour
from speccompile.compiler.engines.build import build_or_load, check_limits, plan_file, store_weights_once
from speccompile.compiler.engines.limits import Limits
from speccompile.compiler.engines.settings import Settings
from speccompile.errors import BuildError, EngineError, UsageError
from speccompile.progress import log_step


@dataclass
class Finished:
    """Outcome of the deferred engines.

    built: their entries in the new manifest. waiting: engine name -> the reason why this machine's GPU is not its
    target. failed: engine name -> error. Waiting and failed engines stay deferred.
    """

    built: list[EngineEntry] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    failed: dict[str, EngineError] = field(default_factory=dict)


def finish(folder: Path, *, engine: str | None = None, limits: Limits | None = None) -> Finished:
    """Build the deferred engines of the bundle in `folder`, or the one named `engine`, into it. Their lowered graphs
    stay in the bundle: another version of TensorRT will need other engines.

    Do nothing if none is deferred. Raise BundleError for a file that has changed since the build, UsageError for an
    unknown engine or a limit that is no number, BuildError if the new bundle cannot be written; the bundle is then
    unchanged. If two processes finish one bundle at once, the engines of the last one stay.
    """
    check_limits()
    with log_step(f"verifying {folder}"):
        bundle = open_bundle(folder)
    limits, finished = limits or Limits(), Finished()
    chosen = _buildable(_deferred(bundle, engine), finished)
    if chosen:
        try:
            _build_into(bundle, chosen, limits, finished)
        except BuildError as error:
            hint = "copy the bundle to a folder that can be written, with room beside it, and finish it there"
            raise BuildError(str(error), hint=hint) from error
    return finished


def _build_into(bundle: OpenedBundle, chosen: Iterable[EngineEntry], limits: Limits, finished: Finished) -> None:
    with BundleWriter(bundle.folder) as writer:
        _take_over(bundle, writer.folder)
        for entry in chosen:
            try:
                finished.built.append(_build(entry, writer.folder, limits))
            except EngineError as error:
                finished.failed[entry.name] = error
        if finished.built:
            built = {entry.name: entry for entry in finished.built}
            engines = tuple(built.get(entry.name, entry) for entry in bundle.manifest.engines)
            writer.finish(replace(bundle.manifest, engines=engines), bundle.lock, bundle.proof)


def _deferred(bundle: OpenedBundle, engine: str | None) -> list[EngineEntry]:
    names = [entry.name for entry in bundle.manifest.engines]
    if engine is not None and engine not in names:
        raise UsageError(
            f"received the engine {engine!r}, expected one of the bundle's: {', '.join(names)}",
            hint="`speccompile inspect` lists the engines of a bundle",
        )
    return [entry for entry in bundle.manifest.engines if entry.deferred and engine in (None, entry.name)]


def _buildable(entries: Iterable[EngineEntry], finished: Finished) -> list[EngineEntry]:
    """Return the engines that this machine can build; the reasons for the other engines go into `finished`."""
    gpu, buildable = flavour.find_gpu(), []
    for entry in entries:
        try:
            flavour.check_buildable(entry.backend)
        except EngineError as error:
            finished.failed[entry.name] = error
            continue
        if reason := flavour.reason_to_defer(gpu, entry.compute_capability):
            finished.waiting[entry.name] = reason
        else:
            buildable.append(entry)
    return buildable


def _take_over(bundle: OpenedBundle, folder: Path) -> None:
    """Put the bundle's files into `folder`, except those that will be rewritten, as hard links if possible."""
    for name in bundle.hashes.files.keys() - {MANIFEST, LOCK, PROOF}:
        source, target = bundle.path(name), folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)


def _build(entry: EngineEntry, folder: Path, limits: Limits) -> EngineEntry:
    """Build an engine into `folder` and return its entry. Raise EngineError, and leave nothing of the engine there."""
    assert entry.build is not None, "only what has a build is deferred"
    sources = entry.build.sources
    files = {graph.name: plan_file(sources[graph.name], graph.name, entry.name) for graph in entry.graphs}
    reports = {}
    try:
        for graph in entry.graphs:
            source, settings = folder / sources[graph.name], Settings.from_json(entry.build.settings[graph.name])
            reports[graph.name] = build_or_load(source, graph, settings, folder / files[graph.name], limits=limits)
    except EngineError:
        for file in files.values():
            (folder / file).unlink(missing_ok=True)
        raise
    built = replace(entry, files=files, build=replace(entry.build, deferred="", reports=reports))
    return store_weights_once(built, folder)
