"""Build the folder of an index from texts. A journal records the progress, so that an interrupted build can resume.

The work lies in a hidden folder next to the output, and is renamed when it is complete. It resumes if the tokenizer,
the field and the content of every file are unchanged; otherwise it starts again.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from speccompile.bundle.folders import lock_folder, sync, write_atomically
from speccompile.bundle.hashes import hash_file
from speccompile.bundle.manifest import canonical_json
from speccompile.bundle.writer import as_build_error
from speccompile.errors import BuildError, SpeccompileError
from speccompile.index.chunking import batched_by_size
from speccompile.index.corpus import START, Corpus, Piece, ReadPosition, find_corpus
from speccompile.index.files import (
    FORMAT,
    HEADER,
    SEPARATOR,
    SUFFIXES,
    TOKEN_BYTES,
    TOKENS,
    Header,
    file_name,
    find_tokenizer,
    tokenizer_hash,
)
from speccompile.index.suffixes import suffix_array
from speccompile.machine.plain_files import read_plain
from speccompile.progress import LOGGER, progress_counter

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHUNK = 1 << 25
"""Tokens of a chunk, which are sorted together and need about 50 bytes each: 1.7 GB."""
BATCH = 4 << 20
"""Characters of a batch, which all cores tokenize together."""
JOURNAL = "journal.json"


@dataclass(frozen=True)
class Journal:
    """Progress of a build. key: its inputs; place: read position in the corpus; closed: token counts of full chunks;
    open: token count of the last, incomplete chunk; documents: number of completed ones; largest: largest token id."""

    key: dict[str, Any]
    place: ReadPosition = START
    closed: tuple[int, ...] = ()
    open: int = 0
    documents: int = 0
    largest: int = -1

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Journal":
        return cls(**(data | {"place": ReadPosition(**data["place"]), "closed": tuple(data["closed"])}))

    @property
    def chunks(self) -> tuple[int, ...]:
        """Return the token counts of all chunks."""
        return (*self.closed, self.open) if self.open else self.closed


def build_index(
    texts: list[Path], tokenizer: Path, output: Path, *, field: str = "text", chunk: int = CHUNK, batch: int = BATCH
) -> Header:
    """Write the index of a corpus to a new folder `output`.

    texts: .jsonl files with a document in `field` of every line, text files, and folders of both. tokenizer: a
    tokenizer.json, or a folder or bundle with one. chunk: tokens per chunk. batch: characters per batch.

    Raise BuildError, naming file and line, for a corpus that cannot be read or has no text, and for an output that
    cannot be written; UsageError without a tokenizer.
    """
    with as_build_error(f"the index could not be written to {output}"):
        if output.exists():
            raise BuildError(f"the output {output} exists, expected a folder to be made", hint="give another --output")
        file = find_tokenizer(tokenizer)
        model, corpus = _load(file), find_corpus(texts, field)
        vocabulary = tokenizer_hash(model.get_vocab(with_added_tokens=False))
        key = {"format": FORMAT, "tokenizer": hash_file(file), "field": field, "chunk": chunk, "batch": batch}
        work = output.parent / f".{output.name}.index"
        stamps = corpus.stamps()
        with _locked(work):
            journal = _known(work, key | {"corpus": corpus.content()})
            journal = _tokenize(corpus, model, journal, work, (chunk, batch))
            if corpus.stamps() != stamps:
                raise BuildError("a file of the corpus changed while it was read", hint="begin again when it is whole")
            if journal.largest < 0:
                raise BuildError(
                    f"the corpus has no text: {len(corpus.files)} files with {corpus.size} bytes give no token",
                    hint="give files with text; documents of .jsonl files are what --field names",
                )
            _sort(journal.chunks, work)
            header = _finish(journal, vocabulary, model.get_vocab_size(), work)
            sync(work, *work.iterdir())
            work.rename(output)
            sync(output.parent)
    return header


def _load(file: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        model = Tokenizer.from_buffer(read_plain(file))
    except ValueError as error:
        raise BuildError(f"{file}: received no tokenizer: {error}", hint="give the target's tokenizer.json") from None
    model.no_truncation()
    model.no_padding()
    return model


@contextlib.contextmanager
def _locked(work: Path) -> Iterator[None]:
    work.mkdir(parents=True, exist_ok=True)
    lock = lock_folder(work)
    if lock is None:
        raise BuildError(f"another process is building the index in {work}", hint="wait for it, or end it")
    try:
        yield
    except SpeccompileError:
        shutil.rmtree(work)  # the error must be fixed first, so nothing can be resumed
        raise
    except BaseException:
        LOGGER.info("finished work lies in %s: the same command goes on from there", work)
        raise
    finally:
        os.close(lock)


def _known(work: Path, key: dict[str, Any]) -> Journal:
    """Return the journal of an interrupted build with this key. Remove the files of any other build."""
    path = work / JOURNAL
    if path.is_file():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            journal = Journal.from_json(json.loads(path.read_bytes()))
            if journal.key == key and _has_tokens(work, journal):
                LOGGER.info("going on with a build that was interrupted: %d tokens are there", sum(journal.chunks))
                return journal
        LOGGER.warning("note: %s holds an interrupted build of another corpus; starting over", work)
    for old in work.iterdir():
        old.unlink()
    return Journal(key)


def _has_tokens(work: Path, journal: Journal) -> bool:
    """Return whether the files hold at least the journal's tokens."""
    files = [work / file_name(number, TOKENS) for number in range(len(journal.chunks))]
    counts = zip(files, journal.chunks, strict=True)
    return all(file.is_file() and file.stat().st_size >= TOKEN_BYTES * count for file, count in counts)


