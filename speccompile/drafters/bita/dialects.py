"""Dialect of BiTA's checkpoints: that of the published code, github.com/linfeng93/BiTA, which saves the target as well.
The authors published no weights."""

from speccompile.drafters.dialects import Dialect

MASKS, PREFIX = "mask_tokens.weight", "prefix_encoder.embedding.weight"
INNER, OUTER = "prefix_encoder.trans.0", "prefix_encoder.trans.2"

BITA = "BiTA"

_INSIDE = r"(?:(?:base_model\.)?(?:model|transformer)\.)?"

DIALECTS = (
    Dialect(
        BITA,
        tensors=("*mask_tokens.weight", "*prefix_encoder.embedding.weight"),
        names={
            _INSIDE + r"(mask_tokens\.weight)": r"\1",
            _INSIDE + r"(prefix_encoder\.(?:embedding\.weight|trans\.[02]\.(?:weight|bias)))": r"\1",
            _INSIDE + r"(?:embed_tokens|word_embeddings|layers|h|norm|ln_f)\..*": None,  # the target's own
            r"lm_head\.weight": None,
        },
    ),
)
