"""Folder of sessions of a service: prefixes serve it after a restart, and nothing in the folder changes a token."""

import os
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from random import Random

import pytest

from speccompile.errors import UsageError
from speccompile.runtime.sessions import SessionKey, Sessions
from speccompile.runtime.shipped_prefixes import SUFFIX
from speccompile.serving.scheduler import Limits, SessionFolder
from tests.light.fake_bundle import toy_bundle
from tests.light.test_rows import KINDS

PROMPT = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3, 5, 0, 1, 2, 3, 4, 5, 6, 7, 1, 2]


@contextmanager
def restarted(folder, *, key="a", limit=1.0, limits=None, **make):
    """Yield a service of a new process's bundle over the folder."""
    bundle = toy_bundle(**make)
    bundle._sessions = Sessions(bundle._loop, bundle.manifest, SessionKey({"target weights": key}, "d"))
    with bundle.serve(limits, sessions=SessionFolder(folder, limit)) as service:
        yield service


def ask(service, prompt, **options):
    (generation,) = service.submit(prompt, **{"max_new_tokens": 8, **options}).generations()
    return generation


def files(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranges", [False, True])
def test_a_restart_changes_no_token(kind, ranges, tmp_path):
    dice, cached = Random(kind), 0
    make = {**KINDS[kind], "batch_size": 2, "ranges": ranges}
    said = [PROMPT]
    for seed in range(6):
        options = {"temperature": 1.0, "seed": seed} if "sampling" in make else {}
        options |= {"max_new_tokens": dice.randrange(1, 25), "autoregressive": dice.random() < 0.3}
        chosen = dice.choice(said)
        prompt = chosen[: dice.randrange(1, len(chosen) + 1)] + [dice.randrange(5) for _ in range(dice.randrange(9))]
        expected = toy_bundle(**make).generate(prompt, **options)
        with restarted(tmp_path, **make) as service:
            other = service.submit([dice.randrange(200) for _ in range(20)], max_new_tokens=30)
            found = ask(service, prompt, **options)
            other.generations()
        assert (found.token_ids, found.seed) == (expected.token_ids, expected.seed)
        said.append(prompt + found.token_ids)
        cached += found.cached_tokens
    assert cached or "states" in kind


def test_the_longest_prefix_is_found_after_a_restart(tmp_path):
    folder = tmp_path / "kept"
    with restarted(folder) as service:
        first = ask(service, PROMPT)
        assert first.cached_tokens == 0
        ask(service, [9] * 30)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert len(files(folder)) == 2
    with restarted(folder) as service:
        assert ask(service, [*PROMPT, 8, 8]).cached_tokens == len(PROMPT)
        assert ask(service, [*PROMPT, *first.token_ids, 8]).cached_tokens >= len(PROMPT) + len(first.token_ids) - 1
        assert ask(service, [*PROMPT, *first.token_ids, 8]).token_ids


def test_a_growing_text_replaces_its_file_and_a_known_one_is_not_written_again(tmp_path):
    with restarted(tmp_path) as service:
        first = ask(service, PROMPT)
    before = files(tmp_path)
    with restarted(tmp_path) as service:
        ask(service, PROMPT)
    assert files(tmp_path) == before
    with restarted(tmp_path) as service:
        ask(service, [*PROMPT, *first.token_ids, *range(20)])
    assert len(files(tmp_path)) == 1
    assert files(tmp_path) != before


@pytest.mark.parametrize(
    ("first", "second", "cached"),
    [({"salt": "mine"}, {"salt": "mine"}, 20), ({"salt": "mine"}, {"salt": "other"}, 0), ({}, {"reuse": False}, 0)],
)
def test_only_requests_with_the_same_salt_share_files(first, second, cached, tmp_path):
    with restarted(tmp_path) as service:
        ask(service, PROMPT, **first)
    assert all(b"mine" not in file.read_bytes() for file in tmp_path.iterdir())
    with restarted(tmp_path) as service:
        assert ask(service, PROMPT, **second).cached_tokens == cached


def test_requests_without_reuse_are_not_written(tmp_path):
    with restarted(tmp_path) as service:
        ask(service, PROMPT, reuse=False)
    with restarted(tmp_path, limits=Limits(reuse=False)) as service:
        ask(service, PROMPT)
    assert files(tmp_path) == []


def test_a_file_of_generate_serves_every_client_and_stays(tmp_path):
    bundle = toy_bundle()
    bundle._sessions = Sessions(bundle._loop, bundle.manifest, SessionKey({"target weights": "a"}, "d"))
    bundle.generate(PROMPT, max_new_tokens=1, session=tmp_path / f"system{SUFFIX}")
    with restarted(tmp_path, limit=1e-6) as service:
        assert ask(service, [*PROMPT, 7], salt="somebody").cached_tokens == len(PROMPT)
    assert files(tmp_path) == [f"system{SUFFIX}"]


def test_a_file_that_is_being_copied_serves_when_it_is_whole_and_a_link_serves_too(tmp_path):
    bundle, folder = toy_bundle(), tmp_path / "kept"
    bundle._sessions = Sessions(bundle._loop, bundle.manifest, SessionKey({"target weights": "a"}, "d"))
    bundle.generate(PROMPT, max_new_tokens=1, session=tmp_path / "whole")
    whole, copy = (tmp_path / "whole").read_bytes(), folder / f"system{SUFFIX}"
    with restarted(folder) as service:
        copy.write_bytes(whole[: len(whole) // 2])
        assert ask(service, PROMPT, salt="one").cached_tokens == 0
        with copy.open("ab") as file:
            file.write(whole[len(whole) // 2 :])
        assert ask(service, [*PROMPT, 7], salt="two").cached_tokens == len(PROMPT)
    copy.unlink()
    copy.symlink_to(tmp_path / "whole")
    with restarted(folder) as service:
        assert ask(service, [*PROMPT, 7], salt="three").cached_tokens == len(PROMPT)


WRONG = {
    "empty": (lambda content: b"", "not a session"),
    "foreign": (lambda content: b"hello, I am a text", "not a session"),
    "torn head": (lambda content: content[:100], "not a session"),
    "torn tokens": (lambda content: content[: content.index(b"}}") + 40], "truncated or damaged"),
    "torn states": (lambda content: content[:-1], "truncated or damaged"),
    "a flipped byte": (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "does not have the hash"),
    "newer": (lambda content: content.replace(b"session.1", b"session.2"), "received format"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_costs_a_line_and_no_token(change, message, tmp_path, caplog):
    with restarted(tmp_path) as service:
        expected = ask(service, PROMPT).token_ids
    (file,) = tmp_path.iterdir()
    file.write_bytes(change(file.read_bytes()))
    with restarted(tmp_path) as service:
        found = [ask(service, PROMPT, salt=salt) for salt in ("", "", "other")]
    assert [each.token_ids for each in found] == [expected] * 3
    assert found[0].cached_tokens == 0
    lines = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
    assert len(lines) == 1
    assert message in lines[0]
    assert str(file) in lines[0]


def test_files_of_another_bundle_and_things_that_are_no_files_are_passed_over(tmp_path, caplog):
    with restarted(tmp_path, key="b") as service:
        ask(service, PROMPT)
    (tmp_path / f"folder{SUFFIX}").mkdir()
    os.mkfifo(tmp_path / f"pipe{SUFFIX}")
    (tmp_path / "notes.txt").write_text("not mine")
    before = files(tmp_path)
    with restarted(tmp_path) as service:
        assert ask(service, PROMPT).cached_tokens == 0
    assert set(before) < set(files(tmp_path))
    lines = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
    assert len(lines) == 3
    assert any("with target weights 'b', expected 'a'" in line for line in lines)


def test_the_least_recently_used_files_make_room(tmp_path):
    with restarted(tmp_path) as service:
        ask(service, PROMPT)
    (size,) = (file.stat().st_size for file in tmp_path.iterdir())
    texts = [[number] * 21 for number in range(10, 13)]
    for age, text in enumerate(texts):
        with restarted(tmp_path, limit=3.5 * size / 1e9) as service:
            ask(service, text)
            ask(service, PROMPT)
        for file in tmp_path.iterdir():  # older than what comes next, in the order of their use
            os.utime(file, ns=(file.stat().st_mtime_ns - (10 - age) * 10**9,) * 2)
    assert len(files(tmp_path)) == 3
    with restarted(tmp_path) as service:
        assert [ask(service, text).cached_tokens > 0 for text in (PROMPT, *texts)] == [True, False, True, True]


def test_a_text_larger_than_the_limit_and_a_full_disk_cost_a_line(tmp_path, monkeypatch, caplog):
    with restarted(tmp_path, limit=1e-7) as service:
        ask(service, PROMPT)
    assert "exceed the limit" in caplog.text

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("speccompile.runtime.session_file.write_atomically", full)
    with restarted(tmp_path) as service:
        assert ask(service, PROMPT).token_ids
    assert "was not kept" in caplog.text
    assert "No space left on device" in caplog.text
    assert files(tmp_path) == []


def test_what_a_killed_process_left_is_removed_later(tmp_path):
    with restarted(tmp_path) as service:
        ask(service, PROMPT)
    (kept,) = files(tmp_path)
    for name, age in ((f".{kept}.123", 7200), (f".{kept}.124", 0)):
        (tmp_path / name).write_bytes(b"part")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    with restarted(tmp_path) as service:
        ask(service, [9] * 30)
    assert f".{kept}.123" not in files(tmp_path)
    assert f".{kept}.124" in files(tmp_path)


def test_two_services_share_a_folder_while_they_run(tmp_path):
    with restarted(tmp_path) as one, restarted(tmp_path) as other:
        assert ask(one, PROMPT).cached_tokens == 0
        for _ in range(200):
            if any(not name.startswith(".") for name in files(tmp_path)):  # one that is being written has a dot
                break
            time.sleep(0.01)
        assert ask(other, [*PROMPT, 1]).cached_tokens == len(PROMPT)
        for file in tmp_path.iterdir():
            file.unlink(missing_ok=True)  # one that was being written has another name now
        assert ask(other, [*PROMPT, 2]).token_ids


def test_several_processes_write_and_remove_at_once(tmp_path):
    program = (
        "import sys; from pathlib import Path; from tests.light.test_session_folder import restarted, ask\n"
        "from tests.light.toy_models import autoregressive\n"
        "for turn in range(30):\n"
        "    with restarted(Path(sys.argv[1]), limit=2e-5) as service:\n"
        "        prompt = [turn % 7] * 20 + [int(sys.argv[2])]\n"
        "        assert ask(service, prompt).token_ids == autoregressive(prompt, 8)\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, tmp_path, str(number)], stderr=subprocess.PIPE)
        for number in range(2)
    ]
    talk = [process.communicate(timeout=120)[1].decode() for process in running]
    assert [process.returncode for process in running] == [0, 0], talk
    assert not [name for name in files(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: SessionFolder(path / "a" / "b"), "the folder cannot be made: No such file"),
        (lambda path: SessionFolder(path / "file"), "the folder cannot be made: File exists"),
        (lambda path: SessionFolder(path, 0), "received 0 GB, expected more than 0"),
        (lambda path: SessionFolder(path, float("nan")), "received nan GB, expected more than 0"),
    ],
)
def test_a_wrong_folder_is_refused(make, message, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=message):
        make(tmp_path)


def test_a_folder_that_may_not_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="cannot be written to"):
        SessionFolder(tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "states" in kind])
def test_recurrent_states_go_on_from_whole_prompts(kind, tmp_path):
    """Keep a prompt's states when it was read, since rounds move them beyond the text."""
    make = {**KINDS[kind], "batch_size": 2}
    with restarted(tmp_path, **make) as service:
        answer = ask(service, PROMPT).token_ids
    turn, system = [*PROMPT, *answer, *range(20)], PROMPT
    for prompt, cached in (
        ([*system, 6, 6], len(system)),
        (system[:-1], 0),
        (turn, len(system)),
        ([*turn, 5], len(turn)),
    ):
        alone = kind != "states"  # else a drafter that needs the target has to read the text with it
        expected = toy_bundle(**make).generate(prompt, max_new_tokens=12)
        with restarted(tmp_path, **make) as service:
            found = ask(service, prompt, max_new_tokens=12, autoregressive=alone)
        assert found.token_ids == expected.token_ids
        assert found.cached_tokens >= cached


def test_no_mutation_of_a_beginning_is_more_than_refused(tmp_path):
    with restarted(tmp_path) as service:
        ask(service, PROMPT)
    (path,) = tmp_path.iterdir()
    good, dice, refused = path.read_bytes(), Random(3), 0
    bundle = toy_bundle()
    sessions = Sessions(bundle._loop, bundle.manifest, SessionKey({"target weights": "a"}, "d"))
    for _ in range(600):
        content = bytearray(good)
        start = dice.randrange(min(len(content), 1500))
        match dice.randrange(4):
            case 0:
                content[start] ^= 1 << dice.randrange(8)
            case 1:
                del content[start:]
            case 2:
                content[start:start] = dice.choice([b"-", b"9" * 20, b"null", b'"', b"[", b"{}", b"1e999"])
            case 3:
                content[start : start + 4] = dice.choice([b"-999", b"null", b"true", b"[[[[", b"0000"])
        path.write_bytes(content)
        try:
            tokens = sessions.start(path).tokens
            assert 0 < len(tokens) < bundle.manifest.max_length
        except UsageError:
            refused += 1
    assert 300 < refused < 600


def test_other_rows_decode_while_a_file_is_read(tmp_path, monkeypatch):
    with restarted(tmp_path, batch_size=2) as service:
        ask(service, PROMPT)
    is_open, read = threading.Event(), Sessions.read

    def slow(sessions, path, **options):
        assert is_open.wait(60)
        return read(sessions, path, **options)

    monkeypatch.setattr(Sessions, "read", slow)
    with restarted(tmp_path, batch_size=2) as service:
        running, waiting = (service.submit(prompt, max_new_tokens=30) for prompt in ([9, 8, 7], PROMPT))
        (first,) = running.generations()
        assert len(first.token_ids) == 30
        assert not is_open.is_set()
        is_open.set()
        (found,) = waiting.generations()
    assert found.cached_tokens > 0
    assert found.token_ids == toy_bundle(batch_size=2).generate(PROMPT, max_new_tokens=30).token_ids
