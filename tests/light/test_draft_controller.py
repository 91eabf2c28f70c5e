"""Check what the policy is told of slots, and what drafters read again."""

from types import SimpleNamespace

import pytest

from tests.light.fake_bundle import toy_bundle
from tests.light.test_drafting import KINDS


class Asked:
    """A policy that notes which sequences it is told of."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def begin(self, prompt: int, max_new_tokens: int) -> int:
        self.told.append(("begin", prompt, max_new_tokens))
        return 3

    def join(self, prompt: int, max_new_tokens: int) -> None:
        self.told.append(("join", prompt, max_new_tokens))

    def record_batch_size(self, rows: int) -> None:
        self.told.append(rows)


def waiting(prompt: int, max_new_tokens: int) -> SimpleNamespace:
    """Return a slot that was admitted and has not been drafted for."""
    sequence = SimpleNamespace(prompt=[1] * prompt, max_new_tokens=max_new_tokens)
    return SimpleNamespace(speculative=True, fixed_draft_length=False, is_tracked=False, sequence=sequence)


def test_the_policy_is_told_who_begins_and_who_joins():
    drafting = toy_bundle(batch_size=3)._loop.drafting
    drafting.policy = asked = Asked()  # type: ignore[assignment]
    first, second, third = waiting(4, 9), waiting(6, 2), waiting(5, 7)
    assert [drafting.window_limit(slots) for slots in ([first, second], [first, second], [first, third])] == [3] * 3
    assert [told for told in asked.told if not isinstance(told, int)] == [("begin", 6, 9), ("join", 5, 7)]


@pytest.mark.parametrize(("in_turn", "expected"), [(True, 7), (False, 4)])
def test_slots_that_catch_up_in_turn_cost_a_sum(in_turn, expected, monkeypatch):
    drafting = toy_bundle(batch_size=2)._loop.drafting
    monkeypatch.setattr(drafting, "_rounds", SimpleNamespace(supports_batch_slices=in_turn))
    assert drafting._catch_up_tokens([3, 4]) == expected


@pytest.mark.parametrize(("kind", "kept"), [("chain", 5), ("taps", 5), ("pairs", 4)])
def test_what_a_drafter_paired_with_another_token_is_read_again(kind, kept):
    drafting = toy_bundle(**KINDS[kind])._loop.drafting
    assert drafting.kept_length(SimpleNamespace(drafter_length=9), 5) == kept


def test_a_window_is_as_wide_as_the_drafts_of_its_slots():
    """Count drafts in a window whose graph also counts those of slots that use none."""
    drafting = toy_bundle(batch_size=3)._loop.drafting
    drafting._rounds.n_total[:] = [5, 3, 2]
    slots = [SimpleNamespace(index=index, has_drafts=index > 0) for index in range(3)]
    assert [drafting.width(slots, wanted) for wanted in (5, 2, 1)] == [3, 2, 1]
    assert drafting.width(slots[:1], 5) == 1
