"""Signatures in both runtimes: the same bundles open, and others are refused in the same words."""

import base64
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from speccompile.bundle import open_bundle
from speccompile.bundle.hashes import HASHES, hash_folder, write_hashes
from speccompile.bundle.signature import SIGNATURE, PublicKey, make_keys, read_public_key, sign
from tests.json_files import merge_json
from tests.light.bundle_example import write_bundle
from tests.light.test_bundle_signature import HASHED, PUBLIC, SECRET, public_of
from tests.native.bundle_lines import Lines, outcome
from tests.native.native_api import NativeBundle
from tests.native.native_errors import NativeBundleError, NativeUsageError
from tests.native.toy_onnx import write_arithmetic_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return a bundle, and beside it key and key.pub, which have signed it."""
    folder = write_bundle(tmp_path / "bundle")
    make_keys(tmp_path / "key")
    sign(folder, tmp_path / "key", "release 3, größer")
    return folder


def seal(folder: Path) -> None:
    write_hashes(folder, hash_folder(folder))


def edit(folder: Path) -> None:
    merge_json(folder / "proof.json", {"speculative": "all"})
    seal(folder)


def sign_plain(folder: Path) -> None:
    """Sign as minisign does with -l: the bytes themselves, not their hash."""
    secret = Ed25519PrivateKey.from_private_bytes(
        base64.b64decode((folder.parent / "key").read_text().split("\n")[1])[62:94]
    )
    key = read_public_key(folder.parent / "key.pub")
    made = secret.sign((folder / HASHES).read_bytes())
    rows = ["untrusted comment: x", b"Ed" + key.number + made, "trusted comment: plain", secret.sign(made + b"plain")]
    texts = [row if isinstance(row, str) else base64.b64encode(row).decode() for row in rows]
    (folder / SIGNATURE).write_text("\n".join(texts))


def take_number(folder: Path) -> None:
    """Return another key with the number of the one that signed."""
    signer = read_public_key(folder.parent / "key.pub")
    other = make_keys(folder.parent / "other")
    (folder.parent / "key.pub").write_text(PublicKey(signer.number, other.key).to_text())


def take_another(folder: Path) -> None:
    (folder.parent / "key").rename(folder.parent / "signer")
    (folder.parent / "key.pub").unlink()
    make_keys(folder.parent / "key")


def sign_by_minisign(folder: Path) -> None:
    (folder.parent / "key").write_text(SECRET)
    (folder.parent / "key.pub").write_text(PUBLIC)
    sign(folder, folder.parent / "key", "release 3")


def write_signature(text: str | bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / SIGNATURE).write_bytes(text if isinstance(text, bytes) else text.encode())


def write_key(text: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder.parent / "key.pub").write_bytes(text)


def change_line(number: int, change: Callable[[str], str]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        rows = (folder / SIGNATURE).read_text().splitlines()
        rows[number] = change(rows[number])
        (folder / SIGNATURE).write_text("\n".join(rows) + "\n")

    return write


TAKEN = {"it is": lambda folder: None, "plain": sign_plain, "minisign": sign_by_minisign}
REFUSED = {
    "unsigned": lambda folder: (folder / SIGNATURE).unlink(),
    "edited": edit,
    "another key": take_another,
    "its number": take_number,
    "another comment": change_line(2, lambda line: f"{line}!"),
    "one bit": change_line(1, lambda line: line[:40] + ("A" if line[40] != "A" else "B") + line[41:]),
    "of other bytes": write_signature(HASHED),
    "no lines": write_signature(""),
    "four lines": write_signature("a\nb\nc\nd\n"),
    "three lines": write_signature("\n".join(HASHED.splitlines()[:3])),
    "no base64": change_line(1, lambda line: "!!!!" + line[4:]),
    "a letter less": change_line(3, lambda line: line[1:]),
    "four letters less": change_line(1, lambda line: line[4:]),
    "padding within": change_line(1, lambda line: line[:8] + "====" + line[12:]),
    "no text": write_signature(b"\xff\xfe"),
    "a long one": write_signature("x" * 9000),
    "an empty key": write_key(b""),
    "a key of letters": write_key(b"one\nnot base64!\n"),
    "a key that is no text": write_key(b"\xff\xfe"),
    "a short key": write_key(b"x\n" + base64.b64encode(b"Ed" + bytes(39))),
    "a long key": write_key(b"x" * 9000),
    "no key": lambda folder: (folder.parent / "key.pub").unlink(),
    "a folder as key": lambda folder: (folder.parent / "key.pub").unlink() or (folder.parent / "key.pub").mkdir(),
}  # fmt: skip


def both(lines: Lines, folder: Path, *, verify: bool = True) -> list[tuple[object, ...]]:
    key = str(public_of(folder.parent / "key"))
    return [
        outcome(lambda: lines.ask("open", str(folder), verify=verify, signed_by=key)["digest"]),
        outcome(lambda: open_bundle(folder, verify=verify, signed_by=key).hashes.digest),
    ]


@pytest.mark.parametrize("name", TAKEN)
def test_a_signed_bundle_opens_and_says_by_whom(
    lines: Lines, bundle: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    TAKEN[name](bundle)
    caplog.set_level("INFO", "speccompile")
    ours, theirs = both(lines, bundle)
    assert ours == theirs
    assert len(ours) == 1
    (said,) = [record.message for record in caplog.records if "signed by" in record.message]
    assert said in lines.told


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused_in_the_same_words(lines: Lines, bundle: Path, name: str) -> None:
    REFUSED[name](bundle)
    ours, theirs = both(lines, bundle)
    assert len(ours) == 3
    assert ours == theirs


def test_a_signature_is_of_hashes_that_are_compared(lines: Lines, bundle: Path) -> None:
    ours, theirs = both(lines, bundle, verify=False)
    assert ours[0] == "UsageError"
    assert ours == theirs


def test_the_abi_and_the_command_require_it(
    tmp_path: Path, native_build: Path, native_library: Path, onnxruntime_library: Path
) -> None:
    folder = write_arithmetic_bundle(tmp_path / "bundle")
    make_keys(tmp_path / "key")
    key, libraries = tmp_path / "key.pub", {"library": native_library, "onnxruntime": onnxruntime_library}
    command = [native_build / "speccompile-native", "-q", "inspect", folder, "--require-signature", key]
    with pytest.raises(NativeBundleError, match=r"--require-signature \(signed_by=..\) asks for one by key"):
        NativeBundle(folder, signed_by=key, **libraries)
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"error: {folder}/{SIGNATURE}: expected a signature, it cannot be read")
    sign(folder, tmp_path / "key", "")
    assert NativeBundle(folder, signed_by=key, **libraries).manifest["vocabulary_size"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    with pytest.raises(NativeUsageError, match="signed_by: received an empty text"):
        NativeBundle(folder, signed_by="", **libraries)
    empty = subprocess.run([*command[:-1], ""], capture_output=True, text=True, check=False)
    assert empty.returncode == 2, empty.stderr
