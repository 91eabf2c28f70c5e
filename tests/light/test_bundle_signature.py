"""Signatures of bundles. The keys and signatures in FILES were made by minisign 0.11 itself."""

import base64
import hashlib
import sys
from pathlib import Path

import pytest

from speccompile.bundle import open_bundle
from speccompile.bundle.hashes import hash_folder, write_hashes
from speccompile.bundle.signature import SIGNATURE, check_signature, make_keys, read_public_key, sign
from speccompile.errors import BundleError, MissingPackageError, UsageError
from tests.json_files import merge_json
from tests.light.bundle_example import write_bundle

SIGNED = b"what is signed\n"
PUBLIC = """untrusted comment: minisign public key 7336A9A9460DFEA8
RWSo/g1Gqak2c13IgwXvSlZpGd+LLRqwYaxT0j1597lvAlYLgz9ArUFN
"""
SECRET = """untrusted comment: minisign encrypted secret key
RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAqP4NRqmpNnOQ0EwAVxmUtkX74zxErN3LS/ndFJTSdjrNGEzctFhHPl3IgwXvSlZpGd+LLRqwYaxT0j1597lvAlYLgz9ArUFNAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
"""
HASHED = """untrusted comment: signature from minisign secret key
RUSo/g1Gqak2cyvEjTOaHqXkmCSf2k37Caswd7fjreCCdqQmKCFx9BK/BCIDCfOoGyQkb941EbnnvYmMbQrnFyGsPROVm9NK6QU=
trusted comment: release 3
v8zZhqy/cQWYaoQRMD4tZmFwgl9a1WFYgxUUL079yNScXKZoziHN+inbMai5KTBlCmBs3ohW0lo2n3ZPfttAAw==
"""
PLAIN = """untrusted comment: signature from minisign secret key
RWSo/g1Gqak2c2Mbvj/RqdnDlQKqHlwUAp+NMtuwXFuySgnzD/TKZIHLsBfbyDFTTAgNIqG/CVUAfs9Qklw36i/atCxpF0viEAI=
trusted comment: timestamp:1795662557\tfile:f
uEFPy8BYCqo7+uC4R8Ed5sBuzcaYPjIEuKLuNxYZ5KZTIt0hJA8l1Pg5pwMYFzwhNXiZxKSTzTpz/Pa/ZVgbAg==
"""


@pytest.fixture
def bundle(tmp_path) -> Path:
    return write_bundle(tmp_path / "bundle")


@pytest.fixture
def keys(tmp_path) -> Path:
    """Return a secret key of ours; the public one has the suffix .pub."""
    make_keys(tmp_path / "key")
    return tmp_path / "key"


def public_of(key: Path) -> Path:
    return key.with_name(f"{key.name}.pub")


@pytest.mark.parametrize(("text", "comment"), [(HASHED, "release 3"), (PLAIN, "timestamp:1795662557\tfile:f")])
def test_what_minisign_signed_is_taken(tmp_path, text, comment):
    (tmp_path / "m.pub").write_text(PUBLIC)
    (tmp_path / SIGNATURE).write_text(text)
    key = read_public_key(tmp_path / "m.pub")
    assert key.name == "7336A9A9460DFEA8"
    assert check_signature(tmp_path, SIGNED, key) == comment
    with pytest.raises(BundleError, match=r"by key 7336A9A9460DFEA8 is not of hashes\.json"):
        check_signature(tmp_path, SIGNED + b" ", key)
    (tmp_path / SIGNATURE).write_text(text.replace(comment, f"{comment}!"))
    with pytest.raises(BundleError, match="is not of its comment"):
        check_signature(tmp_path, SIGNED, key)


def test_minisign_s_own_key_signs_as_minisign_does(tmp_path):
    """Ed25519 has no chance in it: equal bytes are signed equally."""
    (tmp_path / "m.key").write_text(SECRET)
    (tmp_path / "hashes.json").write_bytes(SIGNED)
    sign(tmp_path, tmp_path / "m.key", "release 3")
    assert (tmp_path / SIGNATURE).read_text().splitlines()[1:] == HASHED.splitlines()[1:]


