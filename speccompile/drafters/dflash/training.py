"""Train DFlash: blocks at the anchors of a text in one pass, masked from each other (Chen et al. 2026). Write new heads
in z-lab's dialect."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from speccompile.compiler.step.draft.block import Slots
from speccompile.compiler.step.training_pass import TrainingPass
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.dflash.drafter import DFlashReader
from speccompile.drafters.dflash.reading import block_shapes
from speccompile.drafters.eagle3.taps import boundary
from speccompile.drafters.initialization import (
    layer_shape,
    llama_config,
    mask_token,
    random_tensors,
    target_sizes,
    write_head,
)
from speccompile.drafters.sizes import LAYERS, config_value
from speccompile.drafters.trainable import NewDrafter, TeacherBatch, TrainableHead
from speccompile.drafters.weights import load_head
from speccompile.errors import CheckpointError, RecipeError
from speccompile.plan.head import HeadPlan
from speccompile.plan.layers import LayerShape

ENDS = ("embed_tokens.weight", "lm_head.weight", "d2t", "mask_embedding")
"""Optional tensors of a head, which otherwise uses the target's."""


def student(context: DrafterContext, depth: int) -> "BlockStudent":
    """Return the trainable drafter. Raise CheckpointError for a DFlash2 head, RecipeError for a depth beyond the head's
    block."""
    head = context.head
    if "selector_top_k" in head.switches:
        raise CheckpointError(
            f"{head.folder}: received a DFlash2 head to train, expected a DFlash head: tokens that its selector leaves "
            "out have no probability to learn from",
            hint="train a new head of drafter.kind dflash",
        )
    check_depth(head, depth)
    return BlockStudent(head, load_head(DFlashReader(head, context.shape, context.ends(), depth), head), depth)


def check_depth(head: HeadPlan, depth: int) -> None:
    """Raise RecipeError if `depth` exceeds the number of drafts of the head's block."""
    if head.tokens is not None and depth > head.tokens:
        raise RecipeError(
            f"train.depth: received {depth} drafts, expected at most {head.tokens}, which the head in {head.folder} "
            "makes in one pass",
            hint=f"set train.depth to {head.tokens} or less, or train a new head",
        )


class BlockStudent(TrainableHead):
    """Trainable block drafter: a block [anchor token, masks] at each anchor, over the features of all earlier tokens.
    The head's copies of the target's embedding and output matrix are frozen, as in all published training code."""

    every = False
    network: DFlashReader

    def __init__(self, head: HeadPlan, network: DFlashReader, depth: int) -> None:
        super().__init__(head, network, depth)
        network.embed_tokens.requires_grad_(False)
        network.lm_head.requires_grad_(False)

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`."""
        return list(self.read(self.slots(seen, anchors, depth), seen, anchors, depth))

    def slots(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> Slots:
        """Return the block positions of the first `depth` drafts, with the anchors in a batch of B * A rows."""
        reader, (batch, length) = self.network, seen.tokens.shape
        current = TrainingPass(list(reader.shape_of_layers.windows))
        places = torch.arange(length, device=anchors.device).expand(batch, -1)
        reader.add_context(seen.features, places, current)
        own = anchors[..., None] + torch.arange(reader.block.size, device=anchors.device)
        x = reader.embed(seen.tokens.gather(1, anchors).reshape(-1, 1))
        before = places[:, None] < anchors[..., None]  # [B, A, T]
        x = reader.run(x.reshape(batch, -1, x.shape[2]), own.flatten(1), before, current, places)
        first = reader.block.first
        return reader.slots(reader.norm(x.view(-1, reader.block.size, x.shape[2])[:, first : first + depth]))

    def read(self, slots: Slots, seen: TeacherBatch, anchors: Tensor, depth: int) -> Iterator[Tensor]:
        """Yield the logits float32 [B, A, Vd] of each block position, given the text's token before it."""
        last = seen.tokens.shape[1] - 1
        for slot in range(depth):
            before = seen.tokens.gather(1, (anchors + slot).clamp(max=last))
            yield slots.after(slot, before.reshape(-1, 1))[:, 0].unflatten(0, anchors.shape)


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write a new head with a block of the anchor and `wanted.depth` drafts, and the target's final norm."""
    base = block_config(wanted)
    own = {"mask_token_id": mask_token(wanted), "target_layer_ids": layer_ids(wanted)}
    config = {"architectures": ["DFlashDraftModel"], **base, "block_size": wanted.depth + 1, "dflash_config": own}
    write_head(folder, config, initial_tensors(wanted, layer_shape(base)))


def block_config(wanted: NewDrafter) -> dict[str, Any]:
    """Return the config of a block drafter's layers with the keys of Qwen 3, and the target's number of layers."""
    base = llama_config(wanted) | {"model_type": "qwen3", "use_sliding_window": False, "sliding_window": None}
    base["layer_types"] = ["full_attention"] * int(base["num_hidden_layers"])
    return base | {"num_target_layers": config_value(wanted.config, *LAYERS)}


def layer_ids(wanted: NewDrafter) -> list[int]:
    """Return the target layers whose outputs the taps read, -1 for the embedding."""
    found = [boundary(tap) for tap in wanted.taps]
    return [each - 1 for each in found if each is not None]


def initial_tensors(wanted: NewDrafter, layers: LayerShape) -> dict[str, Tensor]:
    """Return the initial tensors of a block drafter, without embedding and output head."""
    hidden, vocabulary = target_sizes(wanted)
    shapes = block_shapes(layers, len(wanted.taps), hidden, (vocabulary, vocabulary))
    kept = {name: shape for name, shape in shapes.items() if name not in ENDS}
    norm = wanted.ends.norm()
    return random_tensors(kept, wanted.seed) | ({} if norm is None else {"norm.weight": norm})
