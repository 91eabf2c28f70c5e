"""How Gemma 4's assistants are written: as transformers' own class saves them, whose names are ours."""

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
"""The second is of folders whose config says no architecture."""
