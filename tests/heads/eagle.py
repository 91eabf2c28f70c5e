"""EAGLE heads in every dialect that is known."""

from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PretrainedConfig

from tests.heads import layer, llama_config, random_tensors, write


def eagle(
    folder: Path,
    target: PretrainedConfig,
    dialect: str = "safeailab",
    *,
    bias: bool = True,
    qkv_bias: bool = False,
    layers: int = 1,
    seed: int = 0,
    **more: Any,
) -> Path:
    """dialect: "safeailab" (a pickle), "vllm", "nested" (vLLM's first) or "speculators". `more` goes to the config."""
    width, vocabulary = target.hidden_size, target.vocab_size
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (width, 2 * width)}
    for index in range(layers):
        shapes |= layer(f"layers.{index}.", width=width)
    del shapes["layers.0.input_layernorm.weight"]
    if bias:
        shapes["fc.bias"] = (width,)
    if qkv_bias:
        projections = [name for name in shapes if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))]
        shapes |= {name.replace("weight", "bias"): shapes[name][:1] for name in projections}
    tensors = random_tensors(shapes, seed, 1.5)
    copies = random_tensors({"embed_tokens.weight": (vocabulary, width), "lm_head.weight": (vocabulary, width)}, 9)
    config = llama_config(vocabulary, layers=layers, width=width) | ({"qkv_bias": True} if qkv_bias else {})
    if dialect == "safeailab":
        del copies["lm_head.weight"]
        said = config | ({} if bias else {"bias": False}) | more
        return write(folder, said, tensors | copies, pickle="pytorch_model.bin")
    if dialect == "vllm":
        return write(folder, config | {"architectures": ["EagleLlamaForCausalLM"]} | more, tensors | copies)
    if dialect == "nested":
        config["eagle_fc_bias"] = bias
        return write(folder, {"model_type": "eagle", "model": config} | more, tensors | copies)
    assert dialect == "speculators"
    return write(folder, _speculators(config, bias) | more, {_transformer(n): t for n, t in tensors.items()})


def _transformer(name: str) -> str:
    return name.replace("layers.0.", "transformer.").replace("fc.", "fusion_fc.")


def _speculators(config: dict[str, Any], bias: bool) -> dict[str, Any]:
    return {
        "architectures": ["EagleSpeculator", "LlamaDecoderLayer"], "speculators_model_type": "eagle",
        "speculators_version": "0.1.0", "transformer_layer_architecture": "LlamaDecoderLayer", "layernorms": False,
        "fusion_bias": bias, "transformer_layer_config": config,
        "speculators_config": {
            "algorithm": "eagle", "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
            "verifier": {"name_or_path": "some/target", "architectures": ["LlamaForCausalLM"]},
        },
    }  # fmt: skip


def enorm(width: int) -> dict[str, Tensor]:
    """Return what a variant has that is not compiled."""
    return random_tensors({"enorm.weight": (width,), "hnorm.weight": (width,)})
