"""Adapters of the target that are loaded into slots of an open bundle, and chosen by each sequence.

An adapter changes what the target's caches hold: a prefix may be reused only by a sequence with the same adapter, which
its key, a digest of all that was loaded, decides.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from speccompile.contract import ADAPTER_PARTS, ADAPTER_PREFIX, Graph
from speccompile.errors import CheckpointError, UnsupportedModelError, UsageError
from speccompile.machine.formats.peft import ADAPTER_WEIGHTS, Adapter, LowRank, read_adapter
from speccompile.machine.formats.safetensors import read_floats
from speccompile.runtime.devices.engine import Array, Engine

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MERGE = "merge it when the bundle is built: target.adapter"
_BUILD = "build a bundle for it: see the recipe's section adapters"


@dataclass(frozen=True)
class LoadedAdapter:
    """An adapter in a slot, from 1 on. key: digest of its numbers."""

    name: str
    slot: int
    key: str


def adapter_key(adapter: LoadedAdapter | None) -> str:
    """Return the key of an adapter; "" for the base. Only sequences of one key may share cached tokens."""
    return "" if adapter is None else adapter.key


class Adapters:
    """Slots of a bundle for adapters; none in a bundle that was built without."""

    def __init__(self, engine: Engine, graphs: Iterable[Graph]) -> None:
        """graphs: the engine's."""
        tensors = (tensor for graph in graphs for tensor in graph.inputs if tensor.name.startswith(ADAPTER_PREFIX))
        self._shapes = {tensor.name: tensor.concrete_shape({}) for tensor in tensors}
        self._engine = engine
        self._loaded = dict[str, LoadedAdapter]()
        shape = next(iter(self._shapes.values()), (1, 0, 0))
        self.slots, self.rank = shape[0] - 1, shape[1]
        """Number of adapters that fit at once, and their largest rank; 0 without slots."""

    @property
    def names(self) -> list[str]:
        """Return names of the loaded adapters, in the order of loading."""
        return list(self._loaded)

    def find(self, name: object) -> LoadedAdapter | None:
        """Return a loaded adapter; None for None, the base. Raise UsageError for a name that is not loaded."""
        if name is None:
            return None
        found = self._loaded.get(name) if isinstance(name, str) else None
        if found is None:
            known = ", ".join(map(repr, self._loaded)) or "none is loaded"
            hint = "load it first: load_adapter, or --adapter NAME=FOLDER" if self.slots else _BUILD
            raise UsageError(f"adapter: received {name!r}, expected the name of a loaded adapter ({known})", hint=hint)
        return found

    def per_prompt(self, names: object, prompts: int) -> list[LoadedAdapter | None]:
        """Return the adapter of each prompt. names: one name, or None, for all, or a sequence with one for each. Raise
        UsageError as `find`, and for another number of names."""
        if not isinstance(names, list | tuple):
            return [self.find(names)] * prompts
        if len(names) != prompts:
            raise UsageError(
                f"adapter: received {len(names)} names for {prompts} prompts, expected one for each",
                hint="None is the base",
            )
        return [self.find(name) for name in names]

    def check(self, adapter: LoadedAdapter | None) -> None:
        """Raise UsageError if an adapter that `find` gave has been unloaded since."""
        if adapter is not None and self._loaded.get(adapter.name) is not adapter:
            raise UsageError(
                f"adapter {adapter.name!r}: it was unloaded before this generation began, expected a loaded one",
                hint="unload it when the generations that use it have ended",
            )

    def load(self, name: object, folder: Path) -> None:
        """Load an adapter, as PEFT writes it, into a free slot.

        Raise UsageError for a name that cannot be taken and without a free slot; CheckpointError for files that are
        damaged, of another base, or not finite; UnsupportedModelError for what cannot be chosen at run time, with the
        module. Nothing is changed then.
        """
        self._check_name(name)
        assert isinstance(name, str)
        matrices = self._matrices(read_adapter(folder), folder)
        taken = {each.slot for each in self._loaded.values()}
        slot = next(slot for slot in range(1, self.slots + 1) if slot not in taken)
        digest = hashlib.sha256()
        for buffer, shape in self._shapes.items():
            rows = matrices.get(buffer)
            line = self._engine.host_view(buffer, shape)[slot]
            line[:] = 0
            if rows is not None:
                line[: len(rows)] = rows
                digest.update(f"{buffer} {rows.shape} ".encode() + rows.tobytes())
        self._loaded[name] = LoadedAdapter(name, slot, digest.hexdigest())

    def unload(self, name: object) -> None:
        """Free the slot of an adapter. Raise UsageError for a name that is not loaded."""
        found = self.find(name)
        if found is None:
            raise UsageError("adapter: received None, expected the name of a loaded adapter", hint="the base stays")
        del self._loaded[found.name]

    def _check_name(self, name: object) -> None:
        if not self.slots:
            raise UsageError(f"adapter {name!r}: received it for a bundle without slots for adapters", hint=_BUILD)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise UsageError(
                f"adapter: received the name {name!r}, expected letters, digits, '.', '_' and '-', at most 64",
                hint="for example poet",
            )
        if name in self._loaded:
            raise UsageError(f"adapter {name!r}: it is loaded already, expected another name", hint="unload it first")
        if len(self._loaded) == self.slots:
            raise UsageError(
                f"adapter {name!r}: all {self.slots} slots are taken ({', '.join(self._loaded)}), expected a free one",
                hint="unload one, or build the bundle with more adapters.slots",
            )

    def _matrices(self, adapter: Adapter, folder: Path) -> dict[str, Array]:
        """Return buffer -> rows [r, K] or [r, N], with the scale in the second. Raise as `load`."""
        found = dict[str, Array]()
        for change in adapter.low_rank:
            found |= self._of_module(change, folder)
        kept = next(iter([*adapter.replaced, *adapter.rows]), None)
        if kept is not None:
            raise _unsupported(folder, f"trained weights of {kept}", "low-rank changes alone", _MERGE)
        return found

    def _of_module(self, change: LowRank, folder: Path) -> dict[str, Array]:
        names = [f"{ADAPTER_PREFIX}{change.module}{part}" for part in ADAPTER_PARTS]
        kind = (
            "DoRA" if change.magnitude else "a bias" if change.bias else "an embedding" if change.is_embedding else ""
        )
        if kind:
            raise _unsupported(folder, f"{kind} for {change.module}", "LoRA of linear layers", _MERGE)
        if names[0] not in self._shapes:
            raise _unsupported(folder, f"a change of {change.module}", self._modules(), _BUILD)
        rank, widths = change.a.shape[0], tuple(self._shapes[name][2] for name in names)
        if (change.a.shape[1], change.b.shape[0]) != widths:
            raise CheckpointError(
                f"{folder}: received a change of {change.module} from {change.a.shape[1]} to {change.b.shape[0]} "
                f"numbers, expected {widths[0]} to {widths[1]}, as this bundle's target has",
                hint="give an adapter of this target",
            )
        if rank > self.rank:
            raise _unsupported(
                folder, f"rank {rank} for {change.module}", f"at most {self.rank}, as the bundle has",
                "build the bundle with a larger adapters.rank",
            )  # fmt: skip
        a, b = (read_floats(folder / ADAPTER_WEIGHTS, tensor) for tensor in (change.a, change.b))
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            scaled = np.float32(change.scale) * b.T
        for rows in (a, scaled):
            if not np.isfinite(rows).all():
                raise CheckpointError(
                    f"{folder}: received numbers of {change.module} that are infinite or no numbers, expected finite "
                    "ones",
                    hint="the training has failed: take an earlier checkpoint",
                )
        return dict(zip(names, (a, np.ascontiguousarray(scaled)), strict=True))

    def _modules(self) -> str:
        ends = dict.fromkeys(name.rpartition(".")[0].rpartition(".")[2] for name in self._shapes)
        return f"changes of the modules that the bundle has slots for: {', '.join(ends)}"


def read_named(given: Sequence[str]) -> dict[str, Path]:
    """Return name -> folder of texts NAME=FOLDER. Raise UsageError for another form, and for a name twice."""
    found = dict[str, Path]()
    for text in given:
        name, equals, folder = text.partition("=")
        if not equals or not folder or name in found:
            problem = "the name twice" if name in found else "no NAME=FOLDER"
            raise UsageError(f"--adapter {text}: received {problem}, expected NAME=FOLDER", hint="--adapter poet=poet/")
        found[name] = Path(folder)
    return found


def _unsupported(folder: Path, received: str, expected: str, hint: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{folder}: received {received}, expected {expected}", hint=hint)
