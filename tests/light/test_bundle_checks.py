"""What a reader refuses although it looks almost right: hashes that begin alike, tables that have the right length."""

import json
from pathlib import Path

import pytest

from speccompile.bundle import open_bundle
from speccompile.bundle.hashes import HASHES, FileRecord, Hashes, check_files, hash_folder, read_hashes, write_hashes
from speccompile.bundle.manifest import MANIFEST, Manifest, canonical_json
from speccompile.errors import BundleError
from tests.light.bundle_example import WEIGHTS, several_rows, tensorrt_entries, write_bundle

GRAPH = "graphs/weights.bin"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "bundle", **several_rows())


def with_record(folder: Path, record: FileRecord) -> None:
    """Return the list of hashes with another record of one file, and the digest of that list."""
    hashes = hash_folder(folder)
    files = hashes.files | {GRAPH: record}
    from speccompile.bundle.hashes import _digest

    write_hashes(folder, Hashes(_digest(files), files))


@pytest.mark.parametrize("place", range(0, 64, 7))
def test_a_hash_that_differs_in_one_digit(bundle, place):
    true = hash_folder(bundle).files[GRAPH]
    digit = "0" if true.blake3[place] != "0" else "1"
    with_record(bundle, FileRecord(true.blake3[:place] + digit + true.blake3[place + 1 :], true.size))
    with pytest.raises(BundleError, match="the file was edited: BLAKE3"):
        open_bundle(bundle)
    open_bundle(bundle, verify=False)


@pytest.mark.parametrize("more", ["", "0", "ab"])
@pytest.mark.parametrize("kept", [0, 8, 32, 63, 64])
def test_a_hash_of_another_length(bundle, kept, more):
    true = hash_folder(bundle).files[GRAPH]
    if kept == 64 and not more:
        return
    with_record(bundle, FileRecord(true.blake3[:kept] + more, true.size))
    with pytest.raises(BundleError, match="the file was edited: BLAKE3"):
        open_bundle(bundle)


@pytest.mark.parametrize("change", [-len(WEIGHTS), -1, 1, 1 << 40])
def test_a_size_that_is_not_the_file_s(bundle, change):
    true = hash_folder(bundle).files[GRAPH]
    with_record(bundle, FileRecord(true.blake3, true.size + change))
    for verify in (True, False):
        with pytest.raises(BundleError, match=f"has {true.size} bytes, expected {true.size + change}"):
            open_bundle(bundle, verify=verify)


@pytest.mark.parametrize("place", [0, 1, 8, 31, 63])
def test_a_digest_that_differs_in_one_digit(bundle, place):
    hashes = hash_folder(bundle)
    digit = "0" if hashes.digest[place] != "0" else "1"
    write_hashes(bundle, Hashes(hashes.digest[:place] + digit + hashes.digest[place + 1 :], hashes.files))
    for check in (open_bundle, read_hashes):  # whoever does not say so wants it verified
        with pytest.raises(BundleError, match="the file was edited: digest"):
            check(bundle)
    open_bundle(bundle, verify=False)
    read_hashes(bundle, verify=False)


def test_files_are_verified_unless_somebody_says_otherwise(bundle):
    hashes = hash_folder(bundle)
    (bundle / GRAPH).write_bytes(bytes(len(WEIGHTS)))
    with pytest.raises(BundleError, match="the file was edited: BLAKE3"):
        check_files(bundle, hashes)
    check_files(bundle, hashes, verify=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + b"\n",
        lambda text: text[:-1],
        lambda text: b" " + text,
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.replace(b": ", b":"),
    ],
)
def test_hashes_in_another_form(bundle, change):
    (bundle / HASHES).write_bytes(change((bundle / HASHES).read_bytes()))
    for verify in (True, False):
        with pytest.raises(BundleError, match="not canonical JSON"):
            open_bundle(bundle, verify=verify)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(more=1),
        lambda data: data["files"][GRAPH].update(more=1),
        lambda data: data["files"][GRAPH].update(bytes=True),
        lambda data: data["files"][GRAPH].update(bytes="2048"),
        lambda data: data["files"][GRAPH].pop("bytes"),
        lambda data: data["files"][GRAPH].update(blake3=7),
        lambda data: data.update(digest=None),
        lambda data: data.update(files=[]),
    ],
)
def test_records_of_another_kind(bundle, change):
    data = json.loads((bundle / HASHES).read_bytes())
    change(data)
    (bundle / HASHES).write_bytes(canonical_json(data))
    for verify in (True, False):
        with pytest.raises(BundleError, match=r"expected [{]"):
            open_bundle(bundle, verify=verify)


def rewritten(folder: Path, change) -> None:
    """Write the manifest with a change, and hashes that know of it."""
    data = json.loads((folder / MANIFEST).read_bytes())
    change(data)
    (folder / MANIFEST).write_bytes(canonical_json(data))
    write_hashes(folder, hash_folder(folder))


