"""Features without a sound, for proofs and measurements."""

from collections.abc import Sequence

import numpy as np

from speccompile.runtime.audio.mel import Features

LEAST, MOST = -1.0, 1.5
"""Limits of noise: most log-mel features lie there."""


def noise(seed: Sequence[int], mels: int, frames: int) -> Features:
    """Return noise float32 [mels, frames] in place of features, the same for equal seeds of token ids."""
    return np.random.default_rng(list(seed)).uniform(LEAST, MOST, (mels, frames)).astype(np.float32)
