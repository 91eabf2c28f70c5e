"""Train Hydra's heads, and write new ones in the layout of the published code."""

from pathlib import Path

import torch
from torch import Tensor

from speccompile.compiler.step.training_pass import TrainingPass
from speccompile.drafters.config import read_layers
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.dialects import Keys
from speccompile.drafters.hydra.dialects import PREFIX_MLP
from speccompile.drafters.hydra.drafter import HydraReader, load_reader
from speccompile.drafters.hydra.reading import head_shapes
from speccompile.drafters.initialization import random_tensors, renamed, target_sizes, write_head
from speccompile.drafters.trainable import NewDrafter, TeacherBatch, TrainableHead, rows_at
from speccompile.plan.head import HeadFolder, HeadPlan


def student(context: DrafterContext, depth: int) -> "HydraStudent":
    return HydraStudent(context.head, load_reader(context), depth)


class HydraStudent(TrainableHead):
    """Trainable Hydra heads. Head i reads the feature of the token before the anchor, the anchor, and the next i tokens
    of the text."""

    network: HydraReader

    def __init__(self, head: HeadPlan, network: HydraReader, depth: int) -> None:
        super().__init__(head, network, depth)
        for unasked in (network.mlps[depth:], network.lm_heads[depth:]):
            unasked.requires_grad_(False)

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`."""
        reader, last, found = self.network, seen.tokens.shape[1] - 1, list[Tensor]()
        features = self._prefix(seen.features)
        x = rows_at(features, anchors - 1)
        for head in range(depth):
            if reader.is_grounded:
                token = seen.tokens.gather(1, (anchors + head).clamp(max=last))
                x = torch.cat([x, reader.embed(token)], -1)
            found.append(reader.logits(head, x))
        return found

    def _prefix(self, features: Tensor) -> Tensor:
        """Apply Hydra++'s causal layer to the features [B, T, H] of a text."""
        reader = self.network
        if reader.prefix is None:
            return features
        places = torch.arange(features.shape[1], device=features.device)
        positions = places.clamp(max=reader.shape.max_length - 1).expand(features.shape[0], -1)
        current = TrainingPass(list(reader.prefix.windows))
        current.set_positions(
            positions, positions, (places[None, :] <= places[:, None]).expand(features.shape[0], -1, -1)
        )
        read: Tensor = reader.norm(reader.layers[0](features, current, reader.rotary(positions)))
        return read


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write new heads that pass the hidden state through and project it with the target's output head. Hydra++'s layer,
    which has the shape of the target's, is random."""
    sizes, layers, arch = target_sizes(wanted), int(wanted.sizes["layers"]), str(wanted.sizes["arch"])
    has_prefix = arch == PREFIX_MLP
    prefix = read_layers(Keys(HeadFolder(folder, wanted.config, {}, ())), {}, count=1) if has_prefix else None
    shapes = head_shapes(wanted.depth, layers, sizes, prefix, is_grounded=True)
    del shapes["embed_tokens.weight"]  # the published code uses the target's as well
    tensors, bias = random_tensors(shapes, wanted.seed), wanted.ends.head.bias
    for name in tensors:
        if ".linear." in name or name.endswith("res_connection.bias"):
            tensors[name] = torch.zeros(shapes[name])
        elif name.endswith("res_connection.weight"):
            tensors[name] = torch.eye(*shapes[name])
        elif name.startswith("lm_heads.") and name.endswith("weight"):
            tensors[name] = wanted.ends.head.weight.float()
        elif name.startswith("lm_heads.") and bias is not None:
            tensors[name] = bias.float()
    config = {
        "hydra_num_heads": wanted.depth,
        "hydra_num_layers": layers,
        "hydra_head_arch": arch,
        "grounded_heads": True,
        "hidden_state_offset": 0,
        "hidden_size": sizes[0],
        "vocab_size": sizes[1],
        "base_model_name_or_path": wanted.reference,
        "torch_dtype": "float32",
    }
    write_head(folder, config, _published(tensors, has_prefix=has_prefix))


def _published(tensors: dict[str, Tensor], *, has_prefix: bool) -> dict[str, Tensor]:
    """Return the tensors by their published names. Hydra++'s numbers count a dropout before every block and head."""
    found = renamed(
        tensors,
        [("mlps.", "hydra_mlp."), ("lm_heads.", "hydra_lm_head."), ("layers.", "prefix_embeding_layer.layers."),
         ("norm.", "prefix_embeding_layer.norm.")],
    )  # fmt: skip
    return {_counted(name): tensor for name, tensor in found.items()} if has_prefix else found


def _counted(name: str) -> str:
    kind, number, *rest = name.split(".")
    if kind == "hydra_mlp":
        return ".".join([kind, number, str(2 * int(rest[0]) + 1), *rest[1:]])
    return ".".join([kind, number, "1", *rest]) if kind == "hydra_lm_head" else name
