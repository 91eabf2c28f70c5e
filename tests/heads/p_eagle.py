"""P-EAGLE heads in every dialect that is known."""

from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from tests.heads import WIDTH, draft_vocabulary, layer, llama_config, random_tensors, write

IDS = "eagle_aux_hidden_state_layer_ids"


def p_eagle(
    folder: Path,
    target: PretrainedConfig,
    dialect: str = "speculators",
    *,
    layers: int = 2,
    draft_size: int = 0,
    mask_token: int = 7,
    seed: int = 0,
    width: int = WIDTH,
    **more: Any,
) -> Path:
    """dialect: "speculators", "vllm" (EAGLE-3's architecture) or "specforge" (its names); width: of its rows. For a
    target as wide as the head, taps before its layer 1 and, twice, behind it. `more` goes to the config."""
    hidden, vocabulary = target.hidden_size, target.vocab_size
    assert hidden == width or dialect != "speculators", "speculators has heads as wide as their targets"
    size = draft_size or vocabulary
    first = "midlayer." if dialect == "specforge" else "layers.0."
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, 3 * hidden),
        "mask_hidden": (1, 3 * hidden) if dialect == "vllm" else (1, 1, 3 * hidden),
        **layer(first, inputs=2 * width, width=width),
        f"{first}hidden_norm.weight": (width,),
        "norm.weight": (width,),
        "lm_head.weight": (size, width),
        "embed_tokens.weight": (vocabulary, width),
    }
    for index in range(1, layers):
        shapes |= layer(f"layers.{index}.", width=width)
    tensors = random_tensors(shapes, seed, 1.5) | (draft_vocabulary(vocabulary, size) if draft_size else {})
    tensors["mask_hidden"] = 3 * tensors["mask_hidden"] * (3 * hidden) ** 0.5
    config = llama_config(vocabulary, layers=layers, width=width)
    sizes = {} if hidden == width else {"target_hidden_size": hidden}
    if dialect == "speculators":
        return write(folder, _speculators(config, size, mask_token) | more, tensors)
    own = {"draft_vocab_size": size, "architectures": ["LlamaForCausalLMEagle3"]} | sizes
    if dialect == "vllm":
        said = {IDS: [1, 2, 2], "ptd_token_id": mask_token, "parallel_drafting": True}
    else:
        said = {"eagle_config": {IDS: [0, 1, 1]}, "mask_token_id": mask_token}
    return write(folder, config | own | said | more, tensors)


def _speculators(config: dict[str, Any], size: int, mask_token: int) -> dict[str, Any]:
    return {
        "architectures": ["PEagleSpeculator"], "speculators_model_type": "peagle", "speculators_version": "0.9.0",
        "transformer_layer_config": config, "draft_vocab_size": size, "norm_before_residual": False,
        "norm_before_fc": False, "fc_norm": False, "norm_output": False, "embed_requires_grad": True,
        "target_hidden_size": None, IDS: [1, 2, 2], "mask_token_id": mask_token,
        "speculators_config": {
            "algorithm": "peagle", "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
            "verifier": {"name_or_path": "some/target", "architectures": ["LlamaForCausalLM"]},
        },
    }  # fmt: skip
