import json
import re
import shutil
import sys
from pathlib import Path
from random import Random

import pytest

from speccompile.bundle import hashes, open_bundle
from speccompile.bundle.hashes import hash_folder, write_hashes
from speccompile.bundle.manifest import canonical_json
from speccompile.errors import BundleError
from tests.light.bundle_example import LOCK, PROOF, WEIGHTS, manifest, write_bundle


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("built") / "demo")


@pytest.fixture
def bundle(built: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built, tmp_path / "demo")


def edit(path: Path, change) -> None:
    data = json.loads(path.read_bytes())
    change(data)
    path.write_bytes(canonical_json(data))


def hash_again(bundle: Path) -> None:
    write_hashes(bundle, hash_folder(bundle))


def test_what_was_written_is_read(bundle):
    opened = open_bundle(bundle)
    assert (opened.manifest, opened.lock, opened.proof) == (manifest(), LOCK, PROOF)
    assert opened.path("graphs/weights.bin").read_bytes() == WEIGHTS


def test_every_file_but_the_hashes_is_listed(bundle):
    files = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    assert set(open_bundle(bundle).hashes.files) == files - {"hashes.json"}


def test_one_flipped_byte_anywhere_is_refused(bundle):
    for path in [path for path in bundle.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        for offset in {0, 1, len(content) // 3, len(content) // 2, len(content) - 2, len(content) - 1}:
            for mask in (0x01, 0x20, 0x80):
                flipped = bytearray(content)
                flipped[offset] ^= mask
                path.write_bytes(flipped)
                with pytest.raises(BundleError) as caught:
                    open_bundle(bundle)
                assert path.name in str(caught.value)
                assert caught.value.hint
        path.write_bytes(content)
    open_bundle(bundle)


def replaced(path: Path, content: bytes | None) -> None:
    """Put a file in the place of another, or of a folder; or a folder."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.mkdir() if content is None else path.write_bytes(content)


GRAPH = "graphs/weights.bin"
REFUSED = {
    "no folder": (shutil.rmtree, r"demo: expected the folder of a bundle, it does not exist"),
    "a file for a folder": (
        lambda folder: replaced(folder, b"x"),
        r"demo: expected the folder of a bundle, it is a file",
    ),
    "no hashes": (lambda folder: (folder / "hashes.json").unlink(), r"hashes\.json: the file is missing$"),
    "a folder for a file": (
        lambda folder: replaced(folder / "hashes.json", None),
        r"hashes\.json: cannot be read: Is a directory",
    ),
    "a list of other files": (
        lambda folder: edit(folder / "hashes.json", lambda data: data["files"].pop(GRAPH)),
        r"hashes\.json: the file was edited: digest \w+, its files give \w+",
    ),
    "an edited file": (
        lambda folder: replaced(folder / GRAPH, b"\xff" + WEIGHTS[1:]),
        r"weights\.bin: the file was edited: BLAKE3 \w{64}, expected \w{64}",
    ),
}
REFUSED_UNVERIFIED = {
    "a truncated file": (
        lambda folder: replaced(folder / GRAPH, WEIGHTS[:-1]),
        r"graphs/weights\.bin: has 2047 bytes, expected 2048",
    ),
    "a missing file": (
        lambda folder: (folder / GRAPH).unlink(),
        r"graphs/weights\.bin: the file is missing; hashes\.json lists it",
    ),
}
"""List refusals that need no look at all bytes."""


def test_a_name_that_is_too_long_for_a_file_does_not_exist(tmp_path):
    with pytest.raises(BundleError, match=r"x: expected the folder of a bundle, it does not exist"):
        open_bundle(tmp_path / ("x" * 300))


@pytest.mark.parametrize("name", REFUSED | REFUSED_UNVERIFIED)
def test_a_damaged_bundle_is_refused(bundle, name):
    change, message = (REFUSED | REFUSED_UNVERIFIED)[name]
    change(bundle)
    for verify in (True, False) if name in REFUSED_UNVERIFIED else (True,):
        with pytest.raises(BundleError, match=message):
            open_bundle(bundle, verify=verify)


def test_json_of_another_kind_is_named(bundle):
    (bundle / "proof.json").write_bytes(b"[]\n")
    hash_again(bundle)
    with pytest.raises(BundleError, match=r"proof\.json: expected a JSON object, got list"):
        open_bundle(bundle)


def test_without_verification_an_edit_passes(bundle):
    (bundle / "graphs" / "weights.bin").write_bytes(b"\xff" + WEIGHTS[1:])
    assert open_bundle(bundle, verify=False).manifest == manifest()


def test_another_folder_is_no_bundle(tmp_path):
    with pytest.raises(BundleError, match=r"not a bundle: it has no manifest\.json") as caught:
        open_bundle(tmp_path)
    assert caught.value.hint == "give the folder that `speccompile build` wrote"
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BundleError) as caught:
        open_bundle(tmp_path)
    assert "this is a model: `speccompile run`" in (caught.value.hint or "")


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000, b'"\xed\xa0\x80"', b'{"name": "\\ud800"}'])
def test_what_is_no_json_is_named(bundle, content):
    (bundle / "manifest.json").write_bytes(content)
    with pytest.raises(BundleError, match=r"manifest\.json: expected JSON: "):
        open_bundle(bundle)


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../x", "graphs/../../x", "graphs\\x", "C:/x", "", ".", "a//b", "./a", "a\0b", "hashes.json"],
)
@pytest.mark.parametrize("verify", [True, False])
def test_a_listed_path_that_escapes_is_refused(bundle, name, verify):
    edit(bundle / "hashes.json", lambda data: data["files"].update({name: {"blake3": "00", "bytes": 1}}))
    with pytest.raises(BundleError, match=r"hashes\.json: the path .* leads out of the bundle or is not plain"):
        open_bundle(bundle, verify=verify)


@pytest.mark.parametrize("verify", [True, False])
def test_a_link_out_of_the_bundle_is_refused(bundle, tmp_path, verify):
    weights = bundle / "graphs" / "weights.bin"
    shutil.move(weights, tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match=r"weights\.bin: leads out of the bundle, to .*elsewhere"):
        open_bundle(bundle, verify=verify)


def test_a_bundle_behind_a_link_is_read(bundle, tmp_path):
    (tmp_path / "link").symlink_to(bundle)
    assert open_bundle(tmp_path / "link").manifest == manifest()


def test_a_file_that_the_bundle_has_not_is_refused(bundle):
    with pytest.raises(BundleError, match=r"demo: the bundle has no file 'graphs/draft\.onnx'"):
        open_bundle(bundle).path("graphs/draft.onnx")


def test_without_the_hash_library_only_the_unverified_open_works(bundle, monkeypatch):
    monkeypatch.setitem(sys.modules, "blake3", None)
    with pytest.raises(BundleError, match="expected the Python package blake3, which is not installed") as caught:
        open_bundle(bundle)
    assert "pip install blake3" in caught.value.hint
    assert open_bundle(bundle, verify=False).manifest == manifest()


def test_hashes_are_those_of_the_reference_implementation(bundle):
    from blake3 import blake3

    files = json.loads((bundle / "hashes.json").read_bytes())["files"]
    assert files["graphs/weights.bin"] == {"blake3": blake3(WEIGHTS).hexdigest(), "bytes": len(WEIGHTS)}


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 8192, 3 * 4096 + 5, 300_000])
def test_a_file_is_hashed_in_windows_as_the_reference_hashes_it_whole(tmp_path, monkeypatch, size):
    from blake3 import blake3

    monkeypatch.setattr(hashes, "_WINDOW", 4096)
    content = Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(content)
    told = []
    assert hashes.hash_file(tmp_path / "file", told.append) == blake3(content).hexdigest()
    assert sum(told) == size
    assert max(told, default=0) <= 4096


def test_what_is_missing_is_said_before_anything_is_hashed(bundle):
    first, *_, last = hashes.read_hashes(bundle).files
    (bundle / first).write_bytes(bytes((bundle / first).stat().st_size))
    with pytest.raises(BundleError, match=f"{re.escape(first)}: the file was edited"):
        open_bundle(bundle)
    (bundle / last).unlink()
    with pytest.raises(BundleError, match=f"{re.escape(last)}: the file is missing"):
        open_bundle(bundle)


@pytest.mark.parametrize(("seconds", "lines"), [(0.9, []), (2.34, ["verified 0.0 GB in 2.3 s"])])
def test_how_long_the_hash_library_took_is_said_when_it_was_long(bundle, monkeypatch, caplog, seconds, lines):
    times = iter([100.0, 100.0 + seconds])
    monkeypatch.setattr(hashes, "perf_counter", lambda: next(times))
    with caplog.at_level("INFO", logger="speccompile"):
        open_bundle(bundle)
    assert caplog.messages == lines


def test_a_file_that_cannot_be_read_is_named(bundle, monkeypatch):
    def refused(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("speccompile.bundle.hashes.mmap.mmap", refused)
    with pytest.raises(BundleError, match=r"graphs/verify\.onnx: cannot be read: Input/output error"):
        open_bundle(bundle)
