"""The header of GGUF files, against files of gguf's own writer, and against damaged ones; blocks against gguf's own
dequantization."""

import random
import struct
from contextlib import suppress

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize as published

from speccompile.compiler.checkpoints.gguf import reader
from speccompile.compiler.checkpoints.gguf.block_types import BLOCK_TYPES, BY_NAME, FLOATS, INTEGERS, OTHERS, QUANTIZED
from speccompile.compiler.checkpoints.gguf.conversion import convert
from speccompile.compiler.checkpoints.gguf.reader import read_gguf
from speccompile.compiler.checkpoints.gguf.splits import find_gguf, read_split
from speccompile.compiler.weights.gguf.dequantize import dequantize
from speccompile.errors import CheckpointError, SpeccompileError
from tests.gguf_writer import write_parts

FUZZED = 400
"""Damaged files in a run; 10,000 were tried once."""


def write(file, tensors, keys=(), **options):
    writer = gguf.GGUFWriter(None if options else file, "llama", **options)
    for method, *values in keys:
        getattr(writer, method)(*values)
    for name, array, kind in tensors:
        writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    write_parts(writer, file)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return a file with keys of all types, and tensors of three."""
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    numbers = np.random.default_rng(0).standard_normal((4, 64), np.float32)
    kinds = gguf.GGMLQuantizationType
    keys = (
        ("add_uint8", "a", 3), ("add_int64", "b", -5), ("add_float32", "c", 0.5), ("add_bool", "d", True),
        ("add_string", "e", "naïve"), ("add_array", "f", ["x", "yz"]), ("add_array", "g", [1, 2, 3]),
        ("add_float64", "h", 0.1),
    )  # fmt: skip
    write(path, [("one", numbers, kinds.F32), ("two", numbers, kinds.Q8_0), ("three", numbers[0], kinds.F16)], keys)
    return path


def test_keys_and_tensors_are_those_of_the_writer(file):
    found, published_reader = read_gguf(file), gguf.GGUFReader(file)
    own = {key: found.metadata[key] for key in "abcdefgh"}
    assert own == {"a": 3, "b": -5, "c": 0.5, "d": True, "e": "naïve", "f": ["x", "yz"], "g": [1, 2, 3], "h": 0.1}
    for tensor in published_reader.tensors:
        read = found.tensors[tensor.name]
        assert (read.type, read.shape) == (tensor.tensor_type.name, tuple(map(int, tensor.shape[::-1])))
        assert (read.offset, read.size) == (tensor.data_offset, tensor.n_bytes)


def test_types_are_those_of_gguf():
    known = {kind.value: kind.name for kind in gguf.GGMLQuantizationType}
    assert {number: each.name for number, each in BLOCK_TYPES.items()}.items() <= known.items()
    assert all(OTHERS.get(number, name) == name for number, name in known.items())
    for each in BLOCK_TYPES.values():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[each.name]] == (each.numbers, each.size)


@pytest.mark.parametrize("kind", sorted(QUANTIZED))
def test_blocks_of_random_bytes_are_dequantized_to_the_same_bits(kind):
    data = np.random.default_rng(1).integers(0, 256, (1000, BY_NAME[kind].size), np.uint8)
    with np.errstate(all="ignore"):
        own, other = dequantize(data, kind), published(data, gguf.GGMLQuantizationType[kind]).reshape(-1)
    np.testing.assert_array_equal(np.isnan(own), np.isnan(other))
    known = ~np.isnan(own)
    np.testing.assert_array_equal(own[known].view(np.uint32), other[known].view(np.uint32))


def header(version=3, tensors=0, keys=0):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def entry(name=b"t", sizes=(4,), kind=0, offset=0):
    sizes = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return struct.pack("<Q", len(name)) + name + sizes + struct.pack("<IQ", kind, offset)


def key(name, kind, value):
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value


def padded(data, more=64):
    return data + bytes(-len(data) % 32) + bytes(more)


DAMAGED = [
    (b"", "its magic: 4 bytes at byte 0 of 0"),
    (b"GGML" + bytes(40), "b'GGML' as its first bytes"),
    (header(1), "GGUF version 1, expected 2 or 3"),
    (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "a big-endian GGUF file"),
    (header(tensors=2**60), f"{2**60} tensors in 0 bytes"),
    (header(keys=10**6), "1000000 keys in 0 bytes"),
    (header(tensors=2) + bytes(63), "2 tensors in 63 bytes, expected at least 32 bytes for each"),
    (header(keys=1) + struct.pack("<Q", 2**63) + bytes(40), f"the name of key 0: {2**63} bytes"),
    (header(keys=1) + key(b"k", 13, bytes(40)), "'k' of type 13"),
    (header(keys=1) + key(b"k", 9, struct.pack("<IQ", 4, 2**61)), f"{2**61} numbers of 'k'"),
    (header(keys=1) + key(b"k", 9, struct.pack("<IQ", 8, 2**60)), f"{2**60} texts of 'k'"),
    (header(keys=1) + key(b"k", 9, struct.pack("<IQ", 9, 1) + bytes(40)), "a list of type 9"),
    (header(keys=1) + key(b"\xff", 0, b"1") + bytes(9), r"as b'\xff', expected UTF-8"),
    (header(keys=1) + key(b"a\x1b[2J", 0, b"1") + bytes(9), r"as 'a\x1b[2J', expected at most 256 printable"),
    (header(keys=1) + key(b"k" * 257, 0, b"1"), "expected at most 256 printable characters"),
    (header(keys=2) + key(b"k", 0, b"1") * 2, "the key 'k' twice"),
    (header(keys=1) + key(b"general.alignment", 4, struct.pack("<I", 24)), "general.alignment: 24"),
    (header(keys=1) + key(b"general.alignment", 4, struct.pack("<I", 2**31)), f"general.alignment: {2**31}"),
    (padded(header(tensors=1) + entry(sizes=())), "0 axes of tensor 't'"),
    (header(tensors=1) + entry(sizes=(1,) * 5), "5 axes of tensor 't'"),
    (padded(header(tensors=1) + entry(sizes=(0,))), "tensor 't' of shape [0]"),
    (padded(header(tensors=1) + entry(sizes=(2**40, 2**40))), "ends at byte"),
    (padded(header(tensors=1) + entry(sizes=(33,), kind=8)), "rows of a multiple of 32"),
    (padded(header(tensors=1) + entry(kind=16)), "'t' of type IQ2_XXS, expected one of F32"),
    (padded(header(tensors=1) + entry(kind=77)), "'t' of the unknown type 77"),
    (padded(header(tensors=1) + entry(offset=4)), "tensor 't' at offset 4"),
    (padded(header(tensors=1) + entry(offset=2**63)), "ends at byte"),
    (padded(header(tensors=2) + entry() + entry(b"u")), "tensor 'u' at byte"),
    (padded(header(tensors=2) + entry() + entry()), "the tensor 't' twice"),
    (padded(header(tensors=1) + entry(), 8), "ends at byte"),
]  # fmt: skip


def sparse(path, beginning, size):
    """Write a file whose rest is a hole, as the weights of a large model are to a reader of its header."""
    with path.open("wb") as file:
        file.write(beginning)
        file.truncate(size)


MANY = [
    (header(tensors=2**17), "131072 tensors, expected at most 65536"),
    (header(keys=2**17), "131072 keys, expected at most 65536"),
    (header(keys=1) + key(b"k", 9, struct.pack("<IQ", 0, 2**26)), f"{2**26} numbers of 'k', expected at most {2**22}"),
    (header(keys=2) + key(b"k", 9, struct.pack("<IQ", 8, 2**21) + bytes(2**24)) +
     key(b"l", 9, struct.pack("<IQ", 8, 2**22)), f"{2**22} texts of 'l', expected at most {2**21}"),
    (header(keys=1) + key(b"k", 8, struct.pack("<Q", 2**26 + 1)), f"'k' of {2**26 + 1} bytes, expected at most"),
]  # fmt: skip


@pytest.mark.parametrize(("beginning", "message"), MANY, ids=[message for _, message in MANY])
def test_bytes_of_weights_are_not_taken_for_a_long_list(tmp_path, beginning, message):
    path = tmp_path / "model.gguf"
    sparse(path, beginning, 2**29)
    with pytest.raises(CheckpointError) as refused:
        read_gguf(path)
    assert message in str(refused.value)


def test_a_header_is_not_read_into_the_weights(tmp_path, monkeypatch):
    path = tmp_path / "model.gguf"
    sparse(path, header(keys=1) + key(b"k", 8, struct.pack("<Q", 150)), 400)
    monkeypatch.setattr(reader, "LONGEST_HEADER", 180)
    with pytest.raises(CheckpointError, match="150 bytes at byte 45 of 400, expected a header of at most 180 bytes"):
        read_gguf(path)


@pytest.mark.parametrize(("content", "message"), DAMAGED, ids=[message for _, message in DAMAGED])
def test_a_damaged_file_is_refused_by_what_is_wrong_and_where(tmp_path, content, message):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as refused:
        read_gguf(path)
    assert message in str(refused.value)
    assert str(path) in str(refused.value)


def test_every_cut_is_refused(file, tmp_path):
    data, path = file.read_bytes(), tmp_path / "cut.gguf"
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError):
            read_gguf(path)


def test_damaged_files_are_refused_or_read_within_their_bounds(file, tmp_path):
    data, path, chance = file.read_bytes(), tmp_path / "fuzzed.gguf", random.Random(7)
    for _ in range(FUZZED):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 8)):
            place = chance.randrange(min(len(data), 900))
            damaged[place] = chance.choice((0, 255, damaged[place] ^ 1 << chance.randrange(8)))
        path.write_bytes(damaged)
        with suppress(SpeccompileError):
            convert((path,))
        try:
            found = read_gguf(path)
        except SpeccompileError:
            continue
        assert all(each.offset + each.size <= len(data) for each in found.tensors.values())


@pytest.fixture
def parts(tmp_path):
    """Return a model in three files."""
    numbers = np.zeros((2, 32), np.float32)
    tensors = [(f"t{index}", numbers, gguf.GGMLQuantizationType.F32) for index in range(3)]
    write(tmp_path / "m.gguf", tensors, split_max_tensors=1)
    return sorted(tmp_path.glob("*.gguf"))


def test_all_parts_of_a_split_model_are_found(parts):
    assert [each.name for each in parts] == [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for path in (*parts, parts[0].parent):
        assert find_gguf(path) == tuple(parts)
    assert [list(each.tensors) for each in read_split(tuple(parts))] == [["t0"], ["t1"], ["t2"]]


def test_a_missing_part_is_named(parts):
    parts[1].unlink()
    with pytest.raises(CheckpointError, match=r"m-00002-of-00003.gguf: received nothing"):
        find_gguf(parts[0])


def test_parts_of_two_models_are_refused(parts):
    parts[2].write_bytes(parts[1].read_bytes())
    with pytest.raises(CheckpointError, match="truncated or corrupt"):
        read_split(tuple(parts))


def test_several_models_in_a_folder_are_named(tmp_path):
    for name in ("a.gguf", "b.gguf", "a-mmproj-f16.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match=r"several GGUF models \(a.gguf, b.gguf\)"):
        find_gguf(tmp_path)


def test_floats_have_their_own_names():
    assert {*FLOATS, INTEGERS} | QUANTIZED == set(BY_NAME)
