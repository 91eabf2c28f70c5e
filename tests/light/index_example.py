"""A tokenizer of letters, and an index over a corpus of them."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from speccompile.bundle.hashes import hash_file
from speccompile.bundle.manifest import canonical_json
from speccompile.index.build import build_index
from speccompile.index.files import FORMAT, HEADER, SEPARATOR, SUFFIXES, TOKENS, Header, file_name
from speccompile.index.search import Index
from speccompile.index.suffixes import suffix_array

LETTERS = "abcdefgh"


def save_tokenizer(folder: Path, letters: str = LETTERS) -> Path:
    """Return one token a letter, in their order."""
    tokenizer = Tokenizer(models.WordLevel({letter: number for number, letter in enumerate(letters)}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.enable_truncation(3)  # which an index must not heed
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def write_documents(file: Path, documents: Sequence[str]) -> Path:
    file.write_text("".join(json.dumps({"text": each}) + "\n" for each in documents))
    return file


def make_index(folder: Path, documents: Sequence[str], **sizes: int) -> Index:
    folder.mkdir(parents=True, exist_ok=True)
    corpus, tokenizer = write_documents(folder / "corpus.jsonl", documents), save_tokenizer(folder)
    build_index([corpus], tokenizer, folder / "index", **sizes)
    return Index.open(folder / "index", verify=True)


def write_index(folder: Path, chunks: Sequence[np.ndarray], tokenizer: str, vocabulary_size: int) -> None:
    """Write the index of tokens, uint32 [n] a chunk, which no text needs to give. tokenizer: the hash of its
    vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for number, tokens in enumerate(chunks):
        for kind, numbers in ((TOKENS, tokens.astype(">u4")), (SUFFIXES, suffix_array(tokens).astype("<i4"))):
            path = folder / file_name(number, kind)
            numbers.tofile(path)
            files[path.name] = {"bytes": path.stat().st_size, "blake3": hash_file(path)}
    sizes, documents = tuple(map(len, chunks)), sum(int((tokens == SEPARATOR).sum()) for tokens in chunks)
    header = Header(FORMAT, tokenizer, vocabulary_size, vocabulary_size - 1, documents, sizes, files)
    (folder / HEADER).write_bytes(canonical_json(header.to_json()))


def ids(text: str) -> list[int]:
    return [LETTERS.index(letter) for letter in text]


def chunk_tokens(index: Index) -> list[list[int]]:
    """Return the tokens of every chunk, ends of documents as SEPARATOR."""
    return [chunk.tokens.tolist() for chunk in index._chunks]


def documents_of(index: Index) -> list[str]:
    found = [""]
    for token in (token for chunk in chunk_tokens(index) for token in chunk):
        if token == SEPARATOR:
            found.append("")
        else:
            found[-1] += LETTERS[token]
    return found[:-1]
