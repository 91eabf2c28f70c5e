"""A file stored as what another has not."""

import errno
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.bundle import delta
from speccompile.bundle.delta import read_delta, write_patch
from speccompile.errors import BundleError

BLOCK = 64


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(delta, "_BLOCK", BLOCK)
    monkeypatch.setattr(delta, "_WINDOW", 4096)


def noise(size, seed=0):
    return np.random.default_rng(seed).bytes(size)


def write(folder, whole, base):
    (folder / "verify.engine").write_bytes(whole)
    (folder / "step.engine").write_bytes(base)
    return write_patch(folder / "verify.engine", folder / "step.engine")


PIECES = st.lists(
    st.one_of(
        st.tuples(st.just("base"), st.integers(0, 1200), st.integers(1, 6000)),
        st.tuples(st.just("own"), st.integers(0, 9), st.integers(1, 300)),
        st.tuples(st.just("zeros"), st.just(0), st.integers(1, 500)),
    ),
    max_size=8,
)


def piece(base, kind, place, size):
    return {"base": base[8 * place : 8 * place + size], "own": noise(size, place + 1), "zeros": bytes(size)}[kind]


@given(PIECES)
@settings(max_examples=150)
def test_what_is_read_is_what_was_written(tmp_path_factory, pieces):
    folder, base = tmp_path_factory.mktemp("patch"), noise(20_000) + bytes(500)
    whole = b"".join(piece(base, *each) for each in pieces)
    made = write(folder, whole, base)
    stored = folder / "verify.engine" if made is None else made
    assert read_delta(stored) == whole
    assert (folder / "verify.engine").exists() == (made is None)
    assert (folder / "step.engine").read_bytes() == base


def test_what_is_shared_is_not_stored_again(tmp_path):
    base = noise(100_000)
    whole = noise(504, 1) + base[32:40_032] + noise(704, 2) + base[60_000:] + noise(3, 3)
    made = write(tmp_path, whole, base)
    assert made == tmp_path / "verify.engine.patch"
    assert made.stat().st_size < 504 + 704 + 3 + 400
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step.engine", "verify.engine.patch"]
    assert read_delta(made) == whole


@pytest.mark.parametrize("whole", [b"", noise(5000, 1), noise(5000, 1) + noise(4000)], ids=["empty", "other", "half"])
def test_what_has_little_in_common_stays_as_it_is(tmp_path, whole):
    assert write(tmp_path, whole, noise(50_000)) is None
    assert read_delta(tmp_path / "verify.engine") == whole
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(delta, "_write_own", full)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path, noise(5000), noise(5000))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step.engine", "verify.engine"]
    assert (tmp_path / "verify.engine").read_bytes() == noise(5000)


def stored(header, rest=b""):
    text = json.dumps(header).encode() if isinstance(header, dict) else header
    return len(text).to_bytes(8, "little") + text + rest


HEADER = {"base": "step.engine", "bytes": 12, "parts": [[0, 8], [None, 4]]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 30,
        stored(b"no json", b"1234"),
        stored({"base": "step.engine"}),
        stored(HEADER, b"123"),
        stored(HEADER, b"12345"),
        stored(HEADER | {"bytes": 13}, b"1234"),
        stored(HEADER | {"parts": [[100, 8], [None, 4]]}, b"1234"),
        stored(HEADER | {"parts": [["0", 8], [None, 4]]}, b"1234"),
        stored(HEADER | {"base": "../step.engine"}, b"1234"),
    ],
)
def test_a_file_that_is_no_patch(tmp_path, content):
    (tmp_path / "step.engine").write_bytes(bytes(range(16)))
    (tmp_path / "verify.engine.patch").write_bytes(content)
    with pytest.raises(BundleError, match=r"verify.engine.patch: received a file that is no patch of another"):
        read_delta(tmp_path / "verify.engine.patch")


def test_a_patch_in_the_layout_that_is_written_down(tmp_path):
    (tmp_path / "step.engine").write_bytes(bytes(range(16)))
    (tmp_path / "verify.engine.patch").write_bytes(stored(HEADER, b"1234"))
    assert read_delta(tmp_path / "verify.engine.patch") == bytes(range(8)) + b"1234"
