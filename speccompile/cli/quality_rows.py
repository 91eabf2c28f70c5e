"""Tables of what a build has measured of quality, for `inspect`."""

from typing import Any

from speccompile.bundle.acceptance import MeasuredAcceptance
from speccompile.bundle.caches import caches_in


def quality_title(quality: dict[str, Any]) -> str:
    """Return the title of the table: which texts, and how many tokens."""
    title = f"quality of the target on {quality['file']}: {quality['texts']} texts, {quality['tokens']} tokens"
    return title + (f", KL divergence over {quality['kl_tokens']}" if quality["kl_tokens"] < quality["tokens"] else "")


def quality_rows(quality: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for transformers, one for quantized caches, and one for each target that was compared with it."""
    rows: list[tuple[str, ...]] = [
        ("engines", "precision", "perplexity", "same best token", "KL divergence"),
        ("transformers", "float32", f"{quality['perplexity']:.4f}"),
    ]
    if cache := quality.get("cache"):
        rows.append((
            f"transformers with {caches_in(cache['dtype'])}", "float32", f"{cache['perplexity']:.4f}",
            f"{100 * cache['same_argmax']:.2f} %",
            f"{cache['kl_divergence']:.6f} nats",
        ))  # fmt: skip
    for found in quality["engines"]:
        block = f", {found['block_size']} weights a scale" if found["block_size"] else ""
        rows.append((
            ", ".join(found["engines"]), found["precision"] + block, f"{found['perplexity']:.4f}",
            f"{100 * found['same_argmax']:.2f} %", f"{found['kl_divergence']:.6f} nats",
        ))  # fmt: skip
    return rows


def acceptance_rows(quality: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return rows of the mean acceptance length and the rate at each depth; none without quantized caches."""
    found = [
        (row["engines"], word, MeasuredAcceptance(**row[word]))
        for row in quality.get("cache_acceptance", ())
        for word in ("quantized", "float")
    ]
    if not found:
        return []
    depths = (f"depth {depth}" for depth in range(1, len(found[0][2].tried) + 1))
    rows: list[tuple[str, ...]] = [("engines", "caches", "tokens a round", *depths)]
    for engines, word, each in found:
        rates = (f"{100 * yes / of:.1f} %" if of else "-" for yes, of in zip(each.accepted, each.tried, strict=True))
        rows.append((", ".join(engines), word, f"{each.mean_length:.3f}", *rates))
    return rows
