"""Requests for models without a recipe, and the files that determine their recipe."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from speccompile.compiler.checkpoints.gguf.given_tokenizer import given_tokenizer_files
from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.errors import UsageError
from speccompile.recipe.gguf import find_gguf_files
from speccompile.recipe.load import FILE_NAME

BESIDE = ("drafter", "draft", "head", "assistant")
"""Names of a drafter's folder in a model's folder or next to it; next to it, also behind the model's name and a -."""

_SPLIT = re.compile(r"(-\d{5}-of-\d{5})?\.gguf$")
"""End of the name of a GGUF file."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class ModelRequest:
    """Request for a model without a recipe.

    model: folder or Hub id. drafter: folder, Hub id or kind of a drafter, None for the best that is there. precision:
    of the target, None to decide it by the checkpoint and the memory. sampling: whether temperatures above 0 are asked
    for. tokenizer: folder of the tokenizer for a GGUF file. images: whether the bundle shall see
    pictures. Raise UsageError for a folder that is no model.
    """

    model: str
    drafter: str | None = None
    precision: str | None = None
    sampling: bool = False
    tokenizer: str | None = None
    images: bool = False

    def __post_init__(self) -> None:
        if is_model(self.model):
            return
        beside = self._path.is_file() and (self._path.parent / CONFIG).is_file()
        raise UsageError(
            f"received '{self.model}' ({_found(self._path)}), expected a model in Hugging Face layout, a GGUF file, a "
            "Hub id or a bundle",
            hint=f"give the folder that it lies in: {self._path.parent}"
            if beside
            else "give a folder with config.json and model.safetensors, a file such as model-Q4_K_M.gguf, an id such "
            "as organisation/name, or a bundle",
        )

    @property
    def _path(self) -> Path:
        return Path(self.model).expanduser()

    @property
    def folder(self) -> Path | None:
        """Return the folder of a model that lies on this machine, else None."""
        return self._path.resolve() if self._path.is_dir() else None

    @property
    def name(self) -> str:
        """Name for the recipe: the last part of the path or id, with the characters that a name may have."""
        last = self.folder.name if self.folder else _SPLIT.sub("", self.model.rpartition("/")[2])
        return re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip("._-") or "model"

    def drafters_beside(self) -> list[Path]:
        """Return the folders in or next to the model's that may hold a drafter, the nearest first."""
        if self.folder is None:
            return []
        inside = [self.folder / name for name in BESIDE]
        beside = [self.folder.parent / name for each in BESIDE for name in (f"{self.folder.name}-{each}", each)]
        return [each for each in (*inside, *beside) if each != self.folder and (each / CONFIG).is_file()]

    @property
    def gguf_files(self) -> tuple[Path, ...]:
        """Return GGUF files of the model, none for a model of another kind."""
        return find_gguf_files(self._path) if self._path.exists() else ()


def _found(path: Path) -> str:
    """Describe what lies at a path that is no model."""
    if path.is_file():
        return "a file"
    return f"a folder without {CONFIG} or a GGUF file" if path.exists() else "nothing lies there"


def is_model(reference: str) -> bool:
    """Return whether a reference names a model's folder or can be a Hub id, and not a recipe or a bundle."""
    path = Path(reference).expanduser()
    if path.exists():
        if path.is_dir() and (path / FILE_NAME).is_file():
            return False
        return (path.is_dir() and (path / CONFIG).is_file()) or bool(find_gguf_files(path))
    return _HUB_ID.fullmatch(reference) is not None and not reference.endswith((".yaml", ".yml"))


def model_files(request: ModelRequest) -> Iterator[Path]:
    """Yield the files that decide what a local model's bundle is: those of the model and of drafters beside it."""
    drafter = Path(request.drafter).expanduser() if request.drafter else None
    yield from request.gguf_files
    if request.tokenizer is not None:
        yield from given_tokenizer_files(Path(request.tokenizer).expanduser().resolve())
    if drafter and drafter.is_file():
        yield from find_gguf_files(drafter)
    others = [drafter] if drafter and drafter.is_dir() else [] if drafter else request.drafters_beside()
    for folder in filter(None, (request.folder, *others)):
        yield from sorted(path for path in folder.resolve().iterdir() if path.is_file())
