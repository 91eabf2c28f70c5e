"""Drafts from an index over a corpus (REST, He et al. 2023), or from a proposer of the user's: the host gives them, and
no graph drafts."""

from speccompile.drafters.family import Family, GivenIndex, Tried, certain

FAMILY = Family(
    "retrieval",
    "copies what followed the last tokens in a corpus of yours, or what your own index proposes",
    ("index", "match", "occurrences", "tokens", "tree"),
    (
        certain(("chain", "dynamic"), ("exact",)),
        certain(("chain",), ("typical", "top_k")),
        certain(("chain",), ("lenience",)),
    ),
    by_host=True,
    elsewhere="whose drafts come from the host, in the place of a graph's",
    tried=(Tried("retrieval", {"index": GivenIndex()}),),
)
