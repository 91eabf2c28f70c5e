"""Sessions of both runtimes: equal files, continuations with the bits of those from scratch, equal words for what is
wrong."""

import signal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from speccompile.errors import UsageError
from speccompile.runtime import Bundle
from speccompile.runtime.session_file import SessionFile, read_session, write_session
from tests.compile.combinations import BATCH_SIZE, ON_STATES
from tests.compile.test_serving_exact import FEW, KINDS
from tests.light.test_cli_serve import ready
from tests.native.native_errors import NativeError
from tests.native.served import COMPLETIONS, started
from tests.native.side_by_side import SideBySide
from tests.suite.selection import sweep_but

REASON = "every kind of drafter and of recurrent state: half a minute"
EQUAL = ("token_ids", "seed", "finish_reason")
PROMPT = [17, 230, 45, 99, 101] * 3
MOST = 1 << 30


@pytest.mark.parametrize("combination", sweep_but(FEW, KINDS, REASON), ids=str)
def test_either_goes_on_from_what_the_other_wrote(workshop, combination, native_library, onnxruntime_library, tmp_path):
    """Compare both files byte for byte, wherever the runtimes draft the same."""
    folder = workshop.bundle(combination, batch_size=BATCH_SIZE)
    both = SideBySide(folder, native_library, onnxruntime_library, proposer=combination.proposer)
    dice, cached, path = Random(str(combination)), 0, tmp_path / "s"
    for seed in range(8):
        options: dict[str, Any] = {"adaptive": False}
        if combination.decoding == "sampling" and dice.random() < 0.6:
            options |= {"temperature": 0.9, "seed": seed}
        prompt = [dice.randrange(3, 200) for _ in range(dice.randrange(1, 24))]
        ours = both.session.generate([prompt], max_new_tokens=(count := dice.randrange(1, 15)), **options)[0]
        both.session.save(path)
        assert both.session.result() == ours  # also where saving has read the text again
        content = path.read_bytes()
        both.python.generate(prompt, max_new_tokens=count, **options)
        both.python.save_session(path)
        assert path.read_bytes() == content
        assert path.stat().st_mode & 0o777 == 0o600
        said = prompt + ours["token_ids"]
        kept = said[: dice.choice([len(said), len(said) - 1, dice.randrange(1, len(said))])]
        longer = kept + [dice.randrange(3, 200) for _ in range(dice.randrange(1, 9))]
        options |= {"max_new_tokens": 14, "autoregressive": dice.random() < 0.3, "adaptive": dice.random() < 0.5}
        expected = both.python.generate(longer, **options)
        assert both.session.load(path) == both.python.load_session(path)
        (ours,) = both.session.generate([longer], **options)
        theirs = both.python.generate(longer, **options)
        assert [ours[name] for name in EQUAL] == [getattr(expected, name) for name in EQUAL]
        assert [getattr(theirs, name) for name in EQUAL] == [getattr(expected, name) for name in EQUAL]
        if not options["adaptive"]:  # else what rounds cost decides whether the drafter reads the last tokens again
            assert ours["cached_tokens"] == theirs.cached_tokens
        cached += theirs.cached_tokens
    assert cached or combination.pair


@pytest.fixture(scope="module")
def both(built, native_library, onnxruntime_library) -> SideBySide:
    return SideBySide(built("lookup_3").path, native_library, onnxruntime_library)


@pytest.fixture
def saved(both, tmp_path) -> Path:
    both.python.generate(PROMPT, max_new_tokens=4, session=tmp_path / "s")
    return tmp_path / "s"


def refused(both: SideBySide, path: Path) -> tuple[str, str]:
    """Return message and hint of both, which are equal."""
    with pytest.raises(UsageError) as theirs:
        both.python.load_session(path)
    with pytest.raises(NativeError) as ours:
        both.session.load(path)
    assert (ours.value.message, ours.value.hint) == (str(theirs.value), theirs.value.hint)
    assert ours.value.exit_code == 2
    return ours.value.message, ours.value.hint


FIELDS = (
    "contract",
    "version",
    "build",
    "target weights",
    "target",
    "cache.dtype",
    "max_length",
    "tokenizer",
    "machine",
)


@pytest.mark.parametrize("field", FIELDS)
def test_a_differing_field_is_named_in_equal_words(both, saved, field):
    file = read_session(saved, MOST)
    write_session(saved, SessionFile(file.metadata | {field: "another, with an ä' in it " * 9}, file.tensors))
    assert f"received a session with {field} " in refused(both, saved)[0]
    write_session(saved, SessionFile({key: each for key, each in file.metadata.items() if key != field}, file.tensors))
    assert f"received a session with {field} missing" in refused(both, saved)[0]


