"""Open a bundle: refuse files that are missing, truncated, edited, of another version or outside, naming the file."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile import contract
from speccompile.bundle.consistency import check_consistency
from speccompile.bundle.hashes import HASHES, Hashes, check_content, check_files, read_hashes, read_json
from speccompile.bundle.manifest import FORMAT, LOCK, MANIFEST, PROOF, TOKENIZER, EngineEntry, Manifest, engine_files
from speccompile.bundle.signature import PublicKey, check_signature, read_public_key
from speccompile.bundle.verified_files import VerifiedFiles
from speccompile.errors import BundleError, UsageError
from speccompile.progress import LOGGER

_BUILD = "give the folder that `speccompile build` wrote"
_MODEL = "this is a model: `speccompile run` and `chat` take it, and `speccompile build` makes a bundle of it"


@dataclass(frozen=True)
class OpenedBundle:
    """Bundle whose files are those that were built. `lock`: inputs and versions; `proof`: results of the build's
    proof."""

    folder: Path
    manifest: Manifest
    lock: dict[str, Any]
    proof: dict[str, Any]
    hashes: Hashes

    def path(self, relative: str) -> Path:
        """Return the path of a file of the bundle. Raise BundleError when the bundle has no such file."""
        if relative not in self.hashes.files:
            raise BundleError(
                f"{self.folder}: the bundle has no file {relative!r}",
                hint="`speccompile inspect` lists the files of a bundle",
            )
        return self.folder / relative


def is_bundle(folder: Path) -> bool:
    """Return whether a folder has the files that only bundles have. It may be damaged."""
    return (folder / MANIFEST).is_file() and (folder / HASHES).is_file()


def open_bundle(
    folder: Path, *, verify: bool = True, skip_verified: bool = False, signed_by: str | Path | None = None
) -> OpenedBundle:
    """Open the bundle in `folder`. verify=False skips the hashes, not the structure, versions and paths;
    skip_verified=True only those of files that were compared here before and are unchanged since (`verified_files`).
    signed_by: file of a public key of minisign; the bundle must have a signature by it, and everything is compared.

    Raise BundleError naming the invalid file, and UsageError for `signed_by` without `verify` or without a key.
    """
    manifest = _read_manifest(folder)
    key = None if signed_by is None else _signer(Path(signed_by), verify=verify)
    hashes = read_hashes(folder, verify=verify)
    if key is not None:
        comment = check_signature(folder, hashes.to_bytes(), key)
        LOGGER.info("signed by key %s%s", key.name, f": {comment}" if comment else "")
    check_files(folder, hashes, verify=False)
    if verify:
        _verify(folder, hashes, skip_verified=skip_verified and key is None)
    bundle = OpenedBundle(
        folder=folder,
        manifest=Manifest.from_json(manifest, str(folder / MANIFEST)),
        lock=_read_object(folder / LOCK),
        proof=_read_object(folder / PROOF),
        hashes=hashes,
    )
    check_consistency(bundle.manifest, str(folder / MANIFEST))
    _check_listed(bundle)
    return bundle


def _verify(folder: Path, hashes: Hashes, *, skip_verified: bool) -> None:
    verified = VerifiedFiles.of(folder, hashes)
    skipped = verified.unchanged if skip_verified else ()
    check_content(folder, {name: record for name, record in hashes.files.items() if name not in skipped})
    verified.store(folder)


def _signer(key: Path, *, verify: bool) -> PublicKey:
    if not verify:
        raise UsageError(
            "received a key that must have signed the bundle, without comparing hashes, which the signature covers",
            hint="leave out --no-verify (verify=False)",
        )
    return read_public_key(key)


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not os.path.isdir(folder):  # noqa: PTH112  Path.is_dir raises OSError for a name that is too long
        found = "is a file" if os.path.exists(folder) else "does not exist"  # noqa: PTH110
        raise BundleError(f"{folder}: expected the folder of a bundle, it {found}", hint=_BUILD)
    if not (folder / MANIFEST).is_file():
        hint = _MODEL if (folder / "config.json").is_file() else _BUILD
        raise BundleError(f"{folder}: not a bundle: it has no {MANIFEST}", hint=hint)
    manifest = _read_object(folder / MANIFEST)
    _check_version(manifest, "format", FORMAT, folder / MANIFEST)
    _check_version(manifest, "contract", contract.VERSION, folder / MANIFEST)
    return manifest


def _check_version(manifest: dict[str, Any], name: str, ours: int, path: Path) -> None:
    version = manifest.get(name)
    if type(version) is not int:
        raise BundleError(f"{path}: expected a number in {name!r}, got {version!r}", hint=_BUILD)
    if version != ours:
        raise BundleError(
            f"{path}: the bundle has {name} version {version}, this speccompile reads {name} version {ours}",
            hint="upgrade speccompile" if version > ours else "build the bundle again with this speccompile",
        )


def _read_object(path: Path) -> dict[str, Any]:
    data = read_json(path)
    if not isinstance(data, dict):
        raise BundleError(f"{path}: expected a JSON object, got {type(data).__name__}", hint=_BUILD)
    return data


def _check_listed(bundle: OpenedBundle) -> None:
    manifest, path = bundle.manifest, bundle.folder / MANIFEST
    needed = [MANIFEST, LOCK, PROOF] + ([TOKENIZER] if manifest.tokenizer else [])
    needed += [file for engine in manifest.engines for file in engine_files(engine)]
    if missing := [file for file in needed if file not in bundle.hashes.files]:
        raise BundleError(f"{path}: the bundle needs {missing[0]!r}, which {HASHES} does not list", hint=_BUILD)
    for engine in manifest.engines:
        graphs = sorted(graph.name for graph in engine.graphs)
        for held in _required_files(engine):
            if sorted(held) != graphs:
                raise BundleError(
                    f"{path}: engine {engine.name!r} has files for {sorted(held)}, the graphs are {graphs}",
                    hint=_BUILD,
                )


def _required_files(engine: EngineEntry) -> list[dict[str, str]]:
    """Return the mappings that need an entry for every graph: the engine's files, or the sources of a deferred
    engine."""
    if engine.build is None or not engine.deferred:
        return [engine.files]
    return [engine.build.sources, engine.build.settings]
