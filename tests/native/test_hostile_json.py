"""JSON that is nested without end or has endless numbers, in every file that both runtimes read: a short error each."""

import json
from pathlib import Path

import pytest

from speccompile.bundle import open_bundle
from speccompile.bundle.hashes import hash_folder, write_hashes
from speccompile.errors import SpeccompileError
from speccompile.runtime import Bundle
from tests.native.bundle_lines import Lines, outcome
from tests.native.native_api import NativeBundle
from tests.native.toy_onnx import write_arithmetic_bundle

MANY = 10**6
BOMBS = {
    "lists": "[" * MANY,
    "objects": '{"a":' * MANY,
    "closed lists": "[" * MANY + "]" * MANY,
    "digits": '{"format": ' + "9" * MANY + "}",
    "digits below zero": '{"format": -' + "9" * MANY + "}",
    "minus": "-" * MANY,
    "exponent": '{"format": 1e' + "9" * MANY + "}",
}
FILES = ("manifest.json", "lock.json", "proof.json", "hashes.json", "tokenizer/tokenizer.json", "tokenizer/chat.json")
TAKEN = {("exponent", "lock.json"), ("exponent", "proof.json")}
"""A number that nobody reads."""
LONGEST = 400
"""Characters of a message, the folder's name left out."""


def check_refused(found: tuple[object, ...], folder: Path) -> None:
    assert len(found) == 3, found
    assert len(str(found[1]).replace(str(folder), "")) < LONGEST


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arithmetic_bundle(tmp_path_factory.mktemp("hostile") / "bundle")


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_nobody_can_read_is_one_error(
    lines: Lines, bundle: Path, file: str, native_library: Path, onnxruntime_library: Path
) -> None:
    path, before = bundle / file, (bundle / file).read_bytes() if (bundle / file).exists() else None
    try:
        for name, bomb in BOMBS.items():
            path.write_text(bomb)
            if file != "hashes.json":
                write_hashes(bundle, hash_folder(bundle))
            if file.startswith("tokenizer"):
                ours = outcome(lambda: NativeBundle(bundle, library=native_library, onnxruntime=onnxruntime_library))
                theirs = outcome(lambda: Bundle.open(bundle, threads=1))
            else:
                ours = outcome(lambda: lines.ask("open", str(bundle), verify=True))
                theirs = outcome(lambda: open_bundle(bundle))
            for found in (ours, theirs):
                if (name, file) not in TAKEN:
                    check_refused(found, bundle)
    finally:
        path.unlink() if before is None else path.write_bytes(before)
        write_hashes(bundle, hash_folder(bundle))


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 4300, "9" * 4301, "1" + "0" * 400, "1.5", "NaN"])
def test_a_number_that_is_too_large_for_a_field_is_one_error(lines: Lines, bundle: Path, number: str) -> None:
    manifest = bundle / "manifest.json"
    before = manifest.read_text()
    try:
        for field in ("format", "vocabulary_size", "max_length", "batch_size", "tokens"):
            data = json.loads(before) | {field: "HERE"}
            manifest.write_text(json.dumps(data).replace('"HERE"', number))
            write_hashes(bundle, hash_folder(bundle))
            for found in (
                outcome(lambda: lines.ask("open", str(bundle), verify=True)),
                outcome(lambda: open_bundle(bundle)),
            ):
                assert len(found) == 3, (field, found)
                assert found[0] == "BundleError"
    finally:
        manifest.write_text(before)
        write_hashes(bundle, hash_folder(bundle))


@pytest.mark.parametrize("bomb", BOMBS)
def test_other_files_with_json(lines: Lines, tmp_path: Path, bomb: str) -> None:
    """Damage an index's header, and questions to the test's own program, which are read as requests are."""
    (tmp_path / "index.json").write_text(BOMBS[bomb])
    check_refused(outcome(lambda: lines.ask("propose", [[1, 2]], index=str(tmp_path), drafts=2, depth=2)), tmp_path)
    if bomb != "exponent":
        with pytest.raises(SpeccompileError):
            lines.ask("parse", BOMBS[bomb])
