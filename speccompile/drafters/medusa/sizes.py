"""Sizes of new Medusa heads."""

from speccompile.drafters.sizes import Size

PROJECTION, OWN, SHARED = "projection", "own", "shared"
SIZES = {"layers": Size(1), PROJECTION: Size(OWN, words=(OWN, SHARED))}
"""See `Training.sizes`. projection: "own" for a matrix over the vocabulary per head, as published, or "shared" for one
of all heads, which takes less memory and bandwidth."""
