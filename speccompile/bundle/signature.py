"""Signatures of bundles: who built one, which hashes cannot say. They are those of minisign (Ed25519 over BLAKE2b-512),
and it signs hashes.json, which has the hash of every file.

Formats: https://jedisct1.github.io/minisign/, sections "Signature format", "Public key format" and "Secret key format".
"""

import base64
import errno
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.bundle.hashes import HASHES
from speccompile.errors import BundleError, SpeccompileError, UsageError
from speccompile.extras import missing_package
from speccompile.machine.plain_files import read_plain

SIGNATURE = f"{HASHES}.minisig"
"""File of a bundle's signature, in its folder. It is not one of the files that hashes.json lists."""

_PREHASHED, _PLAIN = b"ED", b"Ed"
_COMMENT, _TRUSTED = "untrusted comment: ", "trusted comment: "
_NO_KDF, _CHECKSUM = b"\0\0", b"B2"
_LONGEST = 8192
"""Most bytes of a key or a signature."""


@dataclass(frozen=True)
class PublicKey:
    """A key that says who signed. number: 8 bytes that name it; key: 32 bytes of Ed25519."""

    number: bytes
    key: bytes

    @property
    def name(self) -> str:
        """Return the number as minisign prints it."""
        return self.number[::-1].hex().upper()

    def to_text(self) -> str:
        return _lines(f"{_COMMENT}minisign public key {self.name}", _PLAIN + self.number + self.key)


def read_public_key(path: Path) -> PublicKey:
    """Return the key in a file of minisign. Raise UsageError when it has none."""
    hint = "`speccompile sign --new-key FILE` makes a pair of keys, as `minisign -G -W` does"
    data = _key(path, "a public key", hint)
    if len(data) != 42 or data[:2] != _PLAIN:
        raise UsageError(f"{path}: expected a public key of minisign, got {len(data)} bytes of another kind", hint=hint)
    return PublicKey(data[2:10], data[10:])


def make_keys(path: Path) -> PublicKey:
    """Write a new secret key to `path` and its public key beside it, with the suffix .pub. Raise UsageError where
    either exists, and MissingPackageError without the cryptography package."""
    secret = _ed25519().Ed25519PrivateKey.generate()
    seed, key = secret.private_bytes_raw(), secret.public_key().public_bytes_raw()
    number = os.urandom(8)
    checksum = hashlib.blake2b(_PLAIN + number + seed + key, digest_size=32).digest()
    data = _PLAIN + _NO_KDF + _CHECKSUM + bytes(48) + number + seed + key + checksum
    public = PublicKey(number, key)
    _write_new(path, _lines(f"{_COMMENT}minisign secret key {public.name}", data), 0o600)
    _write_new(path.with_name(f"{path.name}.pub"), public.to_text(), 0o644)
    return public


def _write_new(path: Path, text: str, mode: int) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="ascii") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path}: exists, expected a new file", hint="give another name, or remove it") from None


def sign(folder: Path, key: Path, comment: str) -> PublicKey:
    """Write the signature of the bundle in `folder`. comment: a line that is signed as well.

    key: file of a secret key without a password. Return its public key. Raise UsageError for another file, and
    MissingPackageError without the cryptography package.
    """
    hint = "make a key without a password: `speccompile sign --new-key FILE`, or `minisign -G -W`"
    data = _key(key, "a secret key", hint)
    if len(data) != 158 or data[:2] != _PLAIN or data[4:6] != _CHECKSUM:
        raise UsageError(f"{key}: expected a secret key of minisign, got {len(data)} bytes of another kind", hint=hint)
    if data[2:4] != _NO_KDF:
        raise UsageError(
            f"{key}: the key has a password, expected one without",
            hint=f"sign with minisign itself: minisign -S -s {key} -m {folder / HASHES}",
        )
    number, seed, public, checksum = data[54:62], data[62:94], data[94:126], data[126:]
    expected = hashlib.blake2b(_PLAIN + number + seed + public, digest_size=32).digest()
    if checksum not in (expected, bytes(32)):  # minisign writes none without a password
        raise UsageError(f"{key}: the key is damaged: its checksum differs", hint="use a copy of it")
    if "\n" in comment or not comment.isprintable():
        raise UsageError(f"--comment: received {comment!r}, expected one line of text", hint="leave it out")
    secret = _ed25519().Ed25519PrivateKey.from_private_bytes(seed)
    made = secret.sign(hashlib.blake2b((folder / HASHES).read_bytes()).digest())
    whole = secret.sign(made + comment.encode())
    text = _lines(f"{_COMMENT}signature of a bundle, by speccompile", _PREHASHED + number + made)
    (folder / SIGNATURE).write_text(text + _lines(f"{_TRUSTED}{comment}", whole), encoding="utf-8")
    return PublicKey(number, public)