def _tokenize(corpus: Corpus, model: "Tokenizer", journal: Journal, work: Path, sizes: tuple[int, int]) -> Journal:
    """Write the missing tokens. sizes: tokens per chunk, characters per batch."""
    chunk, batch = sizes
    places = list(corpus.stamps())
    done = sum(size for size, _ in places[: journal.place.file]) + journal.place.offset
    with progress_counter("tokenizing", corpus.size - done, "bytes") as advance:
        for pieces in batched_by_size(corpus.pieces(journal.place), lambda piece: len(piece.text), batch):
            before = journal
            journal = _add(pieces, model, journal, work, chunk)
            advance(_distance(before.place, journal.place, [size for size, _ in places]))
    return journal


def _distance(start: ReadPosition, end: ReadPosition, sizes: list[int]) -> int:
    return sum(sizes[start.file : end.file]) - start.offset + end.offset


def _add(pieces: list[Piece], model: "Tokenizer", journal: Journal, work: Path, chunk: int) -> Journal:
    """Tokenize pieces, append their tokens to the open chunk, and then write the journal."""
    found = model.encode_batch_fast([piece.text for piece in pieces], add_special_tokens=False)
    path = work / file_name(len(journal.closed), TOKENS)
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(TOKEN_BYTES * journal.open)
        is_open, rows = _in_document(file, journal.open), list[list[int]]()
        documents, largest = journal.documents, journal.largest
        for piece, encoding in zip(pieces, found, strict=True):
            rows.append(encoding.ids)
            is_open |= bool(encoding.ids)
            largest = max(largest, max(encoding.ids, default=-1))
            if piece.ends and is_open:
                rows.append([SEPARATOR])
                documents, is_open = documents + 1, False
        tokens = np.fromiter(chain.from_iterable(rows), ">u4")
        file.seek(0, os.SEEK_END)
        tokens.tofile(file)
    journal = replace(
        journal, place=pieces[-1].next_position, open=journal.open + len(tokens), documents=documents, largest=largest
    )
    if journal.open >= chunk:
        journal = replace(journal, closed=(*journal.closed, journal.open), open=0)
    write_atomically(work / JOURNAL, canonical_json(asdict(journal)))
    return journal


def _in_document(file: Any, tokens: int) -> bool:
    """Return whether the file's first `tokens` tokens end within a document."""
    if not tokens:
        return False
    file.seek(TOKEN_BYTES * (tokens - 1))
    return bool(int.from_bytes(file.read(TOKEN_BYTES), "big") != SEPARATOR)


def _sort(chunks: tuple[int, ...], work: Path) -> None:
    """Write the missing suffix arrays."""
    paths = [work / file_name(number, SUFFIXES) for number in range(len(chunks))]
    missing = [number for number, path in enumerate(paths) if not path.is_file()]
    with progress_counter("sorting suffixes", sum(chunks[number] for number in missing), "tokens") as advance:
        for number in missing:
            tokens = np.fromfile(work / file_name(number, TOKENS), ">u4", chunks[number]).astype(np.uint32)
            part = paths[number].with_suffix(".part")
            suffix_array(tokens).astype("<i4").tofile(part)
            part.rename(paths[number])
            advance(chunks[number])


def _finish(journal: Journal, tokenizer: str, vocabulary_size: int, work: Path) -> Header:
    """Write the header and remove all files that are not part of the index."""
    names = [file_name(number, kind) for number in range(len(journal.chunks)) for kind in (TOKENS, SUFFIXES)]
    for number, count in enumerate(journal.chunks):
        os.truncate(work / file_name(number, TOKENS), TOKEN_BYTES * count)
    files = {name: {"bytes": (work / name).stat().st_size, "blake3": hash_file(work / name)} for name in names}
    header = Header(FORMAT, tokenizer, vocabulary_size, journal.largest, journal.documents, journal.chunks, files)
    (work / HEADER).write_bytes(canonical_json(header.to_json()))
    for other in work.iterdir():  # the journal, too, as late as possible
        if other.name not in (*files, HEADER):
            other.unlink()
    return header
