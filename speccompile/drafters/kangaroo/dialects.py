"""How Kangaroo's adapters are written: the state dict of the published code's own module, github.com/Equationliu."""

from speccompile.drafters.dialects import Dialect

KANGAROO = "Kangaroo"

_NAMES = {
    r"(layers\.\d+\.self_attn\.[qkvo]_proj|layers\.\d+\.input_layernorm|norm)\.weight": r"\1.weight",
    r".*rotary_emb\.(inv_freq|cos_cached|sin_cached)": None,  # the switch says it
    r"weight": None,  # the target's own head, which accelerate saves beside the adapter
}

DIALECTS = (
    Dialect(
        KANGAROO,
        tensors=("layers.0.self_attn.q_proj.weight", "layers.0.input_layernorm.weight", "norm.weight"),
        without=("*mlp*", "*post_attention_layernorm*", "*fc*", "*embed*", "*lm_head*", "*mask*"),
        names=_NAMES,
    ),
)
"""Its config is a plain Llama's: what tells it from all others is that its layers are attention alone."""
