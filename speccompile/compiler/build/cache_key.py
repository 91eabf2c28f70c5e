"""Keys of the build cache: a stage's record of inputs, with content in the place of files.

A stage gets a frozen record and nothing else of the plan, and its key is made of every field of the record: what it
cannot see cannot invalidate its result, and what it sees does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any

from speccompile.bundle.file_hashes import cached_file_hash
from speccompile.compiler.checkpoints.facts import TOKENIZER
from speccompile.compiler.lower.files import weights_of
from speccompile.compiler.models.load import ModelFiles
from speccompile.compiler.weights.graph import LINK_SUFFIX
from speccompile.drafters.token_map import Tokenizer
from speccompile.plan.head import HeadPlan
from speccompile.plan.plan import RetrievalPlan


@dataclass(frozen=True)
class GraphFiles:
    """Graphs in the folder of a build, and the weight files that they read there. files: relative to `folder`."""

    folder: Path
    files: tuple[str, ...]


@dataclass(frozen=True)
class FileContents:
    """Files by their content alone. files: relative to `folder`; missing ones are omitted."""

    folder: Path
    files: tuple[str, ...]


@singledispatch
def cache_key(inputs: Any) -> Any:
    """Return the key of a stage's inputs, as JSON: of a record every field, of files their content.

    Raise TypeError for values that say nothing about content, such as a path.
    """
    if is_dataclass(inputs):
        return {each.name: cache_key(getattr(inputs, each.name)) for each in fields(inputs)}
    raise TypeError(f"received {inputs!r} among a stage's inputs, expected values or files whose content is known")


@cache_key.register(str | int | float | None)
def _(inputs: str | float | None) -> Any:
    return inputs


@cache_key.register(list | tuple)
def _(inputs: Iterable[Any]) -> Any:
    return [cache_key(each) for each in inputs]


@cache_key.register(Mapping)
def _(inputs: Mapping[str, Any]) -> Any:
    return {name: cache_key(each) for name, each in inputs.items()}


@cache_key.register(ModelFiles)
def _(inputs: ModelFiles) -> Any:
    return {"files": _hashes(inputs.folder, inputs.files), "vocabulary_size": inputs.vocabulary_size}


@cache_key.register(Tokenizer)
def _(inputs: Tokenizer) -> Any:
    roles = [cache_key(ids) for ids in (inputs.bos, inputs.eos)]
    return {"files": _hashes(inputs.folder, (TOKENIZER,)), "size": inputs.size, "roles": roles}


@cache_key.register(HeadPlan)
def _(inputs: HeadPlan) -> Any:
    described = {each.name: getattr(inputs, each.name) for each in fields(inputs) if each.name != "folder"}
    return cache_key(described | {"files": _hashes(inputs.folder, inputs.files)})


@cache_key.register(RetrievalPlan)
def _(inputs: RetrievalPlan) -> Any:
    return {"reference": inputs.reference, "header": inputs.header, "asked": cache_key(inputs.asked)}


@cache_key.register(FileContents)
def _(inputs: FileContents) -> Any:
    return _hashes(inputs.folder, inputs.files)


@cache_key.register(GraphFiles)
def _(inputs: GraphFiles) -> Any:
    # Names of a checkpoint's files contain their hash.
    read = {
        f"{Path(file).parent.as_posix()}/{name}"
        for file in inputs.files
        for name in weights_of(inputs.folder / file)
        if not name.endswith(LINK_SUFFIX)
    }
    return _hashes(inputs.folder, sorted({*inputs.files, *read}))


def _hashes(folder: Path, files: Iterable[Path | str]) -> dict[str, str]:
    """Return file -> BLAKE3 of its content."""
    paths = {str(file): folder / file for file in files}
    return {name: cached_file_hash(path) for name, path in paths.items() if path.is_file()}