CHANGED = {
    "no tokens": (lambda file: file.tensors.pop("session.tokens"), "expected token ids from 0"),
    "an id": (
        lambda file: file.tensors.update({"session.tokens": ("I64", np.array([1 << 40], np.int64))}),
        "expected token ids from 0",
    ),
    "too many": (
        lambda file: file.tensors.update({"session.tokens": ("I64", np.ones(4000, np.int64))}),
        "this session has 4000 tokens, expected at most",
    ),
    "a number": (lambda file: file.metadata.update(drafter_length="-1"), "received drafter_length '-1', expected 0 to"),
    "an adapter": (lambda file: file.metadata.update(adapter="a"), "with target weights"),
    "a state": (
        lambda file: file.tensors.update({"target.key.0": ("F32", np.zeros((1, 2), np.float32))}),
        "received F32 [1, 2] for target.key.0, expected F32",
    ),
    "no state": (lambda file: file.tensors.pop("target.key.0"), "received nothing [0] for target.key.0"),
}


@pytest.mark.parametrize(("change", "message"), CHANGED.values(), ids=CHANGED)
def test_what_does_not_fit_is_refused_in_equal_words(both, saved, change, message):
    file = read_session(saved, MOST)
    change(file)
    write_session(saved, file)
    assert message in refused(both, saved)[0]


def test_notes_in_any_script_are_read(both, saved):
    both.python.save_session(saved, notes={"de": "Übung \u2028 \x7f", "ja": "日本 \U0001f600"})
    assert both.session.load(saved) == both.python.load_session(saved)


def test_a_file_that_is_torn_or_edited_anywhere_is_refused(both, saved):
    content, dice = saved.read_bytes(), Random(1)
    header = 8 + int.from_bytes(content[:8], "little")
    for place in [0, 3, 8, 9, header - 1, header, len(content) - 1, *(dice.randrange(len(content)) for _ in range(40))]:
        saved.write_bytes(content[:place])
        refused(both, saved)
        saved.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        if 8 <= place < header:  # json.loads says more of what is no JSON than that
            with pytest.raises(UsageError):
                both.python.load_session(saved)
            with pytest.raises(NativeError):
                both.session.load(saved)
        else:
            refused(both, saved)


def test_wrong_files_and_uses_are_refused(both, saved, tmp_path):
    refused(both, tmp_path / "none")
    refused(both, tmp_path)
    both.session.generate([[5], [6]], max_new_tokens=2)
    with pytest.raises(NativeError, match="there is no session to save"):
        both.session.save(tmp_path / "other")
    both.session.generate([[5]], max_new_tokens=2)
    with pytest.raises(NativeError, match="the session cannot be written: No such file"):
        both.session.save(tmp_path / "a" / "b")
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_a_generation_that_is_left_early_is_saved(both, tmp_path):
    expected = both.python.generate(PROMPT, max_new_tokens=20).token_ids
    both.session.start([PROMPT], max_new_tokens=20, autoregressive=True)
    for _ in range(4):
        both.session.step()
    both.session.save(tmp_path / "s")
    said = PROMPT + expected[:3]
    assert both.python.load_session(tmp_path / "s") == said
    assert both.session.step()
    expected = both.python.generate([*said, 3], max_new_tokens=15)
    found = both.python.generate([*said, 3], max_new_tokens=15, session=tmp_path / "s")
    assert (found.token_ids, found.cached_tokens) == (expected.token_ids, len(said))


@pytest.mark.sweep("one build for each: a target with states, a drafter, both")
@pytest.mark.parametrize("combination", ON_STATES[:3], ids=str)
def test_services_of_both_go_on_from_whole_prompts(workshop, combination, native_build, onnxruntime_library, tmp_path):
    """Keep the prompts of recurrent states, by either server: they serve prompts that begin with all of one."""
    folder, said = workshop.bundle(combination, batch_size=BATCH_SIZE), [7, 11, 13] * 7
    alone = Bundle.open(folder, threads=1)
    for turn, kind in enumerate(("native", "native", "python", "native")):
        expected = alone.generate(said, max_new_tokens=6, ignore_eos=True).token_ids
        options = ("--sessions", tmp_path / "kept", "--threads", 1)
        with started(kind, native_build, onnxruntime_library, folder, *options) as (running, address):
            for speculative in (False, True):
                body = {"prompt": said, "max_tokens": 6, "return_token_ids": True, "speculative": speculative}
                found = ready(address).ask("POST", COMPLETIONS, body | {"temperature": 0, "ignore_eos": True})
                assert found.status == 200, found.data
                assert found.json["choices"][0]["token_ids"] == expected
                if not speculative:
                    cached = found.json["usage"]["prompt_tokens_details"]["cached_tokens"]
                    assert cached >= len(said) - 8 if turn else cached == 0
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 0
        said = [*said, *expected, turn + 3, turn + 4]
