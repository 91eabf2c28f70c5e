"""Weights that stay where they lie: what is read of them, and that nothing else is."""

import gc
import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from speccompile.compiler.weights.checkpoint import checkpoint_sources
from speccompile.compiler.weights.floats import row_major, widened
from speccompile.compiler.weights.source import Concatenated, FileBacked, InMemory, LazyWeight, Stacked
from speccompile.errors import CheckpointError

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


@pytest.fixture(params=DTYPES)
def stored(request, tmp_path) -> tuple[FileBacked, np.ndarray]:
    """Return a weight of three axes in a file, and the numbers that it has there."""
    numbers = random(5, 6, 7).astype(DTYPES[request.param])
    save_file({"before": random(3), "weight": numbers, "zzz": random(2)}, tmp_path / "model.safetensors")
    source = checkpoint_sources(tmp_path).weights["weight"]
    assert isinstance(source, FileBacked)
    assert source.dtype == request.param
    return source, numbers.astype(np.float32)


def forms(source: LazyWeight, numbers: np.ndarray) -> dict[str, tuple[LazyWeight, np.ndarray]]:
    """Return what becomes of a weight on its way to an operator, and the same by numpy."""
    return {
        "as it is": (source, numbers),
        "select": (source.select(3), numbers[3]),
        "cut": (source.narrow(slice(1, 4)), numbers[1:4]),
        "turned": (source.transpose((2, 0, 1)), numbers.transpose(2, 0, 1)),
        "turned twice": (
            source.transpose((2, 0, 1)).transpose((1, 2, 0)),
            numbers.transpose(2, 0, 1).transpose(1, 2, 0),
        ),
        "expert of turned": (source.transpose((0, 2, 1)).select(2), numbers[2].T),
        "cut of turned": (source.transpose((1, 0, 2)).narrow(slice(2, 5)), numbers.transpose(1, 0, 2)[2:5]),
        "stacked": (Stacked([source.select(1), source.select(4)]), numbers[[1, 4]]),
        "expert of stacked": (Stacked([source.select(1), source.select(4)]).select(1), numbers[4]),
        "joined": (Concatenated([source.select(0), source.select(2)]), numbers[[0, 2]].reshape(12, 7)),
    }


@pytest.mark.parametrize("form", forms(InMemory(random(5, 6, 7)), random(5, 6, 7)))
def test_every_form_reads_what_numpy_has(stored, form):
    source, expected = forms(*stored)[form]
    assert source.shape == expected.shape
    np.testing.assert_array_equal(source.read_all(), expected)
    np.testing.assert_array_equal(source.rows(slice(1, 3)), expected[1:3])
    np.testing.assert_array_equal(np.concatenate([source.rows(part) for part in source.parts()]), expected)
    if expected.ndim == 2:
        np.testing.assert_array_equal(source.columns(slice(2, 5)), expected[:, 2:5])


def test_numbers_are_widened_as_ml_dtypes_widens_them():
    every = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).reshape(256, 256)
    assert widened(every, "bfloat16").tobytes() == every.astype(np.float32).tobytes()


@pytest.mark.parametrize("shape", [(1, 1), (5, 16), (40, 35), (3, 0)])
def test_columns_of_a_transposed_weight_come_row_by_row(shape):
    turned = random(*shape).T
    rows = row_major(turned)
    assert rows.flags.c_contiguous
    assert np.array_equal(rows, turned)
    assert row_major(rows) is rows
    columns = InMemory(random(*shape)).transpose((1, 0)).columns(slice(0, shape[0]))
    assert columns.flags.c_contiguous
    assert np.array_equal(columns, turned)


class Watched(LazyWeight):
    """Counts the rows that are read."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape, self.dtype, self.array, self.read = array.shape, "float32", array, 0

    def rows(self, part: slice) -> np.ndarray:
        self.read += part.stop - part.start
        return self.array[part]

    def identity(self) -> str:
        return "watched"


def test_columns_of_a_turned_weight_are_the_only_rows_that_are_read():
    source = Watched(random(400, 30))
    assert source.transpose((1, 0)).columns(slice(10, 26)).shape == (30, 16)
    assert source.read == 16


def test_equal_weights_have_one_identity_wherever_they_lie(tmp_path):
    weight = random(4, 4)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        save_file({"weight": weight}, tmp_path / name / "model.safetensors")
    one, other = (checkpoint_sources(tmp_path / name).weights["weight"] for name in ("one", "other"))
    assert one.identity() == other.identity()
    assert json.loads(json.dumps(one.identity())) == one.identity()
    different = [
        one,
        one.transpose((1, 0)),
        one.narrow(slice(0, 2)),
        one.narrow(slice(2, 4)),
        one.select(1),
        Stacked([one]),
    ]
    assert len({json.dumps(each.identity()) for each in different}) == len(different)


def test_a_file_that_becomes_shorter_is_named_and_ends_nothing(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"weight": random(40, 40)}, path)
    source = checkpoint_sources(tmp_path).weights["weight"]
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 100)
    with pytest.raises(CheckpointError, match=r"model.safetensors: received \d+ bytes, expected \d+") as found:
        source.read_all()
    assert "leave the checkpoint alone" in str(found.value.hint)


def test_a_file_that_is_replaced_is_read_as_it_was(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"weight": random(8, 8)}, path)
    source = checkpoint_sources(tmp_path).weights["weight"]
    before = source.read_all()
    other = tmp_path / "new.safetensors"
    save_file({"weight": -random(8, 8)}, other)
    Path(other).replace(path)
    np.testing.assert_array_equal(source.read_all(), before)


def test_a_file_is_open_once_however_many_weights_lie_in_it(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({f"weight.{number}": random(2, 2) for number in range(40)}, path)

    def times_open() -> int:
        gc.collect()
        return sum(os.path.realpath(each) == str(path.resolve()) for each in Path("/proc/self/fd").iterdir())

    found = [checkpoint_sources(tmp_path) for _ in range(5)]
    assert times_open() == 1
    del found
    assert times_open() == 0
