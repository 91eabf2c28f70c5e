"""The adaptive draft length in C++ decides as Python's, whatever the times and accepted drafts."""

import json
import subprocess
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from random import Random
from typing import Any

import pytest

from speccompile.bundle.acceptance import MeasuredAcceptance
from speccompile.runtime.rounds.acceptance_rate import count_rounds
from speccompile.runtime.rounds.adaptive_length import AdaptiveDraftLength
from speccompile.runtime.rounds.tree_acceptance import accepted_by_width

ACCEPTS = {
    "chain": {width: width - 1 for width in range(1, 6)},
    "long chain": {width: width - 1 for width in range(1, 14)},
    "tree": {1: 0, 25: 4},
    "first nodes of a tree": {1: 0, 4: 1, 7: 2, 13: 3, 25: 4},
}
TREE_DEPTHS = {"first nodes of a tree": 5}
SESSIONS = 25


@dataclass
class Recorded:
    """Python's policy, and what it is told and answers. Lines are those of native/tests/adaptive_length.cpp."""

    policy: AdaptiveDraftLength
    events: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[Any] = field(default_factory=list)
    seen: set[object] = field(default_factory=set)

    def timed(self, run: object, seconds: float) -> float | None:
        """Return the time of a run, but for the first of its sizes."""
        is_first = run not in self.seen
        self.seen.add(run)
        return None if is_first else seconds

    def tell(self, name: str, *values: Any) -> None:
        self.events.append({name: list(values) if len(values) > 1 else values[0]})
        getattr(self.policy, name)(*values)

    def expect(self, dice: Random, depth: int) -> None:
        measured = drawn_acceptance(dice, depth)
        self.events.append({"expect": measured.to_json()})
        self.policy.expect(measured)

    def expect_times(self, dice: Random, accepts: dict[int, int], scale: float) -> None:
        """Tell times that another process may have measured: of some widths, or of one that is not offered."""
        widths = [max(accepts), *dice.sample(sorted(accepts)[1:], dice.randrange(len(accepts)))]
        times = {
            "autoregressive": scale, "windows": {str(width): scale * (1 + 0.1 * width) for width in widths},
            "drafting": scale * dice.random(), "catch_up": dice.choice([0.0, 0.01 * scale]),
        }  # fmt: skip
        if not dice.randrange(5):
            times["windows"]["99"] = scale
        self.events.append({"expect_times": times})
        self.policy.expect_times(times)

    def ask(self, name: str, *values: Any) -> Any:
        self.events.append({name: list(values) if len(values) > 1 else values[0] if values else None})
        self.decisions.append(getattr(self.policy, name)(*values))
        return self.decisions[-1]


def drawn_acceptance(dice: Random, depth: int) -> MeasuredAcceptance:
    rounds, chance = dice.choice([3, 60, 700]), dice.random()
    drafted = dice.randrange(rounds + 1)
    tokens = ((1 + sum(dice.random() < chance for _ in range(depth)), depth) for _ in range(drafted))
    return count_rounds([*tokens, *[(1, 0)] * (rounds - drafted)], depth, is_chain=True)


def load(recorded: Recorded, rows: int, room: int, dice: Random) -> int:
    """Let sequences end, or another one join, now and then. Return their number."""
    if dice.random() < 0.02:
        recorded.tell("join", dice.randrange(1, 300), room)
        rows += 1
    elif dice.random() < 0.02:
        rows = max(1, rows - dice.randrange(1, 3))
    recorded.tell("record_batch_size", rows)
    return rows


def accepted_of(
    accepts: dict[int, int], width: int, rows: int, is_tree: bool, chance: float, dice: Random
) -> list[int]:
    """Return what `rows` sequences accept of a window: of a tree, of a path through nodes that are drawn."""
    found = list[int]()
    for _ in range(rows):
        if is_tree:
            widths = [each for each in sorted(accepts)[1:] if each <= width]
            nodes = list(accumulate(dice.randrange(1, 6) for _ in range(5)))
            found += accepted_by_width(
                list(takewhile(lambda node: node < width and dice.random() < chance, nodes)), widths
            )
            continue
        count = 0
        while count < accepts[width] and dice.random() < chance:
            count += 1
        found.append(count)
    return found


def session(recorded: Recorded, accepts: dict[int, int], fused: bool, is_tree: bool, dice: Random) -> None:
    """Return generations of one session, as the loop makes them. Costs, rows and how far drafts can be trusted are
    drawn."""
    slope, draft, read = dice.choice([0.02, 0.1, 0.3]), dice.choice([0.05, 0.5, 2.0]), dice.choice([0.0, 0.005, 0.03])
    scale, noise, rows = dice.choice([1.0, 1e-3, 0.037]), dice.choice([0.0, 0.3]), dice.choice([1, 1, 3])

    def seconds(share: float) -> float:
        return scale * share * (1 + (dice.expovariate(1 / noise) if noise else 0.0))

    for _ in range(4):
        chance, found = dice.choice([0.0, 0.3, 0.6, 0.9, 1.0]), dice.choice([0.2, 1.0])
        prompt, room = dice.randrange(1, 300), dice.choice([16, 128, 600])
        behind, taken, width = prompt, 0, recorded.ask("begin", prompt, room)
        if width > 1:
            lost = seconds(prompt * read)
            recorded.tell("record_catch_up", prompt, lost, 0.0 if fused and dice.random() < 0.5 else lost)
            behind = 0
        while taken < room:
            rows = load(recorded, rows, room, dice)
            width = recorded.ask("next_width", behind)
            if width == 1:
                recorded.tell("record_autoregressive", recorded.timed(1, seconds(1.0)))
                behind, taken = behind + 1, taken + 1
                continue
            if behind:
                lost = seconds(draft + behind * read)
                recorded.tell("record_catch_up", behind, lost, lost)
            elif not fused:
                recorded.tell("record_draft", recorded.timed("draft", seconds(draft)))
            behind, drafted = 0, sum(dice.random() < found for _ in range(rows))
            verified = width if drafted else 1
            accepted = accepted_of(accepts, width, drafted, is_tree, chance, dice)
            recorded.tell(
                "record_verify",
                verified,
                recorded.timed(verified, seconds(1 + slope * (verified - 1))),
                accepted,
                rows - drafted,
            )
            taken += 1 + max(accepted, default=0)


def decisions_of(driver: str, events: list[dict[str, Any]]) -> list[Any]:
    lines = "".join(json.dumps(event) + "\n" for event in events)
    done = subprocess.run([driver], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
@pytest.mark.parametrize("kind", ACCEPTS)
def test_it_decides_as_in_python(native_build, kind, fused):
    accepts, depth, events, decisions = ACCEPTS[kind], TREE_DEPTHS.get(kind, 0), [], []
    for seed in range(SESSIONS):
        policy = AdaptiveDraftLength(accepts, fused=fused, tree_depth=depth)
        recorded = Recorded(policy, [{"new": accepts, "fused": fused, "tree_depth": depth}])
        if seed % 2:
            recorded.expect(Random(seed), depth or max(accepts.values()))
        if seed % 3:
            recorded.expect_times(Random(seed), accepts, 10.0 ** -(seed % 4))
        session(recorded, accepts, fused, bool(depth), Random(seed))
        recorded.ask("measured_times")
        recorded.ask("estimated_speedup", [0, 1, max(accepts) - 1, 99], 7)
        events += recorded.events
        decisions += recorded.decisions
    assert all(width in decisions for width in ((*accepts,) if depth else (1, max(accepts))))
    assert any(isinstance(each, dict) for each in decisions)
    assert decisions_of(str(native_build / "adaptive_length_lines"), events) == decisions
