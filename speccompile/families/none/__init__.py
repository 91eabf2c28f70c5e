"""No drafter: autoregressive decoding."""

from speccompile.families.family import Family, certain

FAMILY = Family("none", "no drafter: autoregressive decoding", (), (certain(("chain",), ("exact",)),))
