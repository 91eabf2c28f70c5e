"""Dialect of Kangaroo's adapters: the state dict of the module in the published code, github.com/Equationliu."""

from speccompile.drafters.dialects import Dialect

KANGAROO = "Kangaroo"

_NAMES = {
    r"(layers\.\d+\.self_attn\.[qkvo]_proj|layers\.\d+\.input_layernorm|norm)\.weight": r"\1.weight",
    r".*rotary_emb\.(inv_freq|cos_cached|sin_cached)": None,  # the switch rope_theta determines it
    r"weight": None,  # the target's head, which accelerate saves with the adapter
}

DIALECTS = (
    Dialect(
        KANGAROO,
        tensors=("layers.0.self_attn.q_proj.weight", "layers.0.input_layernorm.weight", "norm.weight"),
        without=("*mlp*", "*post_attention_layernorm*", "*fc*", "*embed*", "*lm_head*", "*mask*"),
        names=_NAMES,
    ),
)
"""Dialect of an adapter. Its config is a plain Llama's; layers without MLP distinguish it from other heads."""
