"""A model of a Triton model repository: written in a hidden folder, and moved to its final path when it is complete.

NAME/config.pbtxt             tensors, instances, options
NAME/1/bundle                 the bundle
NAME/1/model.py               for the Python backend
NAME/1/libtriton_speccompile.so, libspeccompile.so.1, libonnxruntime.so.1     the native backend, without Python
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from speccompile.bundle import Manifest, open_bundle
from speccompile.bundle.folders import replace_folder
from speccompile.bundle.writer import as_build_error
from speccompile.errors import BuildError, EngineError, UsageError
from speccompile.progress import LOGGER
from speccompile.serving.scheduler import check_prompted
from speccompile.serving.triton import native
from speccompile.serving.triton.config import MARK, render

AUTO, PYTHON, NATIVE = BACKENDS = ("auto", "python", "native")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class RepositoryOptions:
    """Options of `speccompile triton`; None if the model decides when it is loaded."""

    name: str | None = None
    backend: str = AUTO
    instances: int = 1
    threads: int | None = None
    engine: str | None = None
    environment: Path | None = None
    libraries: Path | None = None
    link: bool = False


@dataclass(frozen=True)
class WrittenModel:
    """Folder of the model, the chosen backend, and the reason."""

    folder: Path
    backend: str
    reason: str


def write(bundle: Path, output: Path, wanted: RepositoryOptions) -> WrittenModel:
    """Write a bundle into the repository `output`, replacing the same model of an earlier call.

    Raise BundleError, UsageError, EngineError if the native backend is requested and cannot serve the bundle, and
    BuildError if the output cannot be written.
    """
    manifest = open_bundle(bundle).manifest
    check_prompted(manifest, "models of Triton")
    name = wanted.name or manifest.name
    kind = _instance_kind(manifest, wanted.engine)
    if not NAME.fullmatch(name):
        raise UsageError(
            f"--name: received {name!r}, expected letters, digits, '.', '_' and '-', a letter or digit first",
            hint="give another --name",
        )
    libraries, reason = _choose(bundle, wanted)
    backend = PYTHON if libraries is None else NATIVE
    config = render(
        name, backend="python" if libraries is None else "speccompile", batch_size=manifest.batch_size,
        instances=wanted.instances, kind=kind, parameters=_parameters(wanted),
    )  # fmt: skip
    with _replacing(output, name) as part:
        (part / "config.pbtxt").write_text(config)
        version = part / "1"
        version.mkdir()
        if libraries is None:
            shutil.copy(Path(__file__).with_name("model.py"), version)
        for file, source in (libraries.named() if libraries else {}).items():
            _link_or_copy(str(source), str(version / file))
        if wanted.link:
            (version / "bundle").symlink_to(bundle.resolve())
        else:
            shutil.copytree(bundle, version / "bundle", copy_function=_link_or_copy)
    return WrittenModel(output / name, backend, reason)


def _instance_kind(manifest: Manifest, engine: str | None) -> str:
    """Return CPU, or MODEL if an engine chooses its device itself."""
    entries = [entry for entry in manifest.engines if engine in (None, entry.name)]
    if not entries:
        names = ", ".join(entry.name for entry in manifest.engines)
        raise UsageError(
            f"the bundle has no engine {engine!r}: it has {names}", hint="`speccompile inspect` shows the engines"
        )
    return "CPU" if all(entry.provider == "cpu" for entry in entries) else "MODEL"


def _choose(bundle: Path, wanted: RepositoryOptions) -> tuple[native.Libraries | None, str]:
    """Return the native backend's libraries, or None for the Python backend; and the reason."""
    if wanted.backend == PYTHON:
        return None, "as asked for"
    if wanted.environment is not None:
        if wanted.backend == AUTO:
            return None, "--environment is for Python"
        raise UsageError(
            "received --environment for the native backend, which runs no Python", hint="leave one of them out"
        )
    try:
        libraries = native.find(wanted.libraries)
        no_text = native.try_bundle(libraries, bundle, wanted.engine)
    except EngineError as error:
        if wanted.backend == NATIVE:
            raise
        return None, str(error)
    if wanted.backend == AUTO:
        return (None, no_text) if no_text else (libraries, "it is compiled here, and takes this bundle")
    if no_text:
        LOGGER.warning("this model will take token ids alone: %s", no_text)
    return libraries, "as asked for"


def _parameters(wanted: RepositoryOptions) -> dict[str, str]:
    given = {
        "engine": wanted.engine,
        "threads": None if wanted.threads is None else str(wanted.threads),
        "EXECUTION_ENV_PATH": None if wanted.environment is None else str(wanted.environment.absolute()),
    }
    return {key: value for key, value in given.items() if value is not None}


def _link_or_copy(source: str, target: str) -> None:
    """Link or copy a file. A hard link is safe, because bundles and libraries are replaced, never changed."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copy2(source, target)


@contextmanager
def _replacing(output: Path, name: str) -> Iterator[Path]:
    """Yield a new folder. At the end it replaces the model; after an error it is removed."""
    with as_build_error(f"the repository {output} cannot be written"):
        _check_output(output, name)
        created = [folder for folder in (output, *output.parents) if not folder.exists()]
        output.mkdir(parents=True, exist_ok=True)
        part = output / f".{name}.{os.getpid()}-{secrets.token_hex(4)}.part"
        try:
            part.mkdir()
            yield part
            replace_folder(part, output / name)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            for folder in created:
                with suppress(OSError):  # the model lies in it
                    folder.rmdir()


def _check_output(output: Path, name: str) -> None:
    if output.exists() and not output.is_dir():
        raise BuildError(f"the output {output} is a file, expected a folder", hint="give another --output")
    if output.is_dir() and any(output.iterdir()) and not any(output.glob("*/config.pbtxt")):
        raise BuildError(
            f"the output {output} is not empty and not a model repository: no folder in it has a config.pbtxt",
            hint="give another --output, or remove the folder yourself if nothing in it is needed",
        )
    config = output / name / "config.pbtxt"
    if (output / name).exists() and not (config.is_file() and config.read_text(errors="replace").startswith(MARK)):
        raise BuildError(
            f"{output / name} exists and was not written by speccompile", hint="give another --name or --output"
        )
