"""Dialects of Gemma 4's assistants: transformers' class saves them, and its names are the normalised ones."""

from speccompile.drafters.dialects import Dialect

_NAMES = {
    r"lm_head\.weight": None,  # the embedding, which the head is tied to
    r"((?:pre|post)_projection|model\.(?:norm|embed_tokens)|masked_embedding\.centroids)\.weight": r"\1.weight",
    r"masked_embedding\.token_ordering": "masked_embedding.token_ordering",
    r"model\.layers\.(\d+)\.(.+)": r"model.layers.\1.\2",
}

DIALECTS = (
    Dialect("Gemma-4 assistant", ("Gemma4Assistant*", "Gemma4UnifiedAssistant*"), names=_NAMES),
    Dialect("Gemma-4 assistant", keys=("backbone_hidden_size", "text_config.model_type"), names=_NAMES),
)
"""Dialects of an assistant. The second is for folders whose config has no architecture."""
