"""Rule that `tune` and `compare` share: what loses even at its most favourable value is not measured any further."""


def may_still_win(bound: float, best: float) -> bool:
    """Return whether a candidate may still be the fastest. bound: the highest speed that it may have by all that was
    measured of it; best: the speed of the best candidate so far, in the same unit."""
    return bound > best
