"""Targets that bring MTP layers, in the layouts in which they are published: small random ones."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from tests import zoo
from tests.heads import write

LAYERS = 2
"""Of every target."""

Names = Callable[[int, str], str]
"""MTP layer and a name of the DeepSeek layout behind its number -> the whole name in another one."""

COUNT = "num_nextn_predict_layers"


def behind(number: int, part: str) -> str:
    """Return names in DeepSeek's layout, and GLM's: numbered on from the target's layers."""
    return f"model.layers.{LAYERS + number}.{part}"


def _final(number: int, part: str) -> str:
    return behind(number, part.replace("shared_head.norm", "final_layernorm"))


def _mimo(number: int, part: str) -> str:
    others = {"enorm": "token_layernorm", "hnorm": "hidden_layernorm", "eh_proj": "input_proj"}
    others["shared_head.norm"] = "final_layernorm"
    module, _, end = part.rpartition(".")
    return f"model.mtp_layers.{number}.{others.get(module, module)}.{end}"


def _mimo_v2(number: int, part: str) -> str:
    part = part.replace("shared_head.norm", "final_layernorm").replace("post_attention_layernorm", "pre_mlp_layernorm")
    return f"model.mtp.layers.{number}.{part}"


def _ernie(number: int, part: str) -> str:
    others = {"enorm": "mtp_emb_norm", "hnorm": "mtp_hidden_norm", "eh_proj": "mtp_linear_proj"}
    module, _, end = part.rpartition(".")
    if module in others:
        return f"model.{others[module]}.{number}.{end}"
    return f"model.mtp_block.{number}.{part}"


def _qwen(number: int, part: str) -> str:
    others = {"enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "eh_proj": "fc"}
    others["shared_head.norm"] = "norm"
    module, _, end = part.rpartition(".")
    return f"mtp.{others[module]}.{end}" if module in others else f"mtp.layers.{number}.{part}"


@dataclass(frozen=True)
class Target:
    """model_type and settings of transformers' config; the layout of its MTP layers, and the key that counts them."""

    model_type: str
    names: Names
    settings: dict[str, Any]
    count: str | None = COUNT
    has_norm: bool = True


_MOE = {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "moe_intermediate_size": 32, "routed_scaling_factor": 1.5}
_LATENT = {
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "num_key_value_heads": 4,
}  # fmt: skip
_DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 32}

TARGETS: dict[str, Target] = {
    "glm4_moe": Target("glm4_moe", behind, _MOE | {"first_k_dense_replace": 1}),
    "deepseek_v3": Target("deepseek_v3", behind, _MOE | _LATENT | {"first_k_dense_replace": 1}),
    "hy_v3": Target("hy_v3", _final, {"mlp_layer_types": ["dense", "sparse"]}),
    "mimo": Target("qwen2", _mimo, {}),
    "mimo_v2": Target("mimo_v2_flash", _mimo_v2, {}),
    "ernie": Target("ernie4_5_moe", _ernie, {"moe_num_experts": 4, "moe_k": 2}, has_norm=False),
    "qwen3_next": Target("qwen3_next", _qwen, _DELTA | _EXPERTS, count=None),
    "qwen3_5": Target("qwen3_5_text", _qwen, _DELTA, count="mtp_num_hidden_layers"),
    "qwen3": Target("qwen3", _qwen, {}, count=None),
    "mellum": Target("mellum", _qwen, _EXPERTS | {"layer_types": ["sliding_attention", "full_attention"]}),
    "exaone_moe": Target("exaone_moe", _qwen, _MOE | {"mlp_layer_types": ["dense", "sparse"]}),
}  # fmt: skip


def config_of(name: str, layers: int, **settings: Any) -> Any:
    """Return transformers' config of a target with so many layers; those behind the target's are like its last."""
    row = TARGETS[name]
    made = CONFIG_MAPPING[row.model_type]
    declared = {field.name for field in fields(made)}
    given = {key: value for key, value in zoo.SIZES.items() if key in declared} | row.settings | settings
    for key, value in given.items():
        if isinstance(value, list) and len(value) == LAYERS:
            given[key] = value + value[-1:] * (layers - LAYERS)
    return made(**(given | {"num_hidden_layers": layers}))


