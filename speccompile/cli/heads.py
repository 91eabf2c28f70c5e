"""Text about heads: the contents of a head's folder, and its accuracy by depth."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from speccompile.plan.head import HeadPlan


def found_rows(head: "HeadPlan") -> list[tuple[str, str]]:
    """Return rows of a head folder's contents and of the evidence for its dialect."""
    found = {
        "folder": str(head.folder),
        "dialect": f"{head.dialect}, by {head.evidence}",
        "taps": ", ".join(head.taps) or "none",
        "layers": str(head.layers.count if head.layers else 0),
        "vocabulary": f"{head.draft_vocabulary_size} of {head.vocabulary_size} tokens",
        "drafts": "any number" if head.tokens is None else f"at most {head.tokens} after one another",
        "made for": head.base or "unsaid",
        "weights": f"{head.weight_bytes / 1e6:.1f} MB",
    }
    switches = [(f"  {name}", _word(value)) for name, value in head.switches.items()]
    return [*((f"  {name}", value) for name, value in found.items()), *switches]


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def hit_title(hits: dict[str, Any]) -> str:
    return f"hit rate of the head by depth, teacher-forced at {hits['positions']} places of the target's own text"


def accuracy_rows(hits: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return accuracy at depth 1, 2, .. of the head as configured, of the control, and of alternative readings."""
    rows = [("as its files say", *_shares(hits["hit_rate"])), _row(hits["control"]["reading"], hits["control"])]
    for words, rates in hits["readings"].items():
        better = ("clearly better: set drafter.taps or drafter.switches",) if words in hits["better"] else ()
        rows.append((words, *_shares(rates), *better))
    return rows


def _row(words: str, found: dict[str, Any]) -> tuple[str, ...]:
    return words, *_shares(found["hit_rate"])


def _shares(rates: list[float]) -> tuple[str, ...]:
    return tuple(f"{100 * rate:.0f} %" for rate in rates)
