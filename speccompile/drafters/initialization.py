"""Initialize new heads: config.json with the keys of transformers' Llama, and random weights in one file."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from speccompile.drafters.config import read_layers
from speccompile.drafters.dialects import Keys
from speccompile.drafters.saving import write_config
from speccompile.drafters.sizes import HIDDEN, POSITIONS, config_value
from speccompile.drafters.trainable import NewDrafter
from speccompile.errors import RecipeError
from speccompile.plan.head import HeadFolder
from speccompile.plan.layers import LayerShape, Shapes

MASK = "mask_token"
"""Size under `train.shape` of drafters that read a mask token."""
_SCALED = ("linear", "llama3", "yarn")
"""RoPE scalings that a drafter copies from its target: they do not depend on head_dim or on the length of the text."""
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def target_sizes(wanted: NewDrafter) -> tuple[int, int]:
    """Return (hidden size, vocabulary size) of the target."""
    vocabulary, hidden = wanted.ends.head.weight.shape
    return hidden, vocabulary


def llama_config(wanted: NewDrafter) -> dict[str, Any]:
    """Return the config.json of layers of the sizes `wanted.sizes`, with the target's vocabulary and positions, and its
    RoPE parameters except those that depend on the size of its attention heads."""
    config, sizes = wanted.config, wanted.sizes
    return {
        "model_type": "llama",
        "num_hidden_layers": sizes["layers"],
        "hidden_size": sizes.get("hidden_size", config_value(config, *HIDDEN)),
        "intermediate_size": sizes["intermediate_size"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "head_dim": sizes["head_dim"],
        "hidden_act": "silu",
        "rms_norm_eps": config.get("rms_norm_eps", 1e-6),
        "vocab_size": target_sizes(wanted)[1],
        "max_position_embeddings": config_value(config, *POSITIONS, default=2048),
        **_rope(config),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        **{key: config[key] for key in _TOKENS if config.get(key) is not None},
        "torch_dtype": "float32",
    }


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    written = config.get("rope_parameters") or config.get("rope_scaling") or {}
    written = written.get("full_attention", written)  # some models have RoPE parameters per layer type
    kind = written.get("rope_type") or written.get("type") or "default"
    theta = written.get("rope_theta") or config.get("rope_theta") or 10000.0
    scaling = {key: value for key, value in written.items() if key not in ("rope_theta", "type")}
    return {"rope_theta": theta, "rope_scaling": scaling | {"rope_type": kind} if kind in _SCALED else None}


def layer_shape(words: Mapping[str, Any]) -> LayerShape:
    """Return the layers that a config with the keys of Llama describes."""
    return read_layers(Keys(HeadFolder(Path(), words, {}, ())), {})


def random_tensors(shapes: Shapes, seed: int) -> dict[str, Tensor]:
    """Return initial tensors: matrices uniform within +-1/sqrt(columns), as torch's Linear; norms ones, biases
    zeros."""
    random, found = torch.Generator().manual_seed(seed), dict[str, Tensor]()
    for name, shape in shapes.items():
        if len(shape) == 1:
            found[name] = torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)
        else:
            found[name] = (2 * torch.rand(shape, generator=random) - 1) / shape[-1] ** 0.5
    return found


def vocabulary_maps(kept: Tensor, size: int) -> dict[str, Tensor]:
    """Return d2t int64 [Vd], the offset of each draft token's id in the target, and t2d bool [V], True for those."""
    has = torch.zeros(size, dtype=torch.bool)
    has[kept] = True
    return {"d2t": kept - torch.arange(len(kept)), "t2d": has}


def proposal(wanted: NewDrafter, algorithm: str) -> dict[str, Any]:
    """Return the config keys that speculators and vLLM read: the number of drafts and the target."""
    method = {"proposal_type": "greedy", "speculative_tokens": wanted.depth, "accept_tolerance": 0.0}
    return {
        "speculators_model_type": algorithm,
        "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": algorithm,
            "default_proposal_method": "greedy",
            "proposal_methods": [method | {"verifier_accept_k": 1}],
            "verifier": {
                "name_or_path": wanted.reference,
                "architectures": list(wanted.config.get("architectures") or []),
            },
        },
    }


def write_head(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a new folder with a config and the tensors in one file, without changing their dtype."""
    folder.mkdir(parents=True)
    write_config(folder, config)
    whole = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    save_file(whole, folder / "model.safetensors", {"format": "pt"})


def mask_token(wanted: NewDrafter) -> int:
    """Return the mask token: the one of the recipe, or a token that no text has. The target's padding token comes
    first, then the token with the smallest embedding norm, which is least likely to have been trained.

    Raise RecipeError if every token is used.
    """
    asked = wanted.sizes[MASK]
    if isinstance(asked, int):
        return asked
    config, counts = wanted.config, wanted.counts
    padding = config.get("pad_token_id")
    ends = [config.get(key) for key in ("bos_token_id", "eos_token_id")]
    used = {token for each in ends for token in (each if isinstance(each, list) else [each]) if token is not None}
    if counts is None:
        unused = [padding] if isinstance(padding, int) and padding not in used else []
    else:
        unused = [token for token in (counts == 0).nonzero()[:, 0].tolist() if token not in used]
    if not unused:
        received = "texts that have every token of the target" if counts is not None else "no padding in config.json"
        raise RecipeError(
            f"train.shape.{MASK}: received 'unused' and {received}, expected a token that stands in no text",
            hint=f"set train.shape.{MASK} to the number of one that never comes, or hardly ever",
        )
    if padding in unused:
        return int(padding)
    norms = wanted.ends.embed.table.float()[unused].norm(dim=1)
    return int(unused[int(norms.argmin())])


def renamed(tensors: Mapping[str, Tensor], pairs: Iterable[tuple[str, str]]) -> dict[str, Tensor]:
    """Return the tensors with the first string of a pair, where a name begins with it, replaced by the second."""
    found = dict(tensors)
    for ours, published in pairs:
        found = {name.replace(ours, published, 1) if name.startswith(ours) else name: x for name, x in found.items()}
    return found
