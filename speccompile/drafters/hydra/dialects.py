"""Dialect of Hydra heads: the state dict of the original module. Two of its architectures are compiled."""

from speccompile.drafters.dialects import Dialect

HYDRA = "Hydra"
MLP, PREFIX_MLP = "mlp", "prefix-mlp"

_NAMES = {
    r"hydra_mlp\.(\d+)\.(\d+)\.(linear|res_connection)\.(weight|bias)": r"mlps.\1.\2.\3.\4",
    r"hydra_lm_head\.(\d+)\.(?:\d+\.)?(weight|bias)": r"lm_heads.\1.\2",
    r"input_embed_fn\.weight": "embed_tokens.weight",
    r".*rotary_emb\.inv_freq": None,  # derived from the target's config
    r"prefix_embeding_layer\.layers\.(.+)": r"layers.\1",
    r"prefix_embeding_layer\.norm\.weight": "norm.weight",
    r"prefix_embeding_layer\.embed_tokens\.weight": None,  # its input is hidden states instead of tokens
}
_ATTENDS = (
    "its head attends over the target's rows and drafts in a way of its own; only mlp and prefix-mlp are compiled"
)

DIALECTS = (
    Dialect("Hydra (cross-attn)", keys=("hydra_head_arch=cross-attn",), refused=_ATTENDS),
    Dialect("Hydra (eagle-attn)", keys=("hydra_head_arch=eagle-attn",), refused=_ATTENDS),
    Dialect(HYDRA, keys=("hydra_num_heads",), tensors=("hydra_mlp.*",), names=_NAMES),
)
"""Dialects in the order of recognition (section 6 of the drafting methods' facts)."""
