"""Folder of an index.

    index.json     the header, canonical JSON: see `Header`
    0.tokens       uint32 [n], big-endian, so that bytes compare like tokens
    0.suffixes     int32 [n], little-endian: the suffix array of the tokens, positions counted in tokens
    1.tokens, ..   the next chunk, if the corpus has more tokens than one chunk

A document ends with `SEPARATOR`, which is no token and greater than all tokens.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speccompile.bundle.hashes import hash_file, new_hasher, read_json
from speccompile.bundle.manifest import TOKENIZER
from speccompile.errors import BundleError, UsageError

FORMAT = 1
HEADER = "index.json"
SEPARATOR = 2**32 - 1
TOKEN_BYTES = 4
TOKENS, SUFFIXES = "tokens", "suffixes"

_AGAIN = "build it again with `speccompile index`"


def file_name(chunk: int, kind: str) -> str:
    """Return the file name of a chunk. kind: TOKENS or SUFFIXES."""
    return f"{chunk}.{kind}"


@dataclass(frozen=True)
class Header:
    """Header of an index. tokenizer: see `tokenizer_hash`; vocabulary_size: of the tokenizer, with added tokens;
    largest_token: largest id in the corpus; documents: number of documents with text. chunks: token count per chunk,
    with separators. files: name -> {"bytes": .., "blake3": hexadecimal digits}."""

    format: int
    tokenizer: str
    vocabulary_size: int
    largest_token: int
    documents: int
    chunks: tuple[int, ...]
    files: dict[str, dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"chunks": list(self.chunks)}

    @property
    def tokens(self) -> int:
        """Number of tokens of the corpus, without separators."""
        return sum(self.chunks) - self.documents


def read_header(folder: Path, *, verify: bool = False) -> Header:
    """Read the header of the index in `folder`, and check that its files exist with the recorded sizes. verify: check
    their hashes, too.

    Raise BundleError naming the invalid file.
    """
    path = folder / HEADER
    if not path.is_file():
        raise BundleError(
            f"{folder}: expected an index: no {HEADER} lies in it",
            hint="give the folder that `speccompile index` wrote",
        )
    header = _parse(read_json(path), path)
    for name, record in header.files.items():
        _check_file(folder / name, record, verify=verify)
    return header


def _parse(data: Any, path: Path) -> Header:
    if isinstance(data, dict) and data.get("format") not in (None, FORMAT):
        raise BundleError(f"{path}: received format {data['format']!r}, this speccompile reads {FORMAT}", hint=_AGAIN)
    try:
        header = Header(**(data | {"chunks": tuple(data["chunks"])}))
        expected = {
            file_name(chunk, kind): TOKEN_BYTES * count
            for chunk, count in enumerate(header.chunks)
            for kind in (TOKENS, SUFFIXES)
        }
        found = {name: record["bytes"] for name, record in header.files.items()}
    except (TypeError, KeyError, AttributeError) as error:
        raise BundleError(f"{path}: received no header of an index: {error}", hint=_AGAIN) from None
    if found != expected:
        raise BundleError(f"{path}: received files {found}, expected {expected} by its chunks", hint=_AGAIN)
    return header


def _check_file(path: Path, record: dict[str, Any], *, verify: bool) -> None:
    if not path.is_file():
        raise BundleError(f"{path}: the file is missing; {HEADER} lists it", hint=_AGAIN)
    if (size := path.stat().st_size) != record["bytes"]:
        raise BundleError(f"{path}: has {size} bytes, expected {record['bytes']}: it was truncated", hint=_AGAIN)
    if verify and (found := hash_file(path)) != record["blake3"]:
        raise BundleError(f"{path}: BLAKE3 {found}, expected {record['blake3']}: it was edited", hint=_AGAIN)


def find_tokenizer(path: Path) -> Path:
    """Return the tokenizer.json of a model folder or bundle, or the file itself. Raise UsageError without one."""
    places = [path, path / Path(TOKENIZER).name, path / TOKENIZER]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UsageError(
            f"received the tokenizer '{path}', expected a tokenizer.json, or a model's folder or a bundle with one",
            hint="give the folder of the target that will be drafted for",
        )
    return found


def tokenizer_hash(vocabulary: dict[str, int]) -> str:
    """Return BLAKE3, in hexadecimal digits, of the map from ids to tokens, on which an index depends.

    vocabulary: `Tokenizer.get_vocab(with_added_tokens=False)`. The rest of tokenizer.json is excluded: a model's
    tokenizer_config.json and programs that rewrite the file may change it.
    """
    hasher = new_hasher()
    for token, number in sorted(vocabulary.items(), key=lambda item: (item[1], item[0])):
        hasher.update(f"{number} {token}\n".encode("utf-8", "surrogatepass"))
    return hasher.hexdigest()
