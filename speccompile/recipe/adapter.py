"""A model with an adapter as a folder in Hugging Face layout, in the user's cache: everything else reads such folders.

The folder holds links to the files of the model and of the adapter, and the mark that tells the compiler to merge the
weights while it reads them: see `speccompile.compiler.models.adapter`. Its name is the digest of the files' paths,
sizes and times: changed files have another folder.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speccompile import __version__
from speccompile.bundle.cache import FOLDER, cache_folder
from speccompile.bundle.manifest import canonical_json
from speccompile.compiler.checkpoints.change_guard import FileStamp
from speccompile.compiler.checkpoints.quantization import read_quantization
from speccompile.compiler.checkpoints.weights import stored_tensors
from speccompile.compiler.weights.adapter import check_numbers
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.machine.formats.peft import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MERGED, check_fits, read_adapter
from speccompile.machine.plain_files import path_text
from speccompile.plan.plan import ModelPlan
from speccompile.recipe.gguf import CACHE, write_description

FORMAT = 1
"""Version of the files in such folders."""

_OWN = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, MERGED)


def adapted_folder(base: Path, adapter: Path) -> Path:
    """Return the folder of a model with an adapter. It is made once, when the adapter has been checked.

    base: resolved folder of the model; adapter: folder as PEFT writes it. Raise CheckpointError and
    UnsupportedModelError as `read_adapter`, `check_fits` and `check_numbers` do, UnsupportedModelError for a base with
    quantized weights, and CheckpointError if the folder cannot be written.
    """
    found = read_adapter(adapter)
    files = sorted(path for path in base.iterdir() if path.is_file() and path.name not in _OWN)
    own = [(adapter / name).absolute() for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)]
    folder = cache_folder(CACHE) / hashlib.sha256(canonical_json(_key([*files, *own]))).hexdigest()
    if (folder / MERGED).is_file():
        return folder
    if read_quantization(base) is not None:
        raise UnsupportedModelError(
            f"{adapter}: received an adapter for {base}, whose weights are quantized, expected a base in float",
            hint="give the base in float32, float16 or bfloat16: the merged weights are quantized in the build",
        )
    check_fits(found, stored_tensors(base), adapter)
    check_numbers(found, adapter)
    mark = {MERGED: {"format": FORMAT}}  # no paths: the lock has its hash
    try:
        write_description(folder, (path.absolute() for path in (*files, *own)), mark, MERGED)
    except OSError as error:
        raise CheckpointError(
            f"{folder.parent}: cannot be written: {error.strerror}, expected a place for links to {base.name} and "
            f"{adapter.name}",
            hint=f"set {FOLDER} to a folder that may be written",
        ) from error
    return folder


def adapter_notes(whose: str, model: ModelPlan, adapter: str | None) -> Iterator[str]:
    """Yield notes of a plan on an adapter that is merged into a model. adapter: as the recipe names it, or None."""
    if adapter is None:
        return
    found = read_adapter(model.folder)
    count = len(found.low_rank) + len(found.replaced) + len(found.rows)
    rank = f" of rank {found.rank}" if found.rank else ""
    yield f"the adapter '{adapter}' ({found.kind}{rank}, {count} changed weights) is merged into {whose}"
    if found.base is not None and Path(found.base).name != Path(model.reference).name:
        yield f"the adapter '{adapter}' names the base '{found.base}', and {whose} is '{model.reference}'"


def _key(files: list[Path]) -> dict[str, Any]:
    stamps = [[path_text(file), *vars(FileStamp.of(file)).values()] for file in files]
    return {"adapter": True, "files": stamps, "format": FORMAT, "speccompile": __version__}