def check_signature(folder: Path, content: bytes, key: PublicKey) -> str:
    """Return the comment that was signed. content: bytes of hashes.json. Raise BundleError when the bundle has no
    signature or not that of this key, and MissingPackageError without the cryptography package."""
    path = folder / SIGNATURE
    hint = (
        "open it without --require-signature (signed_by=..) if you trust where it is from, or get it from who signed it"
    )
    try:
        lines = _read(path, "a signature", hint)
    except UsageError as error:
        raise BundleError(
            f"{error}; --require-signature (signed_by=..) asks for one by key {key.name}", hint=hint
        ) from None
    if len(lines) != 4 or not lines[0].startswith(_COMMENT) or not lines[2].startswith(_TRUSTED):
        raise BundleError(f"{path}: expected a signature of minisign, got {len(lines)} lines", hint=hint)
    data, whole = (_decoded(lines[place], path, "a signature of minisign", hint, BundleError) for place in (1, 3))
    if len(data) != 74 or len(whole) != 64 or data[:2] not in (_PREHASHED, _PLAIN):
        raise BundleError(
            f"{path}: expected a signature of minisign, got {len(data)} and {len(whole)} bytes", hint=hint
        )
    if data[2:10] != key.number:
        other = PublicKey(data[2:10], b"").name
        raise BundleError(f"{path}: the signature is by key {other}, expected {key.name}", hint=hint)
    comment = lines[2].removeprefix(_TRUSTED)
    signed = hashlib.blake2b(content).digest() if data[:2] == _PREHASHED else content
    public = _ed25519().Ed25519PublicKey.from_public_bytes(key.key)
    for signature, message, what in ((data[10:], signed, HASHES), (whole, data[10:] + comment.encode(), "its comment")):
        if not _is_valid(public, signature, message):
            raise BundleError(f"{path}: the signature by key {key.name} is not of {what}", hint=hint)
    return comment


def _is_valid(public: Any, signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise missing_package("cryptography", purpose="signatures") from None
    return ed25519


def _lines(comment: str, data: bytes) -> str:
    return f"{comment}\n{base64.b64encode(data).decode()}\n"


def _read(path: Path, what: str, hint: str) -> list[str]:
    """Return the lines of a file. Not `str.splitlines`: a comment may hold other separators."""
    try:
        lines = read_plain(path, _LONGEST).decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return lines if lines[-1] else lines[:-1]
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise UsageError(f"{path}: expected {what} of at most {_LONGEST} bytes, got more", hint=hint) from None
        raise UsageError(f"{path}: expected {what}, it cannot be read: {error.strerror}", hint=hint) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected {what}, got bytes that are no text", hint=hint) from None


def _key(path: Path, what: str, hint: str) -> bytes:
    """Return the bytes of a key, which its file has in the second line, behind a comment, or in the only one."""
    lines = _read(path, what, hint)[:2] or [""]
    return _decoded(lines[-1], path, f"{what} of minisign", hint)


def _decoded(line: str, path: Path, what: str, hint: str, error: type[SpeccompileError] = UsageError) -> bytes:
    """Return the bytes of a line in base64. Raise `error` for any other form of them than the usual one."""
    try:
        data = base64.b64decode(line, validate=True)
    except ValueError:
        data = b""
    if base64.b64encode(data).decode() != line:
        raise error(f"{path}: expected {what}, got another text", hint=hint)
    return data
