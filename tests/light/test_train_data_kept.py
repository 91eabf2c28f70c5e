"""Which documents are held out, and what stays on the disk."""

import errno
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from speccompile.errors import RecipeError, SpeccompileError
from speccompile.train.data.prepare import prepare
from tests.light.train_data_example import MARKED, TEXTS, plan, tokenizer, words, write_lines


def test_shares_of_documents(tmp_path):
    file = write_lines(tmp_path / "texts.jsonl", [{"text": f"{text}{half}"} for text in TEXTS for half in range(25)])
    sizes, sides = {}, {}
    for share in (0.02, 0.1, 0.5):
        train, held = prepare(plan([file], held_out=share), tokenizer(), tmp_path / "work")
        sizes[share], sides[share] = len(held) / 1000, set(words(held))
        assert not set(words(train)) & sides[share]
    assert all(abs(size - share) < 4 * (share * (1 - share) / 1000) ** 0.5 for share, size in sizes.items())
    assert sides[0.02] < sides[0.1] < sides[0.5]
    assert len(list((tmp_path / "work").iterdir())) == 1


def test_documents_go_where_they_went(tmp_path):
    """Keep each document's split when other data and other places change; equal ones go together."""
    file = write_lines(tmp_path / "a.jsonl", [{"text": text} for text in TEXTS * 2])
    other = write_lines(tmp_path / "b.jsonl", [{"other": 1, "text": text} for text in reversed(TEXTS[10:])])
    pair = prepare(plan([file]), tokenizer(), tmp_path / "a")
    sides = [set(words(corpus)) for corpus in pair]
    assert not sides[0] & sides[1]
    assert sorted(words(pair[1])) == sorted([*sides[1]] * 2)
    for corpus, side in zip(prepare(plan([other]), tokenizer(), tmp_path / "b"), sides, strict=True):
        assert set(words(corpus)) == side & set(TEXTS[10:])


def test_one_document_is_held_out_of_few(tmp_path):
    file = write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS[:3]])
    assert [len(corpus) for corpus in prepare(plan([file], held_out=0.001), tokenizer(), tmp_path)] == [2, 1]
    file = write_lines(tmp_path / "text.jsonl", [{"text": TEXTS[0]}] * 3)
    with pytest.raises(RecipeError, match="of 3 texts of 1 documents none is left to be learnt from"):
        prepare(plan([file]), tokenizer(), tmp_path)


def test_kept_until_something_changes(tmp_path):
    file, work = write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS]), tmp_path / "work"

    def key(template: str | None = None, **keys) -> str:
        return prepare(plan([file], **keys), tokenizer(template), work)[0].key

    first = key()
    (kept,) = work.iterdir()
    stamp = (kept / "texts.arrow").stat().st_mtime_ns
    assert key() == first
    assert (kept / "texts.arrow").stat().st_mtime_ns == stamp
    others = {key(length=32), key(MARKED), key(vocabulary=4097)}
    assert len(others | {first}) == 4
    stat = file.stat()
    file.write_text(file.read_text().replace("function_7", "function_8"))
    assert file.stat().st_size == stat.st_size
    assert key() not in others | {first}
    assert len(list(work.iterdir())) == 1


def test_processes_that_ask_at_once_wait_for_one(tmp_path, caplog):
    caplog.set_level(logging.INFO, "speccompile")
    file = write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS * 50])
    work, ours = tmp_path / "work", tokenizer()
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: prepare(plan([file]), ours, work), range(3)))
    assert len({train.key for train, _ in found}) == 1
    assert caplog.text.count("kept from before") == 2


def test_what_an_ended_process_left_goes(tmp_path):
    left = tmp_path / "work" / ".texts-0123456789abcdef.part"
    left.mkdir(parents=True)
    (left / "texts.arrow").write_bytes(b"half")
    file = write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    prepare(plan([file]), tokenizer(), tmp_path / "work")
    assert not left.exists()


def test_nothing_is_left_of_what_fails(tmp_path):
    file = write_lines(tmp_path / "texts.jsonl", [*({"text": text} for text in TEXTS), {"text": 5}])
    with pytest.raises(RecipeError):
        prepare(plan([file]), tokenizer(), tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


def test_full_disk(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    file = write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    monkeypatch.setattr("speccompile.train.data.prepare.write_texts", full)
    with pytest.raises(SpeccompileError, match=r"the disk is full: .* free"):
        prepare(plan([file]), tokenizer(), tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []
