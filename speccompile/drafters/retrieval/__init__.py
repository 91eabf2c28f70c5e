"""Retrieval: drafts from an index over a corpus (REST, He et al. 2023), or from the user's proposer. The host makes
them, and no graph drafts."""

from speccompile.drafters.method import NO_RUN, CompareVariant, DraftingMethod, GivenIndex, greedy_draft_row

METHOD = DraftingMethod(
    "retrieval",
    "copies what followed the last tokens in a corpus of yours, or what your own index proposes",
    ("index", "match", "occurrences", "tokens", "tree"),
    (
        greedy_draft_row(("chain", "dynamic"), ("exact",)),
        greedy_draft_row(("chain",), ("typical", "top_k")),
        greedy_draft_row(("chain",), ("lenience",)),
    ),
    drafts_on_host=True,
    elsewhere="whose drafts come from the host, in the place of a graph's",
    compare_variants=(CompareVariant("retrieval", {"index": GivenIndex()}),),
    runs=NO_RUN,
)
