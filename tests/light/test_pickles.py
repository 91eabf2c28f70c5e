"""Pickles of heads from elsewhere: what takes no time to store must take none to read."""

import pickle
import time
import zipfile

import pytest
import torch

from speccompile.drafters.pickles import read_pickle
from speccompile.errors import CheckpointError


def archive(path, content: bytes, packed: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", packed) as made:
        made.writestr("head/data.pkl", content)


def doubled() -> bytes:
    """Return a key that is a pair of one pair of one pair ..: hashing it takes 2^60 steps."""
    return b"\x80\x02}q\x00(" + b")" + b"q\x01h\x01h\x01\x86" * 60 + b"K\x01u."


def encrypted(path) -> None:
    archive(path, b"\x80\x02}.")
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + place] |= 1
    path.write_bytes(content)


def unknown(path) -> None:
    archive(path, b"\x80\x02}.")
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(mark) + place] = 99
    path.write_bytes(content)


def bomb(path) -> None:
    archive(path, bytes(1 << 27), zipfile.ZIP_DEFLATED)


def large(path) -> None:
    archive(path, bytes((1 << 26) + 1))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (encrypted, "encrypted"),
        (unknown, "compressed, which torch.save never does"),
        (bomb, "compressed, which torch.save never does"),
        (large, "more than 67108864"),
        (lambda path: archive(path, b"(" * (1 << 20)), "pickle exhausted"),
        (lambda path: archive(path, b"(" * 200_000 + b"t" * 200_000 + b"."), "flat state dict|its tensors"),
        (lambda path: archive(path, doubled()), "a key of type tuple, expected a text"),
        (lambda path: archive(path, b"t."), "a list that never began"),
        (lambda path: archive(path, pickle.dumps({"a": pickle.loads})), "which no state dict needs"),
    ],
)
def test_what_would_take_long_is_refused_at_once(tmp_path, write, message):
    write(tmp_path / "head.pt")
    start = time.process_time()
    with pytest.raises(CheckpointError, match=message):
        read_pickle(tmp_path / "head.pt")
    assert time.process_time() - start < 5


def test_a_state_dict_is_read(tmp_path):
    torch.save({"a.weight": torch.zeros(2, 3), "b": torch.zeros(4).half()}, tmp_path / "head.pt")
    assert list(read_pickle(tmp_path / "head.pt")) == ["a.weight", "b"]