def versions(name: str, version: object):
    return lambda data: data.update({name: version})


@pytest.mark.parametrize("name", ["format", "contract"])
@pytest.mark.parametrize(
    ("version", "message"),
    [(1, "version 1, this"), (2, "version 2, this"), (4, "version 4, this"), (-3, "version -3"),
     (True, "expected a number"), ("3", "expected a number"), (3.0, "expected a number"), (None, "expected a number"),
     (2**70, "version 1180"), (-(2**70), "version -1180")],
)  # fmt: skip
def test_any_other_version(bundle, name, version, message):
    rewritten(bundle, versions(name, version))
    with pytest.raises(BundleError, match=message) as caught:
        open_bundle(bundle)
    if message.startswith("version") and isinstance(version, int):
        assert caught.value.hint is not None
        assert ("upgrade" in caught.value.hint) == (version > 3)


def buffer(data, field: str, value: object) -> None:
    data["buffers"][0][field] = value


EDITS = {
    "a buffer's dtype": (lambda data: buffer(data, "dtype", "int32"), "buffers are not those of its graphs"),
    "a buffer's shape": (lambda data: buffer(data, "shape", [7]), "buffers are not those of its graphs"),
    "a buffer's role": (lambda data: buffer(data, "role", "link"), "buffers are not those of its graphs"),
    "buffers in another order": (lambda data: data["buffers"].reverse(), "buffers are not those of its graphs"),
    "a buffer less": (lambda data: data["buffers"].pop(), "buffers are not those of its graphs"),
    "an alias of another input": (
        lambda data: data["graphs"][0]["aliases"].update({"target.key.0.out": "window"}),
        "aliases are",
    ),
    "no alias": (lambda data: data["graphs"][0]["aliases"].clear(), "aliases are"),
    "an unknown field": (lambda data: data.update(more=1), "unknown field 'more'"),
    "two unknown fields": (lambda data: data.update(more=1, again=2), "unknown field 'again', 'more'"),
    "an unknown field of an engine": (lambda data: data["engines"][0].update(more=1), "unknown field 'more'"),
    "an unknown field of a tensor": (
        lambda data: data["graphs"][0]["inputs"][0].update(more=1),
        "unknown field 'more'",
    ),
    "a count that is true": (lambda data: data.update(tokens=True), "expected int, got bool"),
    "a truth that is a number": (lambda data: data.update(exact=1), "expected bool, got int"),
    "a size that is true": (
        lambda data: data["graphs"][0]["inputs"][0].update(shape=[True, "window"]),
        "expected int, got bool",
    ),
    "an end that is a text": (lambda data: data.update(eos_token_ids=[2, "3"]), r"eos_token_ids\[1\]: expected int"),
    "a file more": (lambda data: data["engines"][0]["files"].update(draft="graphs/verify.onnx"), "has files for"),
    "no file": (lambda data: data["engines"][0]["files"].clear(), "has files for"),
    "a file under another name": (
        lambda data: data["engines"][0].update(files={"step": "graphs/verify.onnx"}),
        "has files for",
    ),
    "a file that is not listed": (
        lambda data: data["engines"][0]["files"].update(verify="graphs/other.onnx"),
        "the bundle needs 'graphs/other.onnx'",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_manifest_that_is_almost_right(bundle, name):
    change, message = EDITS[name]
    rewritten(bundle, change)
    with pytest.raises(BundleError, match=message):
        open_bundle(bundle)


def test_an_engine_that_waits_needs_what_it_is_built_from(tmp_path):
    folder = write_bundle(tmp_path / "bundle", engines=tensorrt_entries())
    open_bundle(folder)
    for field in ("sources", "settings"):
        made = write_bundle(tmp_path / field, engines=tensorrt_entries())
        rewritten(made, lambda data, field=field: data["engines"][0]["build"][field].clear())
        with pytest.raises(BundleError, match="has files for"):
            open_bundle(made)


@pytest.mark.parametrize(
    "name", ["manifest.json", "lock.json", "proof.json", "tokenizer/tokenizer.json", "graphs/verify.onnx"]
)
def test_what_a_bundle_needs_is_listed(bundle, name):
    hashes = hash_folder(bundle)
    files = {path: record for path, record in hashes.files.items() if path != name}
    from speccompile.bundle.hashes import _digest

    write_hashes(bundle, Hashes(_digest(files), files))
    with pytest.raises(BundleError, match=f"the bundle needs '{name}'"):
        open_bundle(bundle)


def test_a_manifest_is_what_its_json_says(bundle):
    opened = open_bundle(bundle).manifest
    assert Manifest.from_json(opened.to_json()) == opened
