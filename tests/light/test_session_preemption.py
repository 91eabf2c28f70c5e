"""Preempted sequences go on from the folder of sessions, and a full queue takes those that preempt."""

import time
from contextlib import nullcontext

import pytest

from speccompile.errors import OverloadedError
from speccompile.runtime.rounds.decode_loop import DecodeLoop
from speccompile.runtime.sessions import SessionKey, Sessions
from speccompile.serving.scheduler import Limits, SessionFolder
from speccompile.serving.scheduler.scheduler import Scheduler
from tests.light.fake_bundle import toy_bundle
from tests.light.test_rows import KINDS
from tests.light.test_serving import finish, scheduler
from tests.light.test_session_folder import PROMPT


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "drawn" not in kind])
def test_a_preempted_text_goes_on_from_its_file(kind, tmp_path, monkeypatch):
    """Overwrite its slot meanwhile: tokens that are not in the file would be read again."""
    make, reused, resumable = {**KINDS[kind], "batch_size": 1}, [], DecodeLoop.resumable

    def noted(loop, content, row, **options):
        reused.append(resumable(loop, content, row, **options))
        return reused[-1]

    monkeypatch.setattr(DecodeLoop, "resumable", noted)
    bundle, expected = toy_bundle(**make), toy_bundle(**make).generate(PROMPT, max_new_tokens=30)
    bundle._sessions = Sessions(bundle._loop, bundle.manifest, SessionKey({"target weights": "a"}, "d"))
    scheduler = Scheduler(bundle, Limits(scheduling_policy="priority"), sessions=SessionFolder(tmp_path))
    slow = scheduler.submit(PROMPT, max_new_tokens=30, priority=1)
    for _ in range(6):
        scheduler.step()
    scheduler.submit([7, *PROMPT], max_new_tokens=3)
    scheduler.step()
    deadline = time.monotonic() + 20  # a file is written beside the rounds, and only behind the prompt
    while time.monotonic() < deadline and not any(
        len(bundle._sessions.start(file).tokens) > len(PROMPT) for file in tmp_path.glob("[!.]*")
    ):
        time.sleep(0.001)
    while not scheduler.is_idle:
        scheduler.step()
    (answer,) = slow.generations()
    assert answer.token_ids == expected.token_ids
    assert answer.cached_tokens == 0, "what it read itself before it was preempted is no cached part of its prompt"
    assert reused[-1] > len(PROMPT) or "states" in kind  # a file of recurrent states serves whole or not at all
    scheduler.close()


@pytest.mark.parametrize(
    ("running", "submitted"),
    [
        ([5], [(5, ""), (6, "1 requests"), (5, "1 requests"), (1, ""), (0, "2 requests")]),
        ([5, 0], [(5, ""), (1, ""), (2, "2 requests"), (-1, "")]),
    ],
    ids=["one slot", "two slots"],
)
def test_a_full_queue_takes_what_gets_the_slot_of_a_running_sequence(running, submitted):
    """Let the preempted sequence wait in its place, so that at most one batch waits beyond the limit. A later or less
    urgent one gets no slot that another waiting sequence will get."""
    made = scheduler(len(running), Limits(scheduling_policy="priority", requests=1))
    taken = [made.submit(PROMPT, priority=priority, max_new_tokens=20) for priority in running[:1]]
    made.step()
    taken += [made.submit(PROMPT, priority=priority, max_new_tokens=20) for priority in running[1:]]
    while made.running < len(running):
        made.step()
    for priority, waiting in submitted:
        with pytest.raises(OverloadedError, match=waiting) if waiting else nullcontext():
            taken.append(made.submit(PROMPT, priority=priority, max_new_tokens=4))
    finish(made, *taken)
