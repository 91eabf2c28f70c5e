"""Several language models whose drafts are merged into one tree (SpecInfer, Miao et al. 2023)."""

from speccompile.drafters.method import OWN, STATIC_TREE_KINDS, DraftingMethod, greedy_draft_row

METHOD = DraftingMethod(
    "models",
    "several language models, their drafts merged",
    ("models", "tokenizer", "tokens", "tree"),
    (greedy_draft_row(STATIC_TREE_KINDS, ("exact",)), greedy_draft_row(STATIC_TREE_KINDS, ("typical", "top_k"))),
    weights=OWN,
    required_keys={"models": ("the models", "[demo/drafter, demo/other]")},
    trains_as="model",
)
