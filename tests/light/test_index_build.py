"""The folder of an index: what it holds of a corpus, builds that are interrupted, and everything that is wrong."""

import json
import logging
import os
from pathlib import Path

import pytest

from speccompile.errors import BuildError, BundleError, SpeccompileError, UsageError
from speccompile.index import build
from speccompile.index.build import build_index
from speccompile.index.files import find_tokenizer, read_header
from speccompile.index.search import Index
from tests.json_files import merge_json
from tests.light.index_example import documents_of, make_index, save_tokenizer, write_documents

DOCUMENTS = ["".join("abcdefgh"[(i * j) % 8] for i in range(5 + 7 * j % 23)) for j in range(60)]
SIZES = {"chunk": 150, "batch": 40}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_documents_come_back_in_order(tmp_path):
    index = make_index(tmp_path, DOCUMENTS, **SIZES)
    assert documents_of(index) == DOCUMENTS
    header = index.header
    assert (header.documents, header.tokens) == (len(DOCUMENTS), sum(map(len, DOCUMENTS)))
    assert len(header.chunks) > 3
    assert (header.vocabulary_size, header.largest_token) == (8, 7)
    assert not list(tmp_path.glob(".*"))


def test_texts_and_folders(tmp_path):
    corpus = tmp_path / "corpus"
    (corpus / "b").mkdir(parents=True)
    (corpus / ".hidden").mkdir()
    (corpus / "b" / "z.txt").write_text("abc")
    (corpus / "a.md").write_text("\ufeffbcd")
    (corpus / ".hidden" / "no.txt").write_text("hhh")
    (corpus / "empty.txt").write_text("")
    (corpus / "picture.png").write_bytes(b"\x89PNG\r\n\x00")
    write_documents(corpus / "c.jsonl", ["", "e", "fg"])
    save_tokenizer(tmp_path)
    build_index([corpus, corpus / "a.md"], tmp_path, tmp_path / "index")
    assert documents_of(Index.open(tmp_path / "index")) == ["bcd", "abc", "e", "fg"]


def test_long_texts_are_read_in_pieces_and_stay_one_document(tmp_path, monkeypatch):
    monkeypatch.setattr("speccompile.index.corpus.PIECE", 7)
    (tmp_path / "lines.txt").write_text("abcd\nab\nabcdefgh\nhhhh")
    (tmp_path / "wide.txt").write_text("aé" * 9 + "b")  # no line, and characters of two bytes
    save_tokenizer(tmp_path)
    files = [tmp_path / "lines.txt", tmp_path / "wide.txt"]
    build_index(files, tmp_path, tmp_path / "index", batch=5)
    assert documents_of(Index.open(tmp_path / "index")) == ["abcdaabaabcdefghahhhh", "aa" * 9 + "b"]  # unknown: a


class Interrupted(BaseException):
    """As when somebody presses Ctrl-C."""


def interrupt(monkeypatch, name: str, calls: int, *, after: bool = True) -> None:
    """Let a function of the build raise once, behind or before so many calls of it."""
    left, real = [calls], getattr(build, name)

    def function(*arguments):
        left[0] -= 1
        if left[0] == 0 and not after:
            raise Interrupted
        result = real(*arguments)
        if left[0] == 0:
            raise Interrupted
        return result

    monkeypatch.setattr(build, name, function)


@pytest.mark.parametrize(
    ("name", "calls", "after"),
    [("write_atomically", 1, False), ("write_atomically", 1, True), ("write_atomically", 9, False),
     ("write_atomically", 9, True), ("_in_document", 5, True), ("suffix_array", 1, True), ("suffix_array", 3, False),
     ("_finish", 1, False), ("_finish", 1, True)],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["jsonl", "txt"])
