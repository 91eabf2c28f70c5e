"""EAGLE-3 heads in the dialects in which they are published. They read what enters layers 2, 3 and 5, where a dialect
says it at all."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig

from tests.heads import WIDTH, draft_vocabulary, layer, llama_config, random_tensors, write

DIALECTS = ("SafeAILab", "SpecForge", "speculators", "ModelOpt", "AngelSlim", "DeepSpec", "nebius")
BOUNDARIES = (2, 3, 5)


def eagle3(
    folder: Path,
    target: PretrainedConfig,
    dialect: str = "SpecForge",
    *,
    draft_size: int = 0,
    layers: int = 1,
    qk_norm: bool = False,
    boundaries: tuple[int, ...] = BOUNDARIES,
    pickle: str = "",
    tensors: dict[str, Tensor] | None = None,
    seed: int = 0,
    width: int = WIDTH,
    **more: Any,
) -> Path:
    """Write a head as `dialect` writes it; draft_size: of its own vocabulary, 0 for the target's; boundaries: the
    layers before which it reads, where the dialect says so; tensors and more: what is added to its tensors and its
    config; width: of its rows."""
    hidden, vocabulary = target.hidden_size, target.vocab_size
    size, first = draft_size or vocabulary, "midlayer." if _has_midlayer(dialect) else "layers.0."
    taps = 3 if dialect in ("SafeAILab", "AngelSlim", "nebius") else len(boundaries)
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, taps * hidden),
        **layer(first, inputs=2 * width, width=width, qk_norm=qk_norm),
        f"{first}hidden_norm.weight": (width,),
        "norm.weight": (width,),
        "lm_head.weight": (size, width),
    }
    for index in range(1, layers):
        shapes |= layer(f"layers.{index}.", width=width, qk_norm=qk_norm)
    if hidden != width:
        shapes["embed_tokens.weight"] = (vocabulary, width)
        more = {"target_hidden_size": hidden} | more
    made = random_tensors(shapes, seed, 1.5) | (draft_vocabulary(vocabulary, size) if draft_size else {})
    if dialect == "ModelOpt":
        made.pop("t2d", None)
    written = _config(dialect, vocabulary, size, layers, boundaries, width=width, qk_norm=qk_norm) | more
    return write(folder, written, made | (tensors or {}), pickle=pickle)


def _has_midlayer(dialect: str) -> bool:
    return dialect in ("SafeAILab", "SpecForge", "AngelSlim", "nebius")


def _config(
    dialect: str, vocabulary: int, size: int, layers: int, boundaries: tuple[int, ...], *, width: int, qk_norm: bool
) -> dict[str, Any]:
    kind = {"model_type": "qwen3"} if qk_norm else {}
    config = llama_config(vocabulary, layers=layers, width=width, draft_vocab_size=size, **kind)
    outputs = [each - 1 for each in boundaries]
    match dialect:
        case "SafeAILab":
            return config
        case "nebius":
            return config | {"draft_vocab_size": None, "truncated_vocab_size": size}
        case "DeepSpec":
            return config | {"architectures": ["Qwen3Eagle3Model"], "target_layer_ids": outputs}
        case "speculators":
            return {
                "architectures": ["Eagle3DraftModel"],
                "speculators_model_type": "eagle3",
                "speculators_version": "0.9.0",
                "speculators_config": {
                    "algorithm": "eagle3",
                    "default_proposal_method": "greedy",
                    "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
                    "verifier": {"name_or_path": "someone/other", "architectures": ["LlamaForCausalLM"]},
                },
                "transformer_layer_config": {
                    key: value for key, value in config.items() if key not in ("draft_vocab_size", "architectures")
                },
                "draft_vocab_size": size,
                "eagle_aux_hidden_state_layer_ids": list(boundaries),
                "norm_before_residual": False,
                "torch_dtype": "float32",
            }
    config["architectures"] = ["LlamaForCausalLMEagle3"]
    nested = {"eagle_aux_hidden_state_layer_ids": outputs, "use_aux_hidden_state": True}
    return config if dialect == "AngelSlim" else config | {"eagle_config": nested}


def of_norms(target: PretrainedConfig) -> dict[str, Tensor]:
    """Return the norms of `norm_before_fc` and `fc_norm`, around one."""
    random = torch.Generator().manual_seed(5)
    widths = {"input_norm.weight": 3 * target.hidden_size}
    widths |= {f"fc_norm.{index}.weight": target.hidden_size for index in range(3)}
    return {name: 1 + 0.2 * torch.randn(width, generator=random) for name, width in widths.items()}
