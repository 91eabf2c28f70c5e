"""Sessions: tokens from a file equal those from scratch, with every kind of drafter; everything wrong with a file."""

import json
import os
import stat
import subprocess
import sys
import time
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

from speccompile.errors import SpeccompileError, UsageError
from speccompile.runtime.rounds.slots import SlotContent
from speccompile.runtime.session_file import FORMAT, SessionFile, write_session
from speccompile.runtime.sessions import SessionKey, Sessions
from tests.light.fake_bundle import toy_bundle
from tests.light.test_rows import KINDS

PROMPT = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3, 5, 0, 1, 2, 3, 4, 5, 6, 7, 1, 2]


def sampling(kind, seed: int):
    return {"temperature": 1.0, "seed": seed} if "sampling" in KINDS[kind] else {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranges", [False, True])
def test_continued_from_a_file_is_from_scratch(kind, ranges, tmp_path):
    dice, path, cached = Random(kind), tmp_path / "s", 0
    for seed in range(6):
        make = {**KINDS[kind], "batch_size": dice.choice([1, 2]), "ranges": ranges}
        autoregressive = [dice.random() < 0.3 for _ in range(2)]
        first = toy_bundle(**make).generate(
            PROMPT, session=path, max_new_tokens=dice.randrange(1, 30), autoregressive=autoregressive[0],
            **sampling(kind, seed),
        )  # fmt: skip
        said = PROMPT + first.token_ids
        kept = said[: dice.choice([len(said), len(said) - 1, dice.randrange(1, len(said))])]
        prompt = kept + [dice.randrange(5) for _ in range(dice.randrange(1, 20))]
        options = {"max_new_tokens": 25, "autoregressive": autoregressive[1], **sampling(kind, seed + 1)}
        expected = toy_bundle(**make).generate(prompt, **options)
        found = toy_bundle(**make).generate(prompt, session=path, **options)
        assert (found.token_ids, found.seed) == (expected.token_ids, expected.seed)
        cached += found.cached_tokens
        path.unlink()
    assert cached or "carried" in KINDS[kind]


def saved(path, **changes):
    bundle = toy_bundle(**changes)
    generation = bundle.generate(PROMPT, max_new_tokens=8)
    bundle.save_session(path)
    return bundle, PROMPT + generation.token_ids


def keyed(bundle, **changes):
    """Return the bundle with a key of four fields, some of them changed."""
    fields = {"contract": "3", "target weights": "a", "tokenizer": "t", "machine": "any"}
    key = SessionKey(fields | {k: v for k, v in changes.items() if k != "drafter"}, changes.get("drafter", "d"))
    bundle._sessions = Sessions(bundle._loop, bundle.manifest, key)
    return bundle


def test_the_file_is_of_safetensors_holds_committed_tokens_only_and_is_its_owners(tmp_path):
    path = tmp_path / "s"
    path.touch(0o644)
    _, said = saved(path)
    tensors = load_file(path)
    count = len(tensors["session.tokens"])
    assert tensors["session.tokens"].tolist() == said[:count]
    assert len(said) - 1 <= count <= len(said)
    assert tensors["target.rows"].tolist() == said[:count]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


def test_a_restored_text_continues_in_memory_and_once(tmp_path):
    _, said = saved(tmp_path / "s")
    bundle, expected = toy_bundle(), toy_bundle().generate([*said, 1, 2], max_new_tokens=9)
    tokens = bundle.load_session(tmp_path / "s")
    assert tokens == said[: len(tokens)]
    found = bundle.generate([*said, 1, 2], max_new_tokens=9)
    assert found.token_ids == expected.token_ids
    assert found.to_json()["cached_tokens"] == found.cached_tokens > 0
    again = bundle.generate([*said, 1, 2], max_new_tokens=9)
    assert (again.token_ids, again.cached_tokens) == (expected.token_ids, 0)
    assert "cached_tokens" not in again.to_json()


def test_another_text_is_read_whole_and_replaces_the_session(tmp_path):
    path = tmp_path / "s"
    saved(path)
    other = [8, 8, 8, 1]
    assert toy_bundle().generate(other, session=path, max_new_tokens=5).cached_tokens == 0
    assert toy_bundle().load_session(path)[:4] == other


def test_what_a_stream_said_is_kept(tmp_path):
    from tests.light.serve_example import chat_bundle

    bundle = chat_bundle()
    text = "".join(bundle.stream("hello", session=tmp_path / "s", max_new_tokens=6))
    assert chat_bundle().text.decode(chat_bundle().load_session(tmp_path / "s")).startswith("hello")
    assert text


@pytest.mark.parametrize("field", ["contract", "target weights", "tokenizer", "machine"])
def test_a_differing_field_is_named_with_both_values(field, tmp_path):
    writer = keyed(toy_bundle())
    writer.generate(PROMPT, max_new_tokens=4, session=tmp_path / "s")
    reader = keyed(toy_bundle(), **{field: "other"})
    ours = {"contract": "3", "target weights": "a", "tokenizer": "t", "machine": "any"}[field]
    with pytest.raises(UsageError, match=f"with {field} '{ours}', expected 'other', as this bundle has"):
        reader.generate(PROMPT, session=tmp_path / "s")


@pytest.mark.parametrize("kind", ["chain", "taps", "pairs", "pairs, fused", "states", "states, pairs"])
def test_the_rows_of_another_drafter_are_dropped_and_read_again(kind, tmp_path, caplog):
    path, prompt = tmp_path / "s", [*PROMPT, 1, 1]
    keyed(toy_bundle(**KINDS[kind])).generate(PROMPT, max_new_tokens=4, session=path)
    reader = keyed(toy_bundle(**KINDS[kind]), drafter="other")
    reader.engine.compares = True
    found = reader.generate(prompt, session=path, max_new_tokens=12)
    assert found.token_ids == toy_bundle(**KINDS[kind]).generate(prompt, max_new_tokens=12).token_ids
    assert sum("written with another drafter" in record.getMessage() for record in caplog.records) == 1


REFUSED = {
    "several sequences": (lambda bundle, path: bundle.generate_batch([[1], [2]], session=path), "2 sequences"),
    "no path": (lambda bundle, path: bundle.generate([1], session=7), "received 7, expected the path"),
    "no folder": (lambda bundle, path: bundle.generate([1], session=path / "a" / "b"), "there is no folder"),
    "a folder": (lambda bundle, path: bundle.generate([1], session=path), "received a folder, expected a file"),
    "nothing said": (lambda bundle, path: bundle.save_session(path / "s"), "no session to save"),
    "no file": (lambda bundle, path: bundle.load_session(path / "s"), "cannot be read: No such file"),
}


@pytest.mark.parametrize(("use", "message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_use_is_refused(use, message, tmp_path):
    bundle = toy_bundle(batch_size=2)
    with pytest.raises(UsageError, match=message):
        use(bundle, tmp_path)
    assert bundle.engine.runs == []
    assert not list(tmp_path.iterdir())


LEFT = {
    "pictures": ({"tokens": [3, -7, 4]}, "holds pictures, expected text alone"),
    "a source": ({"source": "s"}, "has read a source"),
}


def left(**changes) -> SlotContent:
    """Return what a slot holds whose states are those of its three tokens."""
    return SlotContent([3, 1, 4], 3, 3, 3)._replace(**changes)


@pytest.mark.parametrize(("changes", "message"), LEFT.values(), ids=LEFT)
def test_what_a_session_does_not_hold_is_not_saved(changes, message, tmp_path):
    bundle = toy_bundle()
    bundle._loop.left = left(**changes)
    with pytest.raises(UsageError, match=message):
        bundle.save_session(tmp_path / "s")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ahead", [-1, 0, 1])
def test_recurrent_states_are_those_of_the_tokens(ahead, tmp_path):
    sessions = keyed(toy_bundle(carried=True))._sessions
    sessions._moves_on = {"target": False, "drafter": True}
    held = sessions.content(tmp_path / "s", left=left(drafter_position=3 + ahead))
    assert held.metadata["drafter_length"] == ("0" if ahead else "3")
    sessions._moves_on = {"target": True, "drafter": False}
    assert sessions.is_at_end(left(target_position=3 + ahead)) == (ahead == 0)


def test_what_saving_reads_again_is_not_told_of_the_generation(tmp_path, monkeypatch):
    """Read a text again whose last round has moved states beyond it: its generation has its own cached tokens."""
    path, again, read_again = tmp_path / "s", [], Sessions._read_again
    monkeypatch.setattr(Sessions, "_read_again", lambda *given: again.append(given) or read_again(*given))
    for length in range(2, 16):
        bundle = keyed(toy_bundle(tokens=3, carried=True))
        bundle.generate(PROMPT, session=path, max_new_tokens=length)
        kept = bundle.load_session(path)
        found = bundle.generate([*kept, 1, 2, 3], session=path, max_new_tokens=length)
        assert (found.cached_tokens, found.verify_seconds > 0) == (len(kept), True)
        path.unlink()
    assert again


def test_a_drafter_with_tokens_of_its_own_saves_all_that_it_has_read(tmp_path):
    """Save a cache with three rows for one token of the target."""
    sessions, lines = keyed(toy_bundle())._sessions, {"drafter.ends": (8,), "drafter.key.0": (2, 24, 4)}
    values = {name: np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for name, shape in lines.items()}
    sessions._loop.states = SimpleNamespace(
        shapes=lines, dtypes=dict.fromkeys(lines, "F32"), line=lambda name, _: values[name]
    )
    held = sessions.content(tmp_path / "s", left=left()).tensors
    assert held["drafter.ends"][1].tolist() == values["drafter.ends"][:3].tolist()
    assert held["drafter.key.0"][1].tolist() == values["drafter.key.0"][:, :9].tolist()


@pytest.mark.parametrize("length", ["4", "-1", "", "1e0", "9" * 12])
def test_a_drafter_has_read_no_more_than_the_text(length, tmp_path):
    writer = keyed(toy_bundle())
    held = writer._sessions.content(tmp_path / "s", left=left())
    assert held.metadata["drafter_length"] == "3"
    write_session(tmp_path / "s", SessionFile(held.metadata | {"drafter_length": length}, held.tensors))
    with pytest.raises(UsageError, match=f"received drafter_length '{length}', expected 0 to 3"):
        keyed(toy_bundle()).load_session(tmp_path / "s")


def test_a_service_takes_no_session(tmp_path):
    with toy_bundle().serve() as service, pytest.raises(UsageError, match="received a service"):
        service.submit([1], session=tmp_path / "s")


def test_a_session_longer_than_the_capacity_is_refused(tmp_path):
    _, said = saved(tmp_path / "s")
    with pytest.raises(UsageError, match=r"has 2. tokens, expected at most 23"):
        toy_bundle(max_length=24, prefill_chunk=8).load_session(tmp_path / "s")
    tokens = toy_bundle(max_length=40).load_session(tmp_path / "s")
    assert tokens == said[: len(tokens)]


@pytest.mark.parametrize("notes", [{"a": 1}, {"a": None}, {1: "a"}, {"a": "\ud800"}, {"\udfff": "a"}], ids=repr)
def test_a_note_that_no_file_can_hold_is_refused(notes, tmp_path):
    bundle, _ = saved(tmp_path / "s")
    before = (tmp_path / "s").read_bytes()
    with pytest.raises(UsageError, match="expected Unicode texts"):
        bundle.save_session(tmp_path / "s", notes=notes)
    assert (tmp_path / "s").read_bytes() == before


def test_a_disk_without_space_leaves_the_old_file(tmp_path, monkeypatch):
    bundle, _ = saved(tmp_path / "s")
    before = (tmp_path / "s").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(UsageError, match="cannot be written: No space left on device"):
        bundle.save_session(tmp_path / "s")
    monkeypatch.undo()
    assert (tmp_path / "s").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


def rewritten(content: bytes, change, **form) -> bytes:
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header, **form).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def shape(value):
    return lambda header: header["target.rows"].update(shape=value)


def note(text):
    return lambda header: header["__metadata__"].update({"note.a": text})


EDITED = {
    "empty": (lambda content: b"", "truncated one: 0 bytes"),
    "a header of 2**63 bytes": (lambda content: (2**63).to_bytes(8, "little") + content[8:], "truncated one"),
    "another file": (lambda content: b"\x7fELF" + content, "not a session"),
    "no JSON": (lambda content: content[:8] + b"x" + content[9:], "no JSON object"),
    "half a surrogate pair": (lambda c: rewritten(c, note("zzz")).replace(b"zzz", b"\xed\xa0\x80"), "no JSON object"),
    "its escape": (lambda content: rewritten(content, note("\ud800")), "no JSON object"),
    "nested": (lambda content: (90000).to_bytes(8, "little") + b"[" * 90000, "no JSON object"),
    "newer": (
        lambda content: content.replace(FORMAT.encode(), b"speccompile.session.2"),
        "received format 'speccompile.session.2', expected 'speccompile.session.1'",
    ),
    "foreign": (lambda content: rewritten(content, lambda header: header.pop("__metadata__")), "no texts in"),
    "torn": (lambda content: content[:-1], "truncated or damaged"),
    "longer": (lambda content: content + b"\0", "truncated or damaged"),
    "an absurd shape": (lambda content: rewritten(content, shape([2**62, 2**62])), "impossible shape"),
    "a negative shape": (lambda content: rewritten(content, shape([-1])), "impossible shape"),
    "a shape of texts": (lambda content: rewritten(content, shape("9")), "no dtype or shape"),
    "many sizes": (lambda content: rewritten(content, shape([1] * 9999)), "impossible shape"),
    "another place": (lambda content: rewritten(content, shape([1])), "not where its shape says"),
    "other spaces": (lambda content: rewritten(content, lambda header: None, indent=1), "does not have the hash"),
}


@pytest.mark.parametrize(("edit", "message"), EDITED.values(), ids=EDITED)
def test_a_file_that_is_no_session_is_refused(edit, message, tmp_path):
    saved(tmp_path / "s")
    (tmp_path / "s").write_bytes(edit((tmp_path / "s").read_bytes()))
    bundle = toy_bundle()
    with pytest.raises(UsageError, match=message):
        bundle.load_session(tmp_path / "s")
    assert bundle.generate(PROMPT, max_new_tokens=3).cached_tokens == 0


def test_every_mutation_is_refused(tmp_path):
    path, dice, bundle = tmp_path / "s", Random(5), toy_bundle()
    saved(path)
    good = path.read_bytes()
    for _ in range(600):
        content = bytearray(good)
        match dice.randrange(4):
            case 0:
                content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
            case 1:
                del content[dice.randrange(len(content)) :]
            case 2:
                start = dice.randrange(len(content))
                content[start:start] = dice.randbytes(dice.randrange(1, 40))
            case 3:
                start = dice.randrange(min(len(content), 1200))
                content[start : start + 4] = dice.randbytes(4)
        if bytes(content) != good:
            path.write_bytes(content)
            with pytest.raises(SpeccompileError):
                bundle.load_session(path)
    path.write_bytes(good)
    assert bundle.load_session(path)


def test_a_process_killed_while_it_saves_leaves_a_whole_file(tmp_path):
    path = tmp_path / "s"
    program = (
        "import sys; from pathlib import Path; from tests.light.test_sessions import saved\n"
        "bundle, _ = saved(Path(sys.argv[1])); print('saved', flush=True)\n"
        "while True: bundle.save_session(sys.argv[1])"
    )
    for delay in (0.0, 0.003, 0.011):
        with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"saved\n"
            time.sleep(delay)
            process.kill()
        assert toy_bundle().load_session(path)
