"""What a reader refuses although it looks almost right: hashes that begin alike, tables that have the right length."""

from pathlib import Path

import pytest

from speccompile.bundle import open_bundle
from speccompile.bundle.hashes import (
    HASHES,
    FileRecord,
    Hashes,
    _digest,
    check_files,
    hash_folder,
    read_hashes,
    write_hashes,
)
from speccompile.bundle.manifest import MANIFEST, Manifest
from speccompile.errors import BundleError
from tests.light.bundle_example import WEIGHTS, several_rows, tensorrt_entries, write_bundle
from tests.light.test_bundle_reader import GRAPH, edit, hash_again


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "bundle", **several_rows())


def with_record(folder: Path, record: FileRecord | None, name: str = GRAPH) -> None:
    """List the files of a folder with another record of one of them, or without it; the digest is that of the list."""
    files = {**hash_folder(folder).files, name: record}
    files = {path: each for path, each in files.items() if each is not None}
    write_hashes(folder, Hashes(_digest(files), files))


def with_another_digit(text: str, place: int) -> str:
    return text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]


@pytest.mark.parametrize("place", range(0, 64, 7))
def test_a_hash_that_differs_in_one_digit(bundle, place):
    true = hash_folder(bundle).files[GRAPH]
    with_record(bundle, FileRecord(with_another_digit(true.blake3, place), true.size))
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
    write_hashes(bundle, Hashes(with_another_digit(hashes.digest, place), hashes.files))
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


LIST = r"hashes\.json: expected {\"digest\": text, \"files\": object} and nothing else"
RECORD = r"hashes\.json: .*: expected {\"blake3\": text, \"bytes\": number}, got "


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(more=1), LIST),
        (lambda data: data.update(digest=None), LIST),
        (lambda data: data.update(files=[]), LIST),
        (lambda data: data["files"].update(x=1), RECORD + "1"),
        (lambda data: data["files"][GRAPH].update(more=1), RECORD),
        (lambda data: data["files"][GRAPH].update(bytes=True), RECORD),
        (lambda data: data["files"][GRAPH].update(bytes="2048"), RECORD),
        (lambda data: data["files"][GRAPH].pop("bytes"), RECORD),
        (lambda data: data["files"][GRAPH].update(blake3=7), RECORD),
    ],
)
def test_records_of_another_kind(bundle, change, message):
    edit(bundle / HASHES, change)
    for verify in (True, False):
        with pytest.raises(BundleError, match=message):
            open_bundle(bundle, verify=verify)


def rewritten(folder: Path, change) -> None:
    """Write the manifest with a change, and hashes that know of it."""
    edit(folder / MANIFEST, change)
    hash_again(folder)


@pytest.mark.parametrize("name", ["format", "contract"])
@pytest.mark.parametrize(
    ("version", "hint"),
    [(1, "build the bundle again"), (2, "build the bundle again"), (4, "upgrade speccompile"),
     (-3, "build the bundle again"), (2**70, "upgrade"), (-(2**70), "again")],
)  # fmt: skip
def test_any_other_version(bundle, name, version, hint):
    rewritten(bundle, lambda data: data.update({name: version, "news": 1}))
    message = rf"manifest\.json: the bundle has {name} version {version}, this speccompile reads {name} version 3"
    with pytest.raises(BundleError, match=message) as caught:
        open_bundle(bundle)
    assert hint in caught.value.hint


@pytest.mark.parametrize("name", ["format", "contract"])
@pytest.mark.parametrize("version", [True, "3", 3.0, None])
def test_a_version_that_is_no_number(bundle, name, version):
    rewritten(bundle, lambda data: data.update({name: version}))
    with pytest.raises(BundleError, match=rf"manifest\.json: expected a number in '{name}', got {version!r}"):
        open_bundle(bundle)


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
    "no file": (
        lambda data: data["engines"][0]["files"].clear(),
        r"engine 'onnxruntime-cpu' has files for \[\], the graphs are \['verify'\]",
    ),
    "a file under another name": (
        lambda data: data["engines"][0].update(files={"step": "graphs/verify.onnx"}),
        "has files for",
    ),
    "a file that is not listed": (
        lambda data: data["engines"][0]["files"].update(verify="graphs/other.onnx"),
        r"manifest\.json: the bundle needs 'graphs/other.onnx', which hashes\.json does not list",
    ),
    "a file outside": (
        lambda data: data["engines"][0]["files"].update(verify="../outside.onnx"),
        r"manifest\.json: the bundle needs '../outside.onnx', which hashes\.json does not list",
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
    with_record(bundle, None, name)
    with pytest.raises(BundleError, match=f"the bundle needs '{name}'"):
        open_bundle(bundle)


def test_a_manifest_is_what_its_json_says(bundle):
    opened = open_bundle(bundle).manifest
    assert Manifest.from_json(opened.to_json()) == opened
