"""One line that says what a bundle is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speccompile.bundle.manifest import EngineEntry, Manifest

_LONGEST = 80
"""Maximum number of characters of a value in a message."""


def describe_first(arguments: Sequence[Any]) -> str:
    """Return the first argument of a call, or that there is none, for a message."""
    if not arguments:
        return "nothing"
    first = arguments[0]
    return f"the path {str(first)!r}" if isinstance(first, str | Path) else repr(first)[:_LONGEST]


def describe(manifest: Manifest, entry: EngineEntry, *, closed: bool = False) -> str:
    """Return name, target, drafter, engine, decoding, capacity and batch size of an open bundle."""
    target, drafter = (manifest.plan.get(part, {}) for part in ("target", "drafter"))
    architecture = target.get("facts", {}).get("architecture", "a target")
    kind = drafter.get("kind", "a drafter") if manifest.tokens else "no drafter"
    drafts = f" ({manifest.tokens} draft tokens)" if manifest.tokens else ""
    precision = entry.precision.get("target")
    parts = [
        f"{architecture} with {kind}{drafts}",
        f"{entry.name}{f' in {precision}' if precision else ''}",
        f"{manifest.decoding} decoding",
        f"{manifest.max_length} tokens",
        f"batch {manifest.batch_size}",
    ]
    return f"<Bundle {manifest.name}: {', '.join(parts)}{', closed' if closed else ''}>"
