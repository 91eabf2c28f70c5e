"""Lookups of the drafters' graphs in plain Python: in addition to a drafter's own drafts, and for its drafts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from speccompile.compiler.prove.drafts import (
    FORWARDS,
    HINT,
    Case,
    CaseFilter,
    ReferenceLogits,
    cases,
    check_equal,
    report,
    tolerance_of,
)
from speccompile.compiler.prove.reference import Logits
from speccompile.compiler.prove.schedule_runs import Recording
from speccompile.errors import ProofError
from speccompile.tree import Tree


@dataclass(frozen=True)
class Lookup:
    """A lookup: a draft for every node of the tree, after a match of at most `ngram` tokens, and in a gate of at least
    `match`."""

    tree: Tree
    ngram: int
    match: int = 1

    def find(self, text: Sequence[int]) -> tuple[list[int], int]:
        """Return the tokens after the longest matches of the text's end, of equal ones the latest: the best along the
        tree's first path, the next along the second, and so on; and the length of the best match, 0 without one.

        A copy that reaches the end repeats its own tokens. Paths without a match copy the best one.
        """
        ends = self._matches(text)
        if not ends:
            return [], 0
        drafts: dict[int, int] = {}
        leaves = [lineage for lineage, its in zip(self.tree.root_paths, self.tree.children, strict=True) if not its]
        for number, lineage in enumerate(leaves):
            _, end = ends[number] if number < len(ends) else ends[0]
            longer = list(text)
            for node in lineage[1:]:
                longer.append(longer[len(longer) - (len(text) - 1 - end)])
                drafts.setdefault(node, longer[-1])
        return [drafts[node] for node in range(1, self.tree.drafts + 1)], ends[0][0]

    def _matches(self, text: Sequence[int]) -> list[tuple[int, int]]:
        """Return (length, end position) of every match, the best first."""
        last, found = len(text) - 1, []
        for end in range(last):
            size = 0
            while size < min(self.ngram, end + 1) and text[end - size] == text[last - size]:
                size += 1
            found += [(size, end)] if size else []
        return sorted(found, reverse=True)


class CascadeView:
    """A `CaseFilter` that checks the looked-up drafts next to a drafter's own, and removes them."""

    def __init__(self, own: Tree, then: Lookup | None, gate: Lookup | None) -> None:
        """own: of the drafter's own drafts; then: of a tail after them; gate: replaces them."""
        self.own, self.then, self.gate = own, then, gate

    def __call__(self, case: Case) -> Case | None:
        total, known = int(case.outputs["next_total"][case.row]), case.fed.known
        if self.gate is not None:
            found, matched = self.gate.find(known)
            if matched >= self.gate.match:
                _check_found(case, 0, found, total - 1)
                return None
        count = total - 1 if self.then is None else self._before_tail(self.then, case, total - 1)
        if self.own.is_chain and count > self.own.drafts:
            raise ProofError(f"{case.where}: {count} drafts are not looked up, expected {self.own.drafts}", hint=HINT)
        return _drop_first(case, self.own.drafts, count)

    def _before_tail(self, then: Lookup, case: Case, total: int) -> int:
        """Return the number of drafts before the tail, which exists whenever there is a match."""
        known, drafts, size = case.fed.known, case.tokens[1 : total + 1], then.tree.drafts
        count = total - size
        if count >= 0:
            found, _ = then.find([*known, *drafts[:count]])
            if found == drafts[count:]:
                _check_found(case, count, found, size)
                return count
        # A tail is a copy: its last token has occurred before, and so has a match.
        found, matched = then.find([*known, *drafts])
        if matched:
            raise ProofError(
                f"{case.where}: {total} drafts without the tail that a lookup finds behind them, {found}, or with "
                f"another one: {drafts[max(count, 0) :]}",
                hint=HINT,
            )
        return total


