"""An MTP layer as a causal language model of the target's class: one decoder layer, a norm, the target's embedding and
head.

So attention, experts and positions are transformers' code for any target, and its conversion of published tensors
(merging experts, renaming) applies to the MTP layer as well.
"""

import re
from collections.abc import Iterable
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.models.load import assemble, read_model
from speccompile.compiler.step.layers import find_norm
from speccompile.compiler.weights.checkpoint import checkpoint_sources
from speccompile.compiler.weights.tensor import WeightTensor
from speccompile.drafters.mtp.layouts import BY_NAME, Layout, target_layers
from speccompile.drafters.mtp.reading import count_layers
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.plan.head import HeadFolder, HeadPlan

FULL, SLIDING = "full_attention", "sliding_attention"
SPARSE, DENSE = "sparse", "dense"

_EXPERTS = re.compile(
    r"layers\.\d+\.(?:mlp|moe|block_sparse_moe|mixer|feed_forward)\.(?:experts\.|gate\.weight|router)"
)
_NUMBERED = re.compile(r"(.*?\b(?:layers|h|blocks)\.)(\d+)\.")
_EMBEDDING = re.compile(r"(?:.*\.)?(?:embed_tokens|word_embeddings|embeddings|wte|embed_in)\.weight")
_HEAD = re.compile(r"(?:.*\.)?(?:lm_head|embed_out|output)\.weight")
_MTP = re.compile(r"(?:^|\.)mtp")
_NORM = re.compile(r"(?:.*\.)?(?:final_layer_?norm|ln_f|norm\w*)\.(weight|bias)")

_ROUTES: dict[str, tuple[Any, Any]] = {
    "first_k_dense_replace": (0, 1),
    "moe_layer_start_index": (0, 1),
    "moe_layer_end_index": (0, 0),
    "moe_layer_interval": (1, 1),
    "moe_layer_freq": (1, 1),
    "decoder_sparse_step": (1, 1),
    "mlp_only_layers": ([], [0]),
}
"""Config key that decides which layers have experts -> its values that give the only layer experts, or none."""


class MtpLayer(nn.Module):
    """An MTP layer. model: the causal language model, without a final norm if the layout has none. prefix: of the names
    of its decoder layer in a checkpoint of such a model."""

    def __init__(self, model: nn.Module, tensors: dict[str, Tensor], prefix: str, *, hidden_first: bool) -> None:
        """tensors: enorm, hnorm, eh_proj and optionally the final norm, by normalised names. hidden_first: eh_proj
        reads [hidden ; embedding] instead of [embedding ; hidden]."""
        super().__init__()
        self.model, self.prefix = model, prefix
        self.hidden_first, self.has_norm = hidden_first, "norm.weight" in tensors
        self.enorm, self.hnorm = (_norm(model, tensors, name) for name in ("enorm", "hnorm"))
        weight, bias = tensors["eh_proj.weight"], tensors.get("eh_proj.bias")
        with torch.device("meta"):
            self.eh_proj = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        self.eh_proj.weight = _frozen(weight)
        if bias is not None:
            self.eh_proj.bias = _frozen(bias)
        if not self.has_norm:
            _remove_norm(model)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the embeddings [B, T, H] of tokens int64 [B, T]."""
        return self.model.get_input_embeddings()(tokens)

    def join(self, x: Tensor, embedded: Tensor) -> Tensor:
        """Return the rows [B, T, H] of features or fed-back outputs [B, T, H] and the next tokens' embeddings."""
        parts = [self.enorm(embedded), self.hnorm(x)]
        return self.eh_proj(torch.cat(parts[::-1] if self.hidden_first else parts, -1))


def load_layers(head: HeadPlan, target: Path, max_length: int) -> list[MtpLayer]:
    """Load all MTP layers with lazily read weights. target: folder of the target.

    Raise CheckpointError for tensors that the target's decoder layer does not have, UnsupportedModelError for a target
    whose config does not allow a model of a single layer.
    """
    config, tensors = read_model(target)
    own, (prefix, ends) = _own_tensors(head), _ends(config, tensors)
    found = []
    for number in range(count_layers(head)):
        parts = _of(own, number)
        single = one_layer(config, BY_NAME[head.dialect], sparse=any(map(_EXPERTS.match, parts)))
        state = _share(parts, ends, single)
        inner = [name for name in parts if name.startswith("layers.")]
        state |= {f"{prefix}{name.removeprefix('layers.')}": parts[name] for name in inner}
        model, unused = assemble(head.folder, single, state, max_length)
        unused = [name for name in unused if name not in ends]
        if unused:
            raise CheckpointError(
                f"{head.folder}: received {len(unused)} tensors of MTP layer {number} that the decoder layer of "
                f"{type(model).__name__} does not have, first {unused[0]}; expected the target's own decoder layer",
                hint="report the checkpoint with its config.json",
            )
        found.append(MtpLayer(model, parts, prefix, hidden_first=bool(head.switches["hidden_first"])))
    return found


