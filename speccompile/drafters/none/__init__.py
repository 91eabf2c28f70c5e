"""No drafter: autoregressive decoding."""

from speccompile.drafters.family import Family, certain

FAMILY = Family("none", "no drafter: autoregressive decoding", (), (certain(("chain",), ("exact",)),), drafts=False)