def test_an_interrupted_build_gives_what_an_uninterrupted_one_gives(tmp_path, monkeypatch, kind, name, calls, after):
    monkeypatch.setattr("speccompile.index.corpus.PIECE", 64)
    tokenizer, texts = save_tokenizer(tmp_path), [tmp_path / f"one.{kind}", tmp_path / f"two.{kind}"]
    for file, its in zip(texts, (DOCUMENTS[:30], DOCUMENTS[30:]), strict=True):
        write_documents(file, its) if kind == "jsonl" else file.write_text("\n".join(its))
    build_index(texts, tokenizer, tmp_path / "whole", **SIZES)
    with monkeypatch.context() as once:
        interrupt(once, name, calls, after=after)
        with pytest.raises(Interrupted):
            build_index(texts, tokenizer, tmp_path / "index", **SIZES)
    assert not (tmp_path / "index").exists()
    build_index(texts, tokenizer, tmp_path / "index", **SIZES)
    assert contents(tmp_path / "index") == contents(tmp_path / "whole")


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch, caplog):
    corpus, tokenizer = write_documents(tmp_path / "corpus.jsonl", DOCUMENTS), save_tokenizer(tmp_path)
    with monkeypatch.context() as once:
        interrupt(once, "suffix_array", 2)
        with pytest.raises(Interrupted):
            build_index([corpus], tokenizer, tmp_path / "index", **SIZES)
    sorted_ones, real = [], build.suffix_array
    monkeypatch.setattr(build, "suffix_array", lambda tokens: sorted_ones.append(len(tokens)) or real(tokens))
    monkeypatch.setattr(build, "_add", lambda *arguments: pytest.fail("a batch was tokenized again"))
    with caplog.at_level(logging.INFO):
        header = build_index([corpus], tokenizer, tmp_path / "index", **SIZES)
    assert "going on with a build that was interrupted" in caplog.text
    assert sorted_ones == list(header.chunks[1:])