def mtp_target(
    folder: Path, name: str, n_mtp: int = 1, *, seed: int = 0, said: int | None = None, **settings: Any
) -> Path:
    """Write a target and its MTP layers in one checkpoint. said: what its config says, by default how many there
    are."""
    row, layers = TARGETS[name], LAYERS + n_mtp
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        whole = AutoModelForCausalLM.from_config(
            config_of(name, layers, **settings), dtype=torch.float32, attn_implementation="eager"
        )
        zoo.enliven(whole)
    whole.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    width = whole.config.hidden_size
    kept = {n: t for n, t in tensors.items() if _number(n) < LAYERS}
    for number in range(n_mtp):
        start = f"model.layers.{LAYERS + number}."
        parts = {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}
        parts |= _joining(width, seed + number, has_norm=row.has_norm)
        kept |= {row.names(number, part): tensor for part, tensor in parts.items()}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_said(whole, row, name, n_mtp if said is None else said, settings)))
    return folder


def _said(whole: PreTrainedModel, row: Target, name: str, count: int, settings: dict[str, Any]) -> dict[str, Any]:
    config = config_of(name, LAYERS, **settings).to_dict() | {"architectures": whole.config.architectures}
    for key in (COUNT, "num_mtp_layers", "mtp_num_hidden_layers"):
        config.pop(key, None)
    return config | ({row.count: count} if row.count else {})


def _number(name: str) -> int:
    match = re.search(r"\blayers\.(\d+)\.", name)
    return int(match[1]) if match else -1


def _joining(width: int, seed: int, *, has_norm: bool) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed + 50)
    norms = ["enorm", "hnorm", *(["shared_head.norm"] if has_norm else [])]
    made = {f"{name}.weight": 1 + 0.2 * torch.randn(width, generator=random) for name in norms}
    return made | {"eh_proj.weight": 1.5 * torch.randn(width, 2 * width, generator=random) / width**0.5}


def mtp_head(folder: Path, target: Any, n_mtp: int = 1, seed: int = 0, **more: Any) -> Path:
    """Return the layers in a folder of their own, as speculators writes it, for a target of any class."""
    config = deepcopy(target)
    config.num_hidden_layers, width = 1, target.hidden_size
    for key, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == target.num_hidden_layers and "layer" in key:
            setattr(config, key, value[-1:])
    tensors = {}
    for number in range(n_mtp):
        with torch.random.fork_rng():
            torch.manual_seed(seed + number)
            whole = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            zoo.enliven(whole)
        whole.save_pretrained(folder)
        for name, tensor in load_file(folder / "model.safetensors").items():
            match, norm = (
                re.fullmatch(r"(?:.*\.)?(?:layers|h)\.0\.(.+)", name),
                re.fullmatch(r".*norm\w*\.(\w+)|.*ln_f\.(\w+)", name),
            )
            if match:
                tensors[f"mtp_layers.{number}.{match[1]}"] = tensor
            elif norm:
                end = norm[1] or norm[2]
                for each in ("final_layernorm", "token_layernorm", "hidden_layernorm"):
                    tensors[f"mtp_layers.{number}.{each}.{end}"] = tensor.clone()
        tensors[f"mtp_layers.{number}.input_proj.weight"] = _joining(width, seed + number, has_norm=False)[
            "eh_proj.weight"
        ]
    section = {key: value for key, value in target.to_dict().items() if key != "architectures"}
    proposal = {"proposal_type": "greedy", "speculative_tokens": 3}
    said = {
        "architectures": ["MTPDraftModel"], "speculators_model_type": "mtp", "speculators_version": "0.9.0",
        COUNT: n_mtp, "transformer_layer_config": section,
        "speculators_config": {"algorithm": "mtp", "proposal_methods": [proposal], "default_proposal_method": "greedy"},
    }  # fmt: skip
    return write(folder, said | more, tensors)
