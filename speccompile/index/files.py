"""The folder of an index.

    index.json     the header, canonical JSON: see `Header`
    0.tokens       uint32 [n], big-endian: so that bytes are in the order of tokens
    0.suffixes     int32 [n], little-endian: the suffix array over them, positions counted in tokens
    1.tokens, ..   the next chunk, where the corpus has more tokens than are sorted at a time

A document ends with `SEPARATOR`, which is no token and above all of them.
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
    """kind: TOKENS or SUFFIXES."""
    return f"{chunk}.{kind}"


@dataclass(frozen=True)
class Header:
    """What an index holds. tokenizer: see `tokenizer_hash`; vocabulary_size: its tokens, added ones and all;
    largest_token: in the corpus; documents: that had text. chunks: tokens of each, separators counted. files: name ->
    {"bytes": .., "blake3": hexadecimal digits}."""

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
        """Of the corpus, without separators that end a document."""
        return sum(self.chunks) - self.documents


def read_header(folder: Path, *, verify: bool = False) -> Header:
    """The header of the index in `folder`, whose files are there and as large as it says. verify: and have the content
    that they were written with.

    Raises BundleError naming the file that is wrong.
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
    """The tokenizer.json of a model's folder or a bundle, or the file itself. Raises UsageError where there is none."""
    places = [path, path / Path(TOKENIZER).name, path / TOKENIZER]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UsageError(
            f"received the tokenizer '{path}', expected a tokenizer.json, or a model's folder or a bundle with one",
            hint="give the folder of the target that will be drafted for",
        )
    return found


def tokenizer_hash(vocabulary: dict[str, int]) -> str:
    """BLAKE3, in hexadecimal digits, of which token each number is: what an index depends on.

    vocabulary: of the tokenizer without added tokens, as `Tokenizer.get_vocab(with_added_tokens=False)` gives it. A
    model's tokenizer_config.json and whatever writes tokenizer.json again may change the rest of that file.
    """
    hasher = new_hasher()
    for token, number in sorted(vocabulary.items(), key=lambda item: (item[1], item[0])):
        hasher.update(f"{number} {token}\n".encode("utf-8", "surrogatepass"))
    return hasher.hexdigest()
