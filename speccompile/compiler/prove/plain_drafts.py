"""Check drafts of methods without weights against a reference in plain Python, which reads the same rounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from speccompile.compiler.prove.drafts import HINT, Case, DrafterInputs
from speccompile.compiler.prove.schedule import ScheduledWindow
from speccompile.compiler.prove.schedule_runs import Recording
from speccompile.errors import ProofError
from speccompile.runtime.devices.engine import Array

SHOWN = 8
"""Number of tokens of the text that a message shows."""


@dataclass(frozen=True)
class SlotRound:
    """Round of one batch slot as a drafter reads it. known: the text and the bonus token; start: tokens committed
    before the round; width: of the round's window, over all batch slots. rows: the token at each row of logits, -1
    without one, and the target's best tokens after it. source: of a target with an encoder."""

    known: list[int]
    start: int
    width: int = 1
    rows: Sequence[tuple[int, list[int]]] = ()
    source: Sequence[int] = ()

    @property
    def path(self) -> list[int]:
        """Return the tokens that the round committed, and the bonus token; the latter alone of an idle batch slot."""
        return self.known[self.start :]


class PlainDrafts(NamedTuple):
    """Drafts of one batch slot. tokens: in the order of the window's nodes, None for a node that means nothing.
    parents: the node that each follows, 0 for the root; None for a constant tree."""

    tokens: Sequence[int | None]
    parents: list[int] | None = None


PlainDrafter = Callable[[Sequence[SlotRound]], list[PlainDrafts]]
"""A round of all batch slots -> drafts of each. It is called for all rounds in order, and may keep what it reads."""


def check_plain(driven: Recording, drafter: PlainDrafter) -> int:
    """Check all drafts of a recording, and return the number of compared tokens. Raise ProofError."""
    compared = 0
    for number, (step, window, outputs) in enumerate(driven.runs()):
        links = outputs | (driven.links[number] if driven.links else {})
        rounds = [_slot_round(driven, window, links, row) for row in range(len(window.fed))]
        for row, (slot, expected) in enumerate(zip(rounds, drafter(rounds), strict=True)):
            where = f"{driven.graph.name}, {driven.level}, window {step}, row {row}"
            case = Case(where, row, DrafterInputs(slot.known), window, outputs)
            compared += _check_slot(case, expected if window.fed[row] else PlainDrafts([]))
    return compared


def _slot_round(driven: Recording, window: ScheduledWindow, links: dict[str, Array], row: int) -> SlotRound:
    start, fed = window.committed[row], window.fed[row]
    path = window.values["path"][row, : fed + 1].tolist()
    best = links["successors"][row].tolist() if "successors" in links else []
    rows = list(zip(links["row_tokens"][row].tolist(), best, strict=True)) if best else []
    width = window.values["path"].shape[1] - 1
    return SlotRound([*driven.script.texts[row][:start], *path], start, width, rows, driven.script.source(row) or ())


def _check_slot(case: Case, expected: PlainDrafts) -> int:
    count = int(case.outputs["next_total"][case.row]) - 1
    drafts, wanted, parents = case.tokens[1 : 1 + count], list(expected.tokens), None
    if expected.parents is not None:
        parents = case.outputs["next_parents"][case.row, 1 : 1 + count].tolist()
    known = [each if each in (None, token) else token for token, each in zip(drafts, wanted, strict=False)]
    if count != len(wanted) or known != wanted or parents != expected.parents:
        nodes = ("", "") if parents is None else (f" at the parents {parents}", f" at {expected.parents}")
        raise ProofError(
            f"{case.where}: drafts {drafts}{nodes[0]} behind {case.fed.known[-SHOWN:]}, the method's reference drafts "
            f"{wanted}{nodes[1]}",
            hint=HINT,
        )
    return count
