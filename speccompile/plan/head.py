"""Heads, drafters that were made for one target: their folders as published, and one description for all kinds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from speccompile.plan.layers import LayerShape
from speccompile.plan.recipe_source import RecipeSource

Switch = bool | int | float | str | None

OFFSETS, TOKEN_MAP = VOCABULARY_MAPS = ("d2t", "token_map")
"""Tensors that map the draft vocabulary to the target's: draft token i is target token i + d2t[i], or token_map[i]."""


@dataclass(frozen=True)
class TensorSource:
    """A tensor in a file of the folder. dtype: as safetensors calls it ("F32", "BF16", "I64", ..)."""

    file: str
    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class HeadFolder:
    """Content of a folder, not interpreted yet. tensors: by their published names. files: the config and the files with
    weights, relative to `path`."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorSource]
    files: tuple[Path, ...]

    @property
    def config_file(self) -> Path:
        return self.path / "config.json"

    def value(self, key: str) -> Any:
        """Return the config's value at a dotted key, or None if it has none."""
        found: Any = self.config
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found


@dataclass(frozen=True)
class HeadTarget:
    """Facts of the target's checkpoint against which a head is checked. Sizes are None if the config does not say.
    folder: of the checkpoint, for heads that the target's config describes or whose weights lie among the target's."""

    reference: str
    vocabulary_size: int
    hidden_size: int | None
    layers: int | None
    folder: Path | None = None


_BLOCK_TYPES = ("Q", "IQ", "MXFP")
"""Beginnings of the names of GGUF's types of blocks."""


@dataclass(frozen=True)
class HeadRequest:
    """Request to read a head: the kind, the target, and overrides of the recipe. taps and switches: `drafter.taps` and
    `drafter.switches`, which override those of the folder. threshold: `drafter.threshold`."""

    kind: str
    target: HeadTarget
    origin: RecipeSource
    taps: tuple[str, ...] = ()
    switches: Mapping[str, Switch] = field(default_factory=dict)
    threshold: float | None = None


@dataclass(frozen=True)
class HeadPlan:
    """Description of a head, independent of its dialect. The compiler reads heads through it alone.

    dialect, evidence: the dialect, and the properties that identify it. taps: names of the target's hidden states that
    the head reads, as in `step.taps`. hidden_size, vocabulary_size: of the target. layers: its transformer layers, None
    without any. tokens: maximum number of consecutive drafts, None for no limit; default_tokens: number of drafts if
    the recipe does not say. switches: variants of the formula, by the names of its method. tensors: by the parameter
    names of its method's modules. base: name of the target that it was trained for, according to its folder.
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
        """Return the size Vd of the draft vocabulary."""
        maps = (self.tensors[name].shape[0] for name in VOCABULARY_MAPS if name in self.tensors)
        return next(maps, self.vocabulary_size)

    @property
    def has_codes(self) -> bool:
        """Return whether some of its matrices lie in blocks of a GGUF file."""
        return any(each.dtype.startswith(_BLOCK_TYPES) for each in self.tensors.values())

    @property
    def weight_bytes(self) -> int:
        """Approximate stored size of its tensors in bytes: 2 bytes per number for 16-bit dtypes, otherwise 4."""
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
