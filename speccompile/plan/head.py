"""Heads: drafters that were made for one target. Their folders as they are, and the one description of all of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from speccompile.plan.layers import LayerShape
from speccompile.plan.recipe_source import RecipeSource

Switch = bool | int | float | str | None

OFFSETS, TOKEN_MAP = VOCABULARY_MAPS = ("d2t", "token_map")
"""Which tokens of the target a head's own are: i is i + d2t[i], or token_map[i]."""


@dataclass(frozen=True)
class TensorSource:
    """A tensor in a file of the folder. dtype: as safetensors calls it ("F32", "BF16", "I64", ..)."""

    file: str
    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class HeadFolder:
    """What lies in a folder, nothing of it understood yet. files: relative to `path`; those with weights hold tensors
    by their names as published."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorSource]
    files: tuple[Path, ...]

    @property
    def config_file(self) -> Path:
        return self.path / "config.json"

    def value(self, key: str) -> Any:
        """The config's value at a dotted key, None where it has none."""
        found: Any = self.config
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found


@dataclass(frozen=True)
class HeadTarget:
    """What the target's checkpoint says, against which a head is judged. Sizes are None where it does not say. folder:
    where it lies, for heads that are described by the target's own config, or lie among its weights."""

    reference: str
    vocabulary_size: int
    hidden_size: int | None
    layers: int | None
    folder: Path | None = None


@dataclass(frozen=True)
class HeadRequest:
    """What is wanted of a head: for which target, and what the recipe says of it. taps and switches: in the place of
    those that the folder says, by `drafter.taps` and `drafter.switches`. threshold: `drafter.threshold`."""

    kind: str
    target: HeadTarget
    origin: RecipeSource
    taps: tuple[str, ...] = ()
    switches: Mapping[str, Switch] = field(default_factory=dict)
    threshold: float | None = None


@dataclass(frozen=True)
class HeadPlan:
    """A head, whatever dialect it was published in. The compiler knows this alone.

    dialect, evidence: which it was, and by what it was recognised. taps: what it reads of the target, as in
    `step.taps`. hidden_size, vocabulary_size: of the target. layers: its transformer layers, None without any. tokens:
    the most drafts after one another that it can make, None for any number; default_tokens: how many where the recipe
    does not say. switches: what changes its formula, by the names of its family. tensors: by the names of its family's
    modules. base: the target that it was made for, as it says.
    """

    kind: str
    dialect: str
    evidence: str
    folder: Path
    files: tuple[Path, ...]
    taps: tuple[str, ...]
    hidden_size: int
    vocabulary_size: int
    layers: LayerShape | None
    switches: Mapping[str, Switch]
    tensors: Mapping[str, TensorSource]
    tokens: int | None = None
    default_tokens: int | None = None
    base: str | None = None
    notes: tuple[str, ...] = ()
    reference: str = ""
    revision: str | None = None
    commit: str | None = None
    precision: str = "float32"

    @property
    def draft_vocabulary_size(self) -> int:
        """Vd: tokens among which it chooses."""
        maps = (self.tensors[name].shape[0] for name in VOCABULARY_MAPS if name in self.tensors)
        return next(maps, self.vocabulary_size)

    @property
    def weight_bytes(self) -> int:
        """Of its tensors as they are stored, roughly: two bytes for those of sixteen bits, else four."""
        return sum(prod(each.shape) * (2 if "16" in each.dtype else 4) for each in self.tensors.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "dialect": self.dialect,
            "evidence": self.evidence,
            "reference": self.reference,
            "revision": self.revision,
            "commit": self.commit,
            "files": [file.as_posix() for file in self.files],
            "taps": list(self.taps),
            "layers": None if self.layers is None else self.layers.to_json(),
            "switches": dict(self.switches),
            "draft_vocabulary_size": self.draft_vocabulary_size,
            "tokens": self.tokens,
            "base": self.base,
            "precision": self.precision,
        }
