"""Lookahead decoding (Fu et al. 2024): the target's predictions of tokens ahead, and a pool of n-grams of them."""

from speccompile.drafters.method import CompareVariant, DraftingMethod, greedy_draft_row

METHOD = DraftingMethod(
    "lookahead",
    "Lookahead: guesses that the target itself improves from round to round, and a pool of n-grams that came of them",
    ("window", "level", "guesses"),
    # The output of approximate verification depends on the drafts, and the drafts on all texts in the pool.
    (greedy_draft_row(("static",), ("exact",)),),
    target_top_k=1,
    tune_sizes=tuple(
        {"window": window, "level": level, "guesses": guesses}
        for window, level, guesses in ((2, 3, 2), (2, 4, 1), (3, 3, 3), (4, 4, 4), (7, 5, 7))
    ),
    compare_variants=(CompareVariant("lookahead"),),
    reads_sources=True,
)
