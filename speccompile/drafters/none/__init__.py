"""No drafter: autoregressive decoding."""

from speccompile.drafters.method import NO_RUN, DraftingMethod, greedy_draft_row

METHOD = DraftingMethod(
    "none",
    "no drafter: autoregressive decoding",
    (),
    (greedy_draft_row(("chain",), ("exact",)),),
    drafts=False,
    with_images=True,
    runs=NO_RUN,
    reads_sources=True,
)
