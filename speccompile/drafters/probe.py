"""How often a head is right, teacher-forced on text of its target: as its files say it is to be read, and otherwise.

Nearly every mistake about a head only makes it draft badly. So its first drafts are counted on text that the target
itself would write, beside a control whose features are shifted by one token, and beside other readings of conventions
that are known to be written down wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
from torch import nn

from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.compiler.prove.graphs import eager_taps
from speccompile.drafters import module_of
from speccompile.drafters.context import DrafterContext
from speccompile.plan.head import HeadPlan
from speccompile.progress import LOGGER
from speccompile.runtime.devices.engine import Array

DEPTH = 3
"""Drafts after one another that are counted."""
MOST_POSITIONS, LARGE_POSITIONS = 160, 32
"""Places in the texts at which it drafts; the second of heads above LARGE bytes, so that it takes seconds."""
LARGE = 200_000_000
CLEARLY = 3.0
"""Standard errors by which another reading must be better before anybody is told."""
LEAST = 0.05
"""Share of drafts by which it must be better at least."""
SHIFTED = "features shifted by one token"


@dataclass(frozen=True)
class Text:
    """Tokens of which those from `start` on are the target's own."""

    tokens: list[int]
    start: int


@dataclass(frozen=True)
class DepthAccuracy:
    """Drafts at depth 1, 2, .. that were the target's token after those before them, and how many were made."""

    right: tuple[int, ...]
    positions: int

    @property
    def rates(self) -> list[float]:
        return [round(count / self.positions, 4) for count in self.right]

    def beats(self, other: "DepthAccuracy") -> bool:
        """Whether at some depth it is right clearly more often than the other, on the same text."""
        for ours, theirs in zip(self.right, other.right, strict=True):
            share = (ours + theirs) / (2 * self.positions)
            error = sqrt(max(2 * share * (1 - share) / self.positions, 1e-9))
            difference = (ours - theirs) / self.positions
            if difference > max(LEAST, CLEARLY * error):
                return True
            if difference < -LEAST:
                return False
        return False


def compare_interpretations(site: DrafterContext, model: nn.Module, texts: Sequence[Text]) -> dict[str, Any] | None:
    """Hit rates by depth, for the proof: of the head as it was read, of the control, and of every other reading.

    None where the target wrote too little. Warns, with both figures, where another reading fits clearly better.
    """
    places = _places(texts, site.head)
    if not places:
        return None
    site = replace(site, model=model)
    readings: dict[str, HeadPlan] = getattr(module_of(site.head.kind, "reference"), "readings", lambda *_: {})(
        site.head, model.config.num_hidden_layers
    )

    @cache
    def features(taps: tuple[str, ...]) -> list[Array]:
        """Of every text; readings that differ in a switch have the same."""
        return [eager_taps(model, text.tokens, taps) for text in texts]

    read = features(site.head.taps)
    own = _hits(site, texts, places, site.head, read)
    control = _hits(site, texts, places, site.head, [np.roll(each, 1, axis=0) for each in read])
    others = {words: _hits(site, texts, places, each, features(each.taps)) for words, each in readings.items()}
    better = {words: found for words, found in others.items() if found.beats(own)}
    for words, found in better.items():
        LOGGER.warning(
            "the head drafts better if read otherwise: with %s its drafts are right in %s of %d places, by depth; "
            "as it was read (%s) in %s; set drafter.taps or drafter.switches where that is what it was trained for",
            words, _shares(found), own.positions, site.head.dialect, _shares(own),
        )  # fmt: skip
    return {
        "positions": own.positions,
        "hit_rate": own.rates,
        "control": {"reading": SHIFTED, "hit_rate": control.rates},
        "readings": {words: found.rates for words, found in others.items()},
        "better": sorted(better),
    }


def _shares(hits: DepthAccuracy) -> str:
    return ", ".join(f"{100 * rate:.0f} %" for rate in hits.rates)


def _places(texts: Sequence[Text], head: HeadPlan) -> list[tuple[int, int]]:
    """(text, place): the tokens up to this place are known, the next DEPTH are the target's. As many from every text as
    it has, evenly thinned out."""
    depth = min(DEPTH, head.tokens or DEPTH)
    found = [
        (number, place)
        for number, text in enumerate(texts)
        for place in range(max(text.start, 1), len(text.tokens) - depth)
    ]
    most = LARGE_POSITIONS if head.weight_bytes > LARGE else MOST_POSITIONS
    return [found[index] for index in np.linspace(0, len(found) - 1, min(most, len(found))).astype(int)]


def _hits(
    site: DrafterContext,
    texts: Sequence[Text],
    places: Sequence[tuple[int, int]],
    head: HeadPlan,
    features: Sequence[Array],
) -> DepthAccuracy:
    """features: of every text, as the head reads them."""
    depth = min(DEPTH, head.tokens or DEPTH)
    drafter = replace(site.plan.drafter, head=head, tokens=max(site.plan.drafter.tokens, depth))
    there = replace(site, plan=replace(site.plan, drafter=drafter))
    (teacher,) = module_of(head.kind, "reference").teachers(there)
    right = [0] * depth
    for number, place in places:
        tokens = texts[number].tokens
        fed = DrafterInputs(tokens[: place + 1], features[number][:place], tokens[1 : place + 1])
        logits = teacher(fed, tokens[place + 1 : place + depth])
        for step in range(min(depth, len(logits))):
            right[step] += int(logits[step].argmax()) == tokens[place + 1 + step]
    return DepthAccuracy(tuple(right), len(places))


def shifted_taps(head: HeadPlan, layers: int) -> dict[str, HeadPlan]:
    """The readings in which every tap lies a layer earlier or later, where there are such layers."""
    found = {}
    for words, step in (("taps a layer earlier", -1), ("taps a layer later", 1)):
        moved = [_moved(tap, step, layers) for tap in head.taps]
        taps = tuple(tap for tap in moved if tap is not None)
        if len(taps) == len(head.taps):
            found[words] = replace(head, taps=taps)
    return found


def _moved(tap: str, step: int, layers: int) -> str | None:
    """A tap at another boundary between layers; None where there is none."""
    place, _, side = tap.rpartition(".")
    if place == "norm":
        return None
    boundary = int(place.partition(".")[2]) + (side == "output") + step
    if not 0 <= boundary <= layers:
        return None
    return f"layers.{boundary}.input" if boundary < layers else f"layers.{layers - 1}.output"


def flipped(head: HeadPlan, *names: str) -> dict[str, HeadPlan]:
    """The readings in which one of these switches is set the other way."""
    return {
        f"{name}: {str(not head.switches[name]).lower()}": replace(
            head, switches=dict(head.switches) | {name: not head.switches[name]}
        )
        for name in names
    }


def before_norm(head: HeadPlan, layers: int) -> dict[str, HeadPlan]:
    """The reading in which a head that reads what the final norm gives reads what enters it."""
    last = f"layers.{layers - 1}.output"
    return {"features before the final norm": replace(head, taps=tuple(last for _ in head.taps))}
