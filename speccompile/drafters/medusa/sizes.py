"""The shape of new Medusa heads."""

from speccompile.drafters.sizes import Size

PROJECTION, OWN, SHARED = "projection", "own", "shared"
SIZES = {"layers": Size(1), PROJECTION: Size(OWN, words=(OWN, SHARED))}
"""As `Training.sizes`. projection: whether each head has its own matrix over the vocabulary, as published, or all have
one, which is less to store and to read."""
