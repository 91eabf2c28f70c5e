"""Write a map of characters as SentencePiece does: for the normalizer Precompiled of the package tokenizers."""

import struct
from collections.abc import Mapping

_BLOCK = 256


def charsmap(texts: Mapping[str, str]) -> bytes:
    """Return the map of these keys, none of which is empty or has a zero, to texts without zeros.

    It is a double array: a node's children lie at its base xor their byte, its own leaf at its base. Each node with
    children has a block of 256 units, a leaf alone one unit behind all blocks.
    """
    nodes: dict[bytes, set[int]] = {b"": set()}
    for key in texts:
        encoded = key.encode()
        for end, byte in enumerate(encoded):
            nodes.setdefault(encoded[:end], set()).add(byte)
    bases = {node: _BLOCK * (place + 1) for place, node in enumerate(nodes)}
    next_leaf = _BLOCK * (len(nodes) + 1)
    for key in texts:
        if (encoded := key.encode()) not in bases:
            bases[encoded], next_leaf = next_leaf, next_leaf + 1
    units, blob, places = [0] * (next_leaf + _BLOCK), b"", dict[str, int]()
    for text in texts.values():
        if text not in places:
            places[text], blob = len(blob), blob + text.encode() + b"\0"
    whole = {key.encode(): text for key, text in texts.items()}
    units[0] = _unit(0, bases[b""], b"" in whole)
    for node, children in nodes.items():
        for byte in children:
            child = node + bytes([byte])
            place = bases[node] ^ byte
            units[place] = _unit(byte, place ^ bases[child], child in whole)
    for encoded, text in whole.items():
        units[bases[encoded]] = 1 << 31 | places[text]
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + blob


def _unit(label: int, offset: int, has_leaf: bool) -> int:
    """Return a unit. offset: to the base of its node, below 2**21."""
    assert offset < 1 << 21, "the map is small"
    return offset << 10 | has_leaf << 8 | label
