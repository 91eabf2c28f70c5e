"""One line that says what a bundle is."""

from speccompile.bundle.manifest import EngineEntry, Manifest


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