def one_layer(config: PretrainedConfig, layout: Layout, *, sparse: bool) -> PretrainedConfig:
    """Return the config of a model of the target's class whose only layer is an MTP layer, with or without experts.

    Per-layer values are those of the target's last layer with the MTP layer's attention type. Raise
    UnsupportedModelError if there is no such layer.
    """
    config, count = deepcopy(config), config.num_hidden_layers
    if layout.blocks:  # an MTP layer consists of several of the target's layers
        config.layers_block_type = list(config.mtp_layers_block_type)
        return config
    kinds, mlps = getattr(config, "layer_types", None), getattr(config, "mlp_layer_types", None)
    mlp = SPARSE if sparse else DENSE
    wanted = layout.attention or next(iter(getattr(config, "mtp_layer_types", None) or [FULL]))
    wanted = SLIDING if kinds and wanted == FULL and FULL not in kinds else wanted
    places = [index for index in range(count) if not kinds or kinds[index] == wanted]
    if not places:
        raise UnsupportedModelError(
            f"MTP layers of {type(config).__name__}: received layers of types {', '.join(sorted(set(kinds or ())))}, "
            f"expected one of type {wanted} among them, as an MTP layer is",
            hint="use another drafter for this target",
        )
    place = max(places, key=lambda index: (mlps is None or mlps[index] == mlp, index))
    for name, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == count and name != "eos_token_id":
            setattr(config, name, [value[place]])
    if mlps is not None:
        config.mlp_layer_types = [mlp]
    for name, (with_experts, without) in _ROUTES.items():
        if isinstance(getattr(config, name, None), int | list):
            setattr(config, name, with_experts if sparse else without)
    config.num_hidden_layers = 1
    return config


def _own_tensors(head: HeadPlan) -> dict[str, Tensor]:
    """Return the MTP layers' tensors by normalised names, with lazily read weights; quantized ones as floats."""
    names = {source.name: name for name, source in head.tensors.items()}
    layout, found = BY_NAME[head.dialect], dict[str, Tensor]()
    folder = HeadFolder(head.folder, read_json_object(head.folder / CONFIG) or {}, {}, ())
    first = target_layers(folder) if layout.behind else 0
    for published, source in checkpoint_sources(head.folder).weights.items():
        name = names.get(published) or layout.ours(published, first)
        if name is not None:
            found[name] = WeightTensor(source)
    return found


def _of(own: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    """Return the tensors of MTP layer `number`: its own, and those that all layers share."""
    prefix = f"{number}."
    shared = {name: tensor for name, tensor in own.items() if not name[0].isdecimal()}
    return shared | {name.removeprefix(prefix): each for name, each in own.items() if name.startswith(prefix)}


def _first(names: Iterable[str], config: PretrainedConfig, what: str) -> str:
    """Return the first name. Raise UnsupportedModelError if there is none."""
    for name in names:
        return name
    raise UnsupportedModelError(
        f"MTP layers of {type(config).__name__}: received a checkpoint without {what} under a known name, expected the "
        "names of a causal language model",
        hint="use another drafter for this target",
    )


def _ends(config: PretrainedConfig, tensors: dict[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """Return the prefix of the target's numbered layers, and all tensors outside of them."""
    target = {name: each for name, each in tensors.items() if not _MTP.search(name)}
    prefix = _first((match[1] for match in map(_NUMBERED.match, target) if match), config, "numbered layers")
    return prefix, {name: each for name, each in target.items() if not _NUMBERED.match(name)}


def _share(own: dict[str, Tensor], ends: dict[str, Tensor], config: PretrainedConfig) -> dict[str, Tensor]:
    """Return embedding, head and norm of an MTP layer's model: the layer's norm, and the target's embedding and head
    unless the layer's differ."""
    norms = {name: f"norm.{match[1]}" for name in ends if (match := _NORM.fullmatch(name))}
    norms = norms if "norm.weight" in own else {}  # the norm is removed later
    shared = {name: _part(own, norms[name]) if name in norms else each for name, each in ends.items()}
    embedding = _first(filter(_EMBEDDING.fullmatch, ends), config, "an embedding")
    head = next((name for name in ends if _HEAD.fullmatch(name)), None)
    heads = {"embed_tokens.weight": ends[embedding], "head.weight": ends[head or embedding]}
    other = {name: own[name] for name, each in heads.items() if name in own and not torch.equal(own[name], each)}
    if "embed_tokens.weight" in other:
        shared[embedding] = other["embed_tokens.weight"]
    if "head.weight" in other or (other and head is None):
        shared[head or "lm_head.weight"] = other.get("head.weight", heads["head.weight"])
        config.tie_word_embeddings = False
    return shared


def _norm(model: nn.Module, tensors: dict[str, Tensor], name: str) -> nn.Module:
    """Return a norm of the type of the target's final norm, with these weights. Raise CheckpointError if they are
    missing."""
    norm = copy(find_norm(model))  # shallow: its weight is an open file
    ends = [end for end, each in norm._parameters.items() if each is not None]
    norm._parameters = norm._parameters | {end: _frozen(_part(tensors, f"{name}.{end}")) for end in ends}
    return norm


def _part(tensors: dict[str, Tensor], name: str) -> Tensor:
    if name in tensors:
        return tensors[name]
    raise CheckpointError(
        f"received an MTP layer without its {name}, expected one as the target's last norm has it",
        hint="download all shards of the checkpoint again, or report the layout",
    )


def _remove_norm(model: nn.Module) -> None:
    """Replace the final norm by the identity: the head reads the layer's output."""
    norm = find_norm(model)
    for module in model.modules():
        for name, child in module.named_children():
            if child is norm:
                setattr(module, name, nn.Identity())


def _frozen(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight, requires_grad=False)
