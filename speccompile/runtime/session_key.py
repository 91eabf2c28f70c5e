"""Facts on which the states in a session depend: a file with other facts is refused, and the differing one is named."""

import json
from dataclasses import dataclass
from pathlib import Path

from speccompile import __version__, contract, native
from speccompile.bundle.caches import cache_dtype
from speccompile.bundle.manifest import EngineEntry
from speccompile.bundle.reader import OpenedBundle
from speccompile.contract import COMPONENTS
from speccompile.machine.system import processor
from speccompile.runtime.rounds.rings import RingReach

SLIDING = "cache.sliding"
"""Name of the fact on the caches of layers that see a window."""


@dataclass(frozen=True)
class SessionKey:
    """Facts on which states depend. target: those of all states, by name; drafter: those of the drafter's own."""

    target: dict[str, str]
    drafter: str

    @classmethod
    def of(cls, opened: OpenedBundle, entry: EngineEntry, tokenizer: str, *, exact: bool) -> "SessionKey":
        """Return the key of an engine of a bundle. exact: windows of all widths give equal bits on this machine."""
        plan, files = opened.manifest.plan, opened.hashes.files
        weights = {name: _weights(files, f"{name}.") for name in COMPONENTS}
        if not weights["target"]:  # in the graphs themselves
            weights["target"] = ",".join(files[file].blake3 for file in sorted(entry.files.values()))
        precision = {name: entry.precision.get(name, "") for name in COMPONENTS}
        kernels = native.kernels() if entry.provider == "cpu" else None
        here = f"{entry.name} on {processor()} with {kernels or 'its own kernels'}"
        target = {
            "contract": str(contract.VERSION),
            "version": __version__,
            "build": _spelled(opened.lock.get("versions")),
            "target weights": weights["target"],
            "target": _spelled([_checkpoint(opened), precision["target"]]),
            "cache.dtype": cache_dtype(entry.graphs, COMPONENTS[0]),
            SLIDING: str(RingReach(opened.manifest)),
            "max_length": str(opened.manifest.max_length),
            "tokenizer": tokenizer,
            "vocabulary": str(opened.manifest.vocabulary_size),
            "machine": "any" if exact and kernels not in (None, "none") else here,
        }
        graphs = [entry.files[name] for name in ("draft", "step") if name in entry.files]
        drafter = [plan.get("drafter"), precision["drafter"], weights["drafter"], [files[f].blake3 for f in graphs]]
        return cls(target, _spelled(drafter))

    def of_adapter(self, adapter: str) -> dict[str, str]:
        """Return the facts for states of an adapter, by its key. A reader that knows no adapters refuses them."""
        weights = "target weights"
        return self.target | ({weights: f"{self.target[weights]} with {adapter}"} if adapter else {})


UNREAD_KEYS = ("facts", "reference", "commit", "revision", "files")
"""Keys of a plan's target that name and describe the checkpoint: hashes of its files stand for them."""
NO_MODEL = ("tokenizer", "generation_config", "special_tokens_map", "chat_template")
"""Beginnings of names of files that change no state."""


def _checkpoint(opened: OpenedBundle) -> list[object]:
    """Return the hashes of the target's files, the config's too, and what the recipe says of the target."""
    files = opened.lock.get("inputs", {}).get("target", {}).get("files", {})
    asked = opened.manifest.plan.get("target") or {}
    return [
        {name: hashed for name, hashed in files.items() if not name.startswith(NO_MODEL)},
        {key: value for key, value in asked.items() if key not in UNREAD_KEYS},
    ]


def _spelled(fact: object) -> str:
    return json.dumps(fact, ensure_ascii=False, sort_keys=True)


def _weights(files: object, prefix: str) -> str:
    named = {Path(name).name: record.blake3 for name, record in files.items() if name.startswith("graphs/")}  # type: ignore[attr-defined]
    return ",".join(f"{name} {named[name]}" for name in sorted(named) if name.startswith(prefix))