def _check_found(case: Case, start: int, found: Sequence[int], count: int) -> None:
    """Check that drafts `start` and on are these, no more and no fewer, and have probability one if drafts are
    sampled."""
    check_equal(case, "the number of drafts that are looked up", count, len(found))
    drafts = case.tokens[1 + start : 1 + start + count]
    if drafts != list(found):
        raise ProofError(f"{case.where}: {drafts} are looked up behind {start} drafts, expected {found}", hint=HINT)
    if "next_ids" not in case.outputs:
        return
    for node, token in enumerate(found, start):
        ids, probs = (case.outputs[name][case.row, node] for name in ("next_ids", "next_probs"))
        if ids[0] != token or probs[0] != 1 or probs[1:].any() or len(set(ids.tolist())) < len(ids):
            raise ProofError(
                f"{case.where}, node {node}: candidates {ids.tolist()} of probabilities {probs.tolist()}, expected "
                f"{token} alone, which is certain",
                hint=HINT,
            )


def _drop_first(case: Case, most: int, count: int) -> Case:
    """Return the case with only the first `count` drafts, of at most `most`."""
    cut = {"next_window": most + 1, "next_ids": most, "next_probs": most}
    outputs = {name: value[:, : cut[name]] if name in cut else value for name, value in case.outputs.items()}
    totals = outputs["next_total"].copy()
    totals[case.row] = 1 + count
    return replace(case, outputs=outputs | {"next_total": totals})


@dataclass(frozen=True)
class DraftedFor:
    """A lookup that drafts for a language model: `passes` of that model, each over looked-up tokens."""

    lookup: Lookup
    passes: int
    lenience: float


def check_drafted_for(
    driven: Recording,
    each: ReferenceLogits,
    inner: DraftedFor,
    tokens: int,
    max_length: int,
    view: CaseFilter | None = None,
) -> dict[str, Any]:
    """Check a chain of at most `tokens` drafts by a model that verifies looked-up tokens: their number, and the tokens,
    follow transformers' logits. Raise ProofError."""
    compared = spent = 0
    for case in filter(None, map(view, cases(driven)) if view else cases(driven)):
        if spent >= FORWARDS:
            break
        if len(case.fed.known) + tokens + inner.lookup.tree.drafts <= max_length:
            drafts = case.tokens[1 : int(case.outputs["next_total"][case.row])]
            _check_passes(case, drafts, each(case.fed, drafts), inner, tokens)
            spent, compared = spent + 1, compared + len(drafts)
    return report(driven, compared)


def _check_passes(case: Case, drafts: list[int], logits: Logits, inner: DraftedFor, tokens: int) -> None:
    place = 0
    for _ in range(inner.passes):
        place = _check_said(case, drafts, logits, place, tokens)
        for guess in inner.lookup.find([*case.fed.known, *drafts[:place]])[0]:
            if place >= tokens:
                break
            behind = float(logits[place].max() - logits[place][guess]) if guess < logits.shape[1] else np.inf
            surplus, is_taken = behind + float(np.log(inner.lenience)), drafts[place : place + 1] == [guess]
            limit = tolerance_of(case, logits[place])
            if not (surplus <= limit if is_taken else surplus >= -limit):
                raise ProofError(
                    f"{case.where}: draft {place + 1}, token {guess}, was looked up and {'' if is_taken else 'not '}"
                    f"taken; transformers' logit lies {behind:.3g} below the best",
                    hint=HINT,
                )
            if not is_taken:
                break
            place += 1
    place = _check_said(case, drafts, logits, place, tokens)
    check_equal(case, "the number of drafts", len(drafts), place)


def _check_said(case: Case, drafts: list[int], logits: Logits, place: int, tokens: int) -> int:
    """Check that the draft at a position is the model's own best token; return the next position."""
    if place >= tokens:
        return place
    if place >= len(drafts):
        raise ProofError(f"{case.where}: {len(drafts)} drafts, expected {place + 1} at least", hint=HINT)
    margin = float(logits[place].max() - logits[place][drafts[place]])
    if not margin <= tolerance_of(case, logits[place]):
        raise ProofError(
            f"{case.where}: draft {place + 1} is token {drafts[place]}, transformers' is {logits[place].argmax()}; "
            f"their logits lie {margin:.3g} apart",
            hint=HINT,
        )
    return place + 1
