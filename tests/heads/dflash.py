"""DFlash, DFlash2 and DSpark heads in each of their dialects, of the size of a small target."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig

from tests.heads import draft_vocabulary, layer, llama_config, random_tensors, write

MASK, BLOCK, RANK, LAYERS = 5, 5, 8, 2
CONVOLUTION = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": RANK, "selector_top_k": 4}
MARKOV = {
    "markov_rank": RANK, "markov_head_type": "vanilla", "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}  # fmt: skip


def backbone(target: PretrainedConfig, layers: int = LAYERS) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of what all of them have."""
    width = target.hidden_size
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (width, 2 * width), "hidden_norm.weight": (width,)}
    for index in range(layers):
        shapes |= layer(f"layers.{index}.", width=width, qk_norm=True)
    return shapes | {"norm.weight": (width,)}


def ends(target: PretrainedConfig, size: int = 0) -> dict[str, tuple[int, ...]]:
    """Return an embedding and an output matrix of its own."""
    vocabulary, width = target.vocab_size, target.hidden_size
    return {"embed_tokens.weight": (vocabulary, width), "lm_head.weight": (size or vocabulary, width)}


def _config(target: PretrainedConfig, architecture: str, **more: Any) -> dict[str, Any]:
    layers = more.pop("num_hidden_layers", LAYERS)
    config = llama_config(target.vocab_size, layers=layers, width=target.hidden_size)
    kinds = {"model_type": "qwen3", "layer_types": ["full_attention"] * layers, "use_sliding_window": False}
    return config | {"architectures": [architecture]} | kinds | more


def zlab(folder: Path, target: PretrainedConfig, *, own: dict[str, Any] | None = None, **more: Any) -> Path:
    """Write z-lab's dialect, also SpecForge's: neither embedding nor output matrix. own: keys of `dflash_config`."""
    said = {"mask_token_id": MASK, "target_layer_ids": [0, 1], **(own or {})}
    config = _config(target, "DFlashDraftModel", block_size=BLOCK, num_target_layers=target.num_hidden_layers,
                     dflash_config=said, **more)  # fmt: skip
    return write(folder, config, random_tensors(backbone(target, layers=config["num_hidden_layers"]), 1, 1.5))


def dflash2(folder: Path, target: PretrainedConfig, **more: Any) -> Path:
    """Write z-lab's DFlash2: convolutions, and codebooks that are no modules."""
    said = {"mask_token_id": MASK, "target_layer_ids": [0, 1], **CONVOLUTION}
    config = _config(target, "DFlash2DraftModel", block_size=BLOCK, dflash_config=said, **more)
    return write(folder, config, random_tensors(backbone(target), 1, 1.5) | selecting(target))


def selecting(target: PretrainedConfig) -> dict[str, Tensor]:
    """Return what DFlash2 adds."""
    width, groups = target.hidden_size, target.hidden_size // CONVOLUTION["conv_group_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "candidate_selector.predecessor_codebook": (target.vocab_size, RANK),
        "candidate_selector.successor_codebook": (target.vocab_size, RANK),
        "candidate_selector.hidden_projection.weight": (RANK, width),
    }
    tensors = random_tensors(shapes, 2, 2.0)
    for index in range(LAYERS):
        for place in ("attention", "mlp"):
            name = f"layers.{index}.{place}_conv"
            kernel = 0.3 * torch.randn(2, 2, width, generator=torch.Generator().manual_seed(index))
            kernel[:, 0] += 1
            projection = random_tensors({"weight": (2 * 2 * groups, width)}, index, 0.3)
            tensors |= {f"{name}.base_kernel": kernel, f"{name}.kernel_projection.weight": projection["weight"]}
    return tensors


def deepspec(folder: Path, target: PretrainedConfig, *, markov: dict[str, Any] | None = None, **more: Any) -> Path:
    """Write DeepSpec's dialect: flat, with both ends. markov: with DSpark's heads, whose keys these are."""
    said = markov or {"markov_rank": 0, "enable_confidence_head": False}
    config = _config(target, "Qwen3DSparkModel", block_size=BLOCK, mask_token_id=MASK, target_layer_ids=[-1, 1],
                     num_anchors=512, num_target_layers=target.num_hidden_layers, **(said | more))  # fmt: skip
    shapes = backbone(target) | ends(target)
    return write(folder, config, random_tensors(shapes, 1, 1.5) | (heads(target, markov) if markov else {}))


def specforge(folder: Path, target: PretrainedConfig, *, prefix: str = "", own: dict[str, Any] | None = None) -> Path:
    """Write SpecForge's DSpark; its first heads were saved below `logit_head.`."""
    said = {"projector_type": "dspark", "mask_token_id": MASK, "target_layer_ids": [0, 1], "attention_mode": "gqa",
            "confidence_head_alpha": 1.0, **MARKOV, **(own or {})}  # fmt: skip
    config = _config(target, "DSparkDraftModel", block_size=BLOCK, dflash_config=said)
    tensors = {prefix + name: tensor for name, tensor in heads(target, said).items()}
    return write(folder, config, random_tensors(backbone(target), 1, 1.5) | tensors)


