"""docs/reference/bundle-format.md says what a bundle has: files, fields, buffers and versions, as the code has them."""

import re
from pathlib import Path

import pytest

from speccompile import contract
from speccompile.bundle import hashes, manifest, signature, signatures
from speccompile.bundle.delta import SUFFIX
from speccompile.bundle.manifest import RECORDS, Field
from speccompile.bundle.media import ENCODE_IMAGE
from speccompile.cli.error_codes import catalogue
from speccompile.index import files, retrieval
from speccompile.recipe.load import FILE_NAME
from speccompile.runtime.rounds.host_drafts import INDEX
from speccompile.runtime.shipped_prefixes import prefix_file
from tests.light.bundle_example import manifest as example
from tests.light.fake_bundle import write_toy_bundle

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "bundle-format.md").read_text(encoding="utf-8")
TITLES = {
    "manifest": "Fields of the manifest", "engine": "Fields of an engine", "build": "Fields of build",
    "graph": "Fields of a graph", "tensor": "Fields of a tensor",
}  # fmt: skip
WORDS = {str: "text", int: "number", bool: "true or false", dict: "object", list: "list"}


def section(title: str) -> str:
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.M | re.S)
    assert found is not None, title
    return found[1]


def rows(text: str, first: str) -> list[list[str]]:
    """Return rows of the table whose first column has a title."""
    found = re.search(rf"^\| {first} \|.*?\n\|[-|]+\n(.*?)(?=^[^|]|\Z)", text, re.M | re.S)
    assert found is not None, first
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines() if line]


def described(field: Field) -> str:
    word = WORDS[field.kind]
    if field.kind is list and field.record:
        word = f"list of {field.record}s"
    elif field.kind is list and field.items:
        word = f"list of {' and '.join(f'{WORDS[item]}s' for item in field.items)}"
    return f"{word} or null" if field.nullable else word


@pytest.mark.parametrize("record", RECORDS)
def test_fields_of_the_manifest_are_those_that_are_read(record: str) -> None:
    listed = [(name.strip("`"), kind) for name, kind, _ in rows(section(TITLES[record]), "field")]
    assert listed == [(field.name, described(field)) for field in RECORDS[record]]


def test_versions_are_those_of_the_code() -> None:
    assert f"**format {manifest.FORMAT}** and **contract {contract.VERSION}**" in PAGE
    assert catalogue()["SC300"].title == "The folder is not a bundle that this version reads"


def test_words_are_those_of_the_code() -> None:
    for title, name, words in (
        ("engine", "backend", manifest.BACKENDS),
        ("engine", "provider", manifest.PROVIDERS),
        ("manifest", "decoding", manifest.DECODINGS),
        ("manifest", "tree", manifest.TREES),
        ("graph", "name", contract.GRAPHS),
        ("tensor", "dtype", tuple(contract.DTYPES)),
        ("tensor", "role", contract.ROLES),
    ):
        (meaning,) = [cells[2] for cells in rows(section(TITLES[title]), "field") if cells[0] == f"`{name}`"]
        assert re.findall(r"`(\w+)`", meaning) == list(words), name
    assert [cells[0].strip("`") for cells in rows(section(TITLES["tensor"]), "role")] == list(contract.ROLES)


def test_buffers_are_those_of_the_contract() -> None:
    listed = {cells[0].strip("`"): cells[1] for cells in rows(section("A round"), "buffer")}
    assert list(listed) == list(contract.BUFFERS)
    names = {"batch": "B", "vocabulary": "V", "drafts": "N", "nodes": "N + 1", "window+1": "window + 1"}
    for name, (dtype, shape, _) in signatures.SIGNATURES.items():
        if name in listed and "*" not in shape:
            sizes = ", ".join(names.get(size, size) for size in shape)
            assert listed[name] == f"{dtype} [{sizes}]", name


def test_rounds_and_copied_outputs_are_those_of_the_contract() -> None:
    listed = [tuple(re.findall(r"`(\w+)`", cells[0])) for cells in rows(section("A round"), "graphs")]
    assert listed == list(signatures.ROUNDS)
    assert all(f"`{name}`" in section("A round") for name in contract.NEXT_ROUND_INPUTS)
    assert f"`{contract.PERSISTENT_PREFIX}`" in section("A round")


def test_files_are_those_that_the_code_writes() -> None:
    listed = {cells[0].strip("`") for cells in rows(section("Files"), "file")}
    named = {manifest.MANIFEST, manifest.LOCK, manifest.PROOF, manifest.TOKENIZER, manifest.CHAT, hashes.HASHES}
    named |= {signature.SIGNATURE, f"{INDEX}/", FILE_NAME, f"graphs/*.engine{SUFFIX}"}
    named |= {prefix_file("<engine>", "<name>")}
    seen = f"images/{ENCODE_IMAGE}"
    named |= {f"{seen}.onnx", f"{seen}.weights", f"{seen}.<engine>.engine", f"{seen}.tensorrt.onnx"}
    assert listed == named | {"graphs/*.onnx", "graphs/*.weights", "graphs/*.engine"}
    inside = section("index/")
    assert all(f"`{name}`" in inside for name in (files.HEADER, retrieval.POLICY, files.file_name(0, files.TOKENS)))
    assert all(f"`{name}`" in inside for name in retrieval.RetrievalPolicy.__annotations__)


def test_every_file_of_a_bundle_is_listed(tmp_path: Path) -> None:
    listed = [cells[0].strip("`") for cells in rows(section("Files"), "file")]
    folder = write_toy_bundle(tmp_path / "toy")
    for path in (each.relative_to(folder) for each in folder.rglob("*") if each.is_file()):
        assert any(path.match(pattern) for pattern in listed), path
    assert {*example().to_json(), *manifest.OPTIONAL} == {
        cells[0].strip("`") for cells in rows(section(TITLES["manifest"]), "field")
    }
