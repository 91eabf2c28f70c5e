"""Random numbers of the host: streams of uniforms, each named by a seed, a sequence number and a purpose.

Philox 4x64 (Salmon et al. 2011) makes the n-th number from the stream's name and n alone: the numbers of a sequence do
not depend on the other sequences of its batch.
"""

from enum import IntEnum

import numpy as np

from speccompile.runtime.devices.engine import Array


class Purpose(IntEnum):
    """Purpose of the numbers of a stream."""

    NEW_TOKEN = 0
    ACCEPT = 1
    DRAFT = 2


class Uniforms:
    """One stream of uniform random numbers."""

    def __init__(self, seed: int, sequence: int, purpose: Purpose) -> None:
        # The raw bits of Philox: numbers that numpy's Generator makes of them may change between versions (NEP 19).
        self._bits = np.random.Philox(key=np.array([seed, sequence * len(Purpose) + purpose], np.uint64))

    def draw(self, count: int) -> Array:
        """Return the next float32 [count], each a multiple of 2**-24 in [0, 1)."""
        bits = self._bits.random_raw(count)
        return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)
