"""Folders of sessions of the native server: prefixes are found after a restart, also those that the server in Python
has kept, and files that are damaged, foreign or too large cost no request."""

import os
import signal
from collections.abc import Callable

import pytest

from tests.light.serve_example import Running
from tests.light.test_cli_serve import ready
from tests.native.served import COMPLETIONS, folders, started

__all__ = ["folders"]

PROMPT = "a prompt of more than sixteen bytes"
READ = len(PROMPT)
"""Tokens of the prompt but the last: its bytes, behind one special token."""


@pytest.fixture
def ask(native_build, onnxruntime_library, folders, tmp_path):
    """Return a function that serves once, and returns the cached tokens and texts of prompts, and what was logged."""

    def once(
        *prompts: str | Callable[[], object],
        kind: str = "native",
        given: tuple[object, ...] = (),
        salt: str | None = None,
    ):
        options = ("--sessions", tmp_path / "kept", *given)
        with started(kind, native_build, onnxruntime_library, folders["greedy"], *options) as (running, address):
            server: Running = ready(address)
            answers = []
            for prompt in prompts:
                if callable(prompt):  # between two of them
                    prompt()
                    continue
                body = {"prompt": prompt, "max_tokens": 3} | ({} if salt is None else {"cache_salt": salt})
                found = server.ask("POST", COMPLETIONS, body)
                assert found.status == 200, found.data
                cached = found.json["usage"]["prompt_tokens_details"]["cached_tokens"]
                answers.append((cached, found.json["choices"][0]["text"]))
            running.send_signal(signal.SIGTERM)
            _, talk = running.communicate(timeout=60)
            assert running.returncode == 0, talk
        return answers, talk

    return once


@pytest.mark.parametrize("kinds", [("native", "native"), ("python", "native"), ("native", "python")])
def test_a_prompt_is_not_read_again_after_a_restart(ask, tmp_path, kinds):
    ((cold, text),), _ = ask(PROMPT, kind=kinds[0])
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    (again, other), _ = ask(PROMPT, PROMPT[:25] + " ends otherwise", kind=kinds[1])[0], None
    assert cold == 0
    assert again == (READ, text)
    assert other[0] >= 25
    assert ask(PROMPT[:25] + " ends otherwise", kind="native", given=("--sessions-limit-gb", 1))[0][0][1] == other[1]


def test_salts_do_not_share_files(ask):
    ask(PROMPT, salt="one")
    assert ask(PROMPT, salt="two")[0][0][0] == 0
    assert ask(PROMPT, salt="one")[0][0][0] == READ


def test_the_least_recently_used_file_is_removed(ask, tmp_path):
    texts = [f"{letter * 30} and what follows it" for letter in "abc"]
    ask(texts[0])
    (file,) = (tmp_path / "kept").iterdir()
    size = file.stat().st_size
    ask(texts[1])
    for path in (tmp_path / "kept").iterdir():
        os.utime(path, ns=(1, 1 if path == file else 2))
    mine = tmp_path / "kept" / "mine.txt"
    mine.write_text("of the user")
    limit = ("--sessions-limit-gb", 2.5 * size / 1e9)
    ask(texts[2], given=limit)
    assert not file.exists()
    assert mine.exists()
    assert len(list((tmp_path / "kept").glob("*.session"))) == 2
    _, talk = ask("z" * 40, given=("--sessions-limit-gb", 1e-9))
    assert "note: a session was not kept" in talk


def test_files_that_are_damaged_are_passed_over(ask, tmp_path):
    expected, _ = ask(PROMPT)
    (file,) = (tmp_path / "kept").iterdir()
    whole = file.read_bytes()
    for content in (whole[:-9], whole[:-1] + bytes([whole[-1] ^ 1]), b"", b"\xff" * 40):
        file.write_bytes(content)
        answers, talk = ask(PROMPT)
        assert answers == expected
        assert "note: passed over" in talk
        assert ask(PROMPT)[0][0] == (READ, expected[0][1]), "it was written again"


def test_a_file_that_is_being_copied_serves_when_it_is_whole_and_a_link_serves_too(ask, tmp_path):
    ((_, expected),), _ = ask(PROMPT)
    (file,) = (tmp_path / "kept").iterdir()
    whole, copy = file.read_bytes(), tmp_path / "kept" / "copied.session"
    file.rename(tmp_path / "elsewhere")
    copy.write_bytes(whole[: len(whole) // 2])
    answers, _ = ask("a text of others, which is as long", lambda: copy.write_bytes(whole), PROMPT)
    assert answers[1] == (READ, expected)
    for each in (tmp_path / "kept").iterdir():
        each.unlink()
    copy.symlink_to(tmp_path / "elsewhere")
    assert ask(PROMPT)[0][0] == (READ, expected)
