"""Types of stored tensors: their names, numbers and bytes of a block. Source: ggml.h and ggml-common.h of llama.cpp."""

from collections.abc import Iterable
from typing import NamedTuple


class BlockType(NamedTuple):
    """A type. numbers: in a block; size: bytes of a block."""

    name: str
    numbers: int
    size: int


FLOATS = ("F32", "F16", "BF16")
"""Types without blocks, named as safetensors names them."""
INTEGERS = "I64"
"""Type of token ids, which only the head of a drafter has."""

BLOCK_TYPES = {
    0: BlockType("F32", 1, 4),
    1: BlockType("F16", 1, 2),
    2: BlockType("Q4_0", 32, 18),
    3: BlockType("Q4_1", 32, 20),
    6: BlockType("Q5_0", 32, 22),
    7: BlockType("Q5_1", 32, 24),
    8: BlockType("Q8_0", 32, 34),
    10: BlockType("Q2_K", 256, 84),
    11: BlockType("Q3_K", 256, 110),
    12: BlockType("Q4_K", 256, 144),
    13: BlockType("Q5_K", 256, 176),
    14: BlockType("Q6_K", 256, 210),
    20: BlockType("IQ4_NL", 32, 18),
    23: BlockType("IQ4_XS", 256, 136),
    27: BlockType("I64", 1, 8),
    30: BlockType("BF16", 1, 2),
    39: BlockType("MXFP4", 32, 17),
}
"""Number in a file -> type, of those that are read."""

BY_NAME = {each.name: each for each in BLOCK_TYPES.values()}

EXPERTS = ".experts."
"""Part of the names, in transformers, of the weights of experts."""

QUANTIZED = frozenset(BY_NAME) - {*FLOATS, INTEGERS}


class CodeKind(NamedTuple):
    """Storage of a type in the kernels of `native/`: a code q of `bits` bits stands for (q - zero_point) * scale +
    offset, with a scale and an offset for each `block_size` numbers of a row."""

    name: str
    bits: int
    block_size: int
    zero_point: int
    has_offsets: bool

    @property
    def block_bytes(self) -> int:
        """Return bytes of a block's scale and offset."""
        return 8 if self.has_offsets else 4


def _kind(name: str, bits: int, block_size: int, *, zero_point: int = 0, has_offsets: bool = False) -> CodeKind:
    return CodeKind(name, bits, block_size, 128 if bits == 8 else zero_point, has_offsets)


CODE_KINDS = {
    kind.name: kind
    for kind in (
        _kind("Q4_0", 4, 32, zero_point=8),
        _kind("Q4_1", 4, 32, has_offsets=True),
        _kind("Q4_K", 4, 32, has_offsets=True),
        _kind("Q5_0", 8, 32),
        _kind("Q5_1", 8, 32, has_offsets=True),
        _kind("Q5_K", 8, 32, has_offsets=True),
        _kind("Q6_K", 8, 16),
        _kind("Q8_0", 8, 32),
        _kind("Q2_K", 8, 16, has_offsets=True),
        _kind("Q3_K", 8, 16),
        _kind("IQ4_NL", 8, 32),
        _kind("IQ4_XS", 8, 32),
        _kind("MXFP4", 8, 32),
    )
}
"""Type -> its codes. Those of more than four bits, and the levels of tables, take eight."""


def joined_kind(kinds: Iterable[CodeKind]) -> CodeKind:
    """Return the storage of rows of several kinds of codes side by side: their own if they share it, else eight
    bits, in the smallest blocks, with offsets where one of them has any."""
    found = sorted(set(kinds))
    if len(found) == 1:
        return found[0]
    offsets = any(kind.has_offsets for kind in found)
    size = min(kind.block_size for kind in found)
    return _kind("+".join(kind.name for kind in found), 8, size, has_offsets=offsets)


OTHERS = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S",
    22: "IQ2_S", 24: "I8", 25: "I16", 26: "I32", 28: "F64", 29: "IQ1_M", 31: "Q4_0_4_4", 32: "Q4_0_4_8",
    33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4",
}  # fmt: skip
"""Number in a file -> name, of types that are not read."""