def heads(target: PretrainedConfig, said: dict[str, Any], size: int = 0) -> dict[str, Tensor]:
    """Return the Markov head and the confidence head."""
    vocabulary, width, rank = target.vocab_size, target.hidden_size, said["markov_rank"]
    shapes: dict[str, tuple[int, ...]] = {}
    if rank:
        shapes |= {
            "markov_head.markov_w1.weight": (vocabulary, rank),
            "markov_head.markov_w2.weight": (size or vocabulary, rank),
        }
    match said["markov_head_type"]:
        case "gated":
            shapes |= {"markov_head.gate_proj.weight": (rank, width + rank), "markov_head.gate_proj.bias": (rank,)}
        case "rnn":
            shapes["markov_head.joint_proj.weight"] = (3 * rank, 2 * rank + width)
            shapes["markov_head.joint_proj.bias"] = (3 * rank,)
    if said["enable_confidence_head"]:
        read = width + (rank if said["confidence_head_with_markov"] else 0)
        shapes |= {"confidence_head.proj.weight": (1, read), "confidence_head.proj.bias": (1,)}
    tensors = random_tensors(shapes, 3, 2.0)
    return {name: tensor - 1 if name.endswith("bias") else tensor for name, tensor in tensors.items()}


def speculators(
    folder: Path, target: PretrainedConfig, kind: str = "dflash", *, draft_size: int = 0, **more: Any
) -> Path:
    """Write speculators' dialect of a kind: nested layers, boundaries between layers, maybe a draft vocabulary."""
    vocabulary = target.vocab_size
    layers = more.pop("transformer_layer_config", {})
    nested = _config(target, "Qwen3ForCausalLM") | layers
    said: dict[str, Any] = {
        "architectures": ["DFlashSpeculator"], "speculators_model_type": kind, "block_size": BLOCK,
        "mask_token_id": MASK, "aux_hidden_state_layer_ids": [1, 2], "draft_vocab_size": draft_size or vocabulary,
        "transformer_layer_config": nested, "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": kind, "verifier": {"name_or_path": "org/target"},
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": BLOCK - 1}],
        },
    }  # fmt: skip
    tensors = random_tensors(backbone(target), 1, 1.5)
    match kind:
        case "dflash2":
            said |= CONVOLUTION
            tensors |= selecting(target)
        case "dspark":
            said |= MARKOV
            tensors |= heads(target, said | more, draft_size)
        case "domino":
            said |= {"gru_hidden_dim": DOMINO["gru_hidden_dim"], "logits_correction_emb_dim": RANK}
            own = correcting(target, draft_size or vocabulary)
            tensors |= {f"logits_correction.{name}": tensor for name, tensor in own.items()}
    if draft_size:
        tensors |= random_tensors({"lm_head.weight": (draft_size, target.hidden_size)}, 4, 1.5)
        tensors |= draft_vocabulary(vocabulary, draft_size)
    return write(folder, said | more, tensors)


DOMINO = {"gru_hidden_dim": 12, "emb_dim": RANK, "pure_draft_prefix_len": 1}


def domino(folder: Path, target: PretrainedConfig, *, prefix: str = "", own: dict[str, Any] | None = None) -> Path:
    """Write SpecForge's Domino; its first heads were saved below `logit_head.`."""
    said = {"projector_type": "domino", "mask_token_id": MASK, "target_layer_ids": [0, 1], **DOMINO, **(own or {})}
    config = _config(target, "DominoDraftModel", block_size=BLOCK, dflash_config=said)
    tensors = {prefix + name: tensor for name, tensor in correcting(target, target.vocab_size).items()}
    return write(folder, config, random_tensors(backbone(target), 1, 1.5) | tensors)


def correcting(target: PretrainedConfig, size: int) -> dict[str, Tensor]:
    """Return what Domino adds, over `size` draft tokens."""
    state, width = DOMINO["gru_hidden_dim"], target.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "prefix_gru.weight_ih_l0": (3 * state, width),
        "prefix_gru.weight_hh_l0": (3 * state, state),
        "embed_proj.0.weight": (RANK, width + state),
        "embed_proj.2.weight": (size, RANK),
    }
    return random_tensors(shapes, 6, 3.0)


def transformers(folder: Path, target: PretrainedConfig, **more: Any) -> Path:
    """Return the dialect of transformers' MuseGlimmerAssistantModel."""
    width = target.hidden_size
    kept = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "head_dim", "rms_norm_eps", "hidden_act", "max_position_embeddings")  # fmt: skip
    config = {name: value for name, value in _config(target, "").items() if name in kept} | {
        "architectures": ["MuseGlimmerAssistantModel"], "model_type": "muse_glimmer_assistant", "block_size": BLOCK,
        "mask_token_id": MASK, "target_layer_ids": [0, 1], "layer_types": ["full_attention"] * LAYERS,
        "sliding_window": 2048, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }  # fmt: skip
    names = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
    tensors = random_tensors(backbone(target), 1, 1.5)
    assert tensors["norm.weight"].shape == (width,)
    return write(folder, config | more, {names.get(name, name): tensor for name, tensor in tensors.items()})