@pytest.mark.parametrize("change", ["text", "field", "tokenizer", "file"])
def test_another_corpus_is_begun_anew(tmp_path, monkeypatch, caplog, change):
    corpus, tokenizer = tmp_path / "corpus.jsonl", save_tokenizer(tmp_path)
    corpus.write_text("".join(json.dumps({"text": each, "other": each[::-1]}) + "\n" for each in DOCUMENTS))
    with monkeypatch.context() as once:
        interrupt(once, "write_atomically", 5)
        with pytest.raises(Interrupted):
            build_index([corpus], tokenizer, tmp_path / "index", **SIZES)
    texts, field = [corpus], "text"
    if change == "text":
        stat = corpus.stat()
        corpus.write_text(corpus.read_text().replace("a", "b", 1))
        os.utime(corpus, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif change == "field":
        field = "other"
    elif change == "tokenizer":
        tokenizer = save_tokenizer(tmp_path, "hgfedcba")
    else:
        texts.append(write_documents(tmp_path / "more.jsonl", ["abc"]))
    build_index(texts, tokenizer, tmp_path / "index", field=field, **SIZES)
    assert "holds an interrupted build of another corpus; starting over" in caplog.text
    build_index(texts, tokenizer, tmp_path / "whole", field=field, **SIZES)
    assert contents(tmp_path / "index") == contents(tmp_path / "whole")


def test_two_builds_at_once_are_not_mixed(tmp_path, monkeypatch):
    corpus, tokenizer = write_documents(tmp_path / "corpus.jsonl", DOCUMENTS), save_tokenizer(tmp_path)

    def second(*arguments):
        build_index([corpus], tokenizer, tmp_path / "index")

    monkeypatch.setattr(build, "_finish", second)
    with pytest.raises(BuildError, match="another process is building the index"):
        build_index([corpus], tokenizer, tmp_path / "index")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"}\n{"b": "c"}', "line 2: received an object with 'b', expected one with the field 'text'"),
        ('["a"]', "line 1: received no object, expected one with the field 'text'"),
        ("{}", "line 1: received an object with no field"),
        ('{"text": 5}', "line 1: received int in the field 'text', expected text"),
        ('{"text": null}', "line 1: received NoneType in the field 'text'"),
        ('{"text": "a"', "line 1: expected a JSON object: "),
        ('{"text": "a\\ud800"}', "line 1: character 1 of 'text' is '\\\\ud800'"),
        (b'\n\n{"text": "\xff"}', "line 3: byte 0xff is no UTF-8, expected text"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_document_is_named(tmp_path, line, message):
    corpus, tokenizer = tmp_path / "corpus.jsonl", save_tokenizer(tmp_path)
    corpus.write_bytes(line if isinstance(line, bytes) else line.encode())
    with pytest.raises(BuildError, match=f"corpus.jsonl, {message}") as caught:
        build_index([corpus], tokenizer, tmp_path / "index")
    assert caught.value.hint
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("text", ["", "\n\n", '{"text": ""}\n'])
def test_a_corpus_without_text_is_refused(tmp_path, text):
    (tmp_path / "corpus.jsonl").write_text(text)
    with pytest.raises(BuildError, match=r"the corpus has no text: 1 files with .* bytes give no token"):
        build_index([tmp_path / "corpus.jsonl"], save_tokenizer(tmp_path), tmp_path / "index")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "tokenizer.json"]


def test_what_is_not_there_or_cannot_be_read(tmp_path):
    tokenizer, corpus = save_tokenizer(tmp_path), write_documents(tmp_path / "corpus.jsonl", ["abc"])
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.txt").write_bytes(b"abc\nab\xffc")
    (tmp_path / "no.json").write_text("{}")
    cases: list[tuple[list[Path], Path, type[SpeccompileError], str]] = [
        ([tmp_path / "none"], tokenizer, BuildError, "none', expected a file or folder: nothing lies there"),
        ([tmp_path / "empty"], tokenizer, BuildError, "empty: received a folder without texts"),
        ([tmp_path / "broken.txt"], tokenizer, BuildError, "broken.txt, line 2: byte 0xff is no UTF-8"),
        (
            [corpus],
            tmp_path / "empty",
            UsageError,
            "empty', expected a tokenizer.json, or a model's folder or a bundle",
        ),
        ([corpus], tmp_path / "no.json", BuildError, "no.json: received no tokenizer: "),
    ]
    for texts, model, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            build_index(texts, model, tmp_path / "index")
        assert caught.value.hint
        assert not [path for path in tmp_path.iterdir() if "index" in path.name]


def test_an_output_that_exists_is_left_alone(tmp_path):
    index = make_index(tmp_path, ["abc"])
    before = contents(index.folder)
    with pytest.raises(BuildError, match="index exists, expected a folder to be made"):
        build_index([tmp_path / "corpus.jsonl"], tmp_path, index.folder)
    assert contents(index.folder) == before


def test_a_corpus_that_changes_while_it_is_read_is_noticed(tmp_path, monkeypatch):
    corpus, tokenizer = write_documents(tmp_path / "corpus.jsonl", DOCUMENTS), save_tokenizer(tmp_path)
    real = build._tokenize

    def tokenize(*arguments):
        with corpus.open("a") as file:
            file.write('{"text": "abc"}\n')
        return real(*arguments)

    monkeypatch.setattr(build, "_tokenize", tokenize)
    with pytest.raises(BuildError, match="a file of the corpus changed while it was read"):
        build_index([corpus], tokenizer, tmp_path / "index")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: os.truncate(folder / "0.suffixes", 4), r"has 4 bytes, expected \d+: it was truncated"),
        (lambda folder: (folder / "0.tokens").unlink(), "0.tokens: the file is missing; index.json lists it"),
        (lambda folder: (folder / "index.json").unlink(), "expected an index: no index.json lies in it"),
        (lambda folder: (folder / "index.json").write_text("[]"), "index.json: received no header of an index"),
        (lambda folder: (folder / "index.json").write_text("{"), "index.json: expected JSON"),
        (lambda folder: change(folder, format=9), "index.json: received format 9, this speccompile reads 1"),
        (lambda folder: change(folder, chunks=[1]), "index.json: received files .*, expected .* by its chunks"),
        (lambda folder: change(folder, more=1), "index.json: received no header of an index"),
    ],
)  # fmt: skip
def test_a_damaged_index_is_refused_by_name(tmp_path, damage, message):
    index = make_index(tmp_path, DOCUMENTS)
    damage(index.folder)
    with pytest.raises(BundleError, match=message) as caught:
        Index.open(index.folder)
    assert caught.value.hint


def change(folder: Path, **fields: object) -> None:
    merge_json(folder / "index.json", fields)


def test_content_that_was_edited_is_found_where_it_is_asked_for(tmp_path):
    index = make_index(tmp_path, DOCUMENTS)
    data = bytearray((index.folder / "0.tokens").read_bytes())
    data[3] ^= 1
    (index.folder / "0.tokens").write_bytes(data)
    read_header(index.folder)
    with pytest.raises(BundleError, match=r"0.tokens: BLAKE3 .*, expected .*: it was edited"):
        read_header(index.folder, verify=True)


def test_the_tokenizer_of_a_folder_and_of_a_bundle(tmp_path):
    (tmp_path / "bundle" / "tokenizer").mkdir(parents=True)
    inside, alone = save_tokenizer(tmp_path / "bundle" / "tokenizer"), save_tokenizer(tmp_path)
    assert find_tokenizer(tmp_path / "bundle") == inside
    assert find_tokenizer(tmp_path) == find_tokenizer(alone) == alone