def test_a_signed_bundle_opens_and_no_other(bundle, keys, tmp_path, caplog):
    with pytest.raises(BundleError, match=r"minisig: expected a signature, it cannot be read: .* by key [0-9A-F]{16}"):
        open_bundle(bundle, signed_by=public_of(keys))
    made = sign(bundle, keys, "release 3, größer")
    caplog.set_level("INFO", "speccompile")
    opened = open_bundle(bundle, signed_by=str(public_of(keys)))
    assert f"signed by key {made.name}: release 3, größer" in caplog.text
    assert opened.hashes == open_bundle(bundle).hashes
    other = make_keys(tmp_path / "other")
    with pytest.raises(BundleError, match=f"the signature is by key {made.name}, expected {other.name}"):
        open_bundle(bundle, signed_by=tmp_path / "other.pub")
    merge_json(bundle / "proof.json", {"speculative": "all"})
    write_hashes(bundle, hash_folder(bundle))
    open_bundle(bundle)
    with pytest.raises(BundleError, match=r"is not of hashes\.json"):
        open_bundle(bundle, signed_by=public_of(keys))


def test_a_key_of_the_same_number_is_another_key(bundle, keys, tmp_path):
    made = sign(bundle, keys, "")
    make_keys(tmp_path / "other")
    other = read_public_key(tmp_path / "other.pub")
    (tmp_path / "other.pub").write_text(type(other)(made.number, other.key).to_text())
    with pytest.raises(BundleError, match=r"is not of hashes\.json"):
        open_bundle(bundle, signed_by=tmp_path / "other.pub")


def test_a_signature_is_of_hashes_that_are_compared(bundle, keys):
    sign(bundle, keys, "")
    with pytest.raises(UsageError, match="without comparing hashes, which the signature covers") as caught:
        open_bundle(bundle, verify=False, signed_by=public_of(keys))
    assert "--no-verify" in caught.value.hint


def test_secret_keys_are_for_their_owner_and_never_overwritten(keys):
    assert keys.stat().st_mode & 0o777 == 0o600
    before = keys.read_bytes()
    with pytest.raises(UsageError, match="key: exists, expected a new file"):
        make_keys(keys)
    assert keys.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "got 157 bytes of another kind"),
        (lambda data: data[:2] + b"Sc" + data[4:], "the key has a password, expected one without"),
        (lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:], "the key is damaged: its checksum differs"),
    ],
)
def test_a_secret_key_of_another_kind(bundle, keys, change, message):
    first, line = keys.read_text().splitlines()
    keys.write_text(f"{first}\n{base64.b64encode(change(base64.b64decode(line))).decode()}\n")
    with pytest.raises(UsageError, match=message):
        sign(bundle, keys, "")
    assert not (bundle / SIGNATURE).exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a public key of minisign, got 0 bytes of another kind"),
        (b"one\nnot base64!\n", "expected a public key of minisign, got another text"),
        (b"\xff\xfe", "got bytes that are no text"),
        (b"x\n" + base64.b64encode(b"Ed" + bytes(39)), "got 41 bytes of another kind"),
        (b"x" * 9000, "of at most 8192 bytes, got more"),
        (None, "expected a public key, it cannot be read: No such file"),
    ],
)
def test_a_public_key_of_another_kind(bundle, tmp_path, content, message):
    if content is not None:
        (tmp_path / "x.pub").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        open_bundle(bundle, signed_by=tmp_path / "x.pub")


@pytest.mark.parametrize(
    "text",
    ["", "a\nb\nc\nd\n", HASHED.replace("RUSo", "!!!!"), "\n".join(HASHED.splitlines()[:3]), HASHED[:90] + HASHED[94:]],
)
def test_a_signature_of_another_kind(bundle, keys, text):
    (bundle / SIGNATURE).write_text(text)
    with pytest.raises(BundleError, match="expected a signature of minisign, got "):
        open_bundle(bundle, signed_by=public_of(keys))


def test_a_comment_is_one_line(bundle, keys):
    with pytest.raises(UsageError, match="expected one line of text"):
        sign(bundle, keys, "one\ntwo")


def test_without_the_package_the_error_names_the_extra(bundle, keys, monkeypatch):
    sign(bundle, keys, "")
    for name in ("cryptography.hazmat.primitives.asymmetric", "cryptography.hazmat.primitives.asymmetric.ed25519"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackageError) as caught:
        open_bundle(bundle, signed_by=public_of(keys))
    assert caught.value.hint == "pip install 'speccompile[sign]'"


def test_checksums_are_blake2b(keys):
    data = base64.b64decode(keys.read_text().splitlines()[1])
    assert hashlib.blake2b(b"Ed" + data[54:126], digest_size=32).digest() == data[126:]
