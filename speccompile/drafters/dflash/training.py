"""DFlash while it learns: blocks at anchors of a text, all in one pass, which do not see each other (Chen et al. 2026);
and new heads in z-lab's dialect."""

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
"""What a head may have of its own, and shares with the target otherwise."""


def learner(site: DrafterContext, depth: int) -> "BlockLearner":
    """Raises CheckpointError for a DFlash2 head, RecipeError for more drafts than a block of the head has."""
    head = site.head
    if "selector_top_k" in head.switches:
        raise CheckpointError(
            f"{head.folder}: received a DFlash2 head to train, expected a DFlash head: tokens that its selector leaves "
            "out have no probability to learn from",
            hint="train a new head of drafter.kind dflash",
        )
    check_depth(head, depth)
    return BlockLearner(head, load_head(DFlashReader(head, site.shape, site.ends(), depth), head), depth)


def check_depth(head: HeadPlan, depth: int) -> None:
    """Raises RecipeError."""
    if head.tokens is not None and depth > head.tokens:
        raise RecipeError(
            f"train.depth: received {depth} drafts, expected at most {head.tokens}, which the head in {head.folder} "
            "makes in one pass",
            hint=f"set train.depth to {head.tokens} or less, or train a new head",
        )


class BlockLearner(TrainableHead):
    """A block [anchor token, masks] at each anchor, over the features of all tokens before it. Where a head repeats the
    target's embedding and output matrix they stay as they are, as with all who publish such heads."""

    every = False
    network: DFlashReader

    def __init__(self, head: HeadPlan, network: DFlashReader, depth: int) -> None:
        super().__init__(head, network, depth)
        network.embed_tokens.requires_grad_(False)
        network.lm_head.requires_grad_(False)

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """As `Learner.forward`."""
        return list(self.read(self.slots(seen, anchors, depth), seen, anchors, depth))

    def slots(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> Slots:
        """Those that say the first `depth` drafts, of every anchor as a row of a batch of B * A."""
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
        """What slot after slot says, float32 [B, A, Vd], the text's token before it known."""
        last = seen.tokens.shape[1] - 1
        for slot in range(depth):
            before = seen.tokens.gather(1, (anchors + slot).clamp(max=last))
            yield slots.after(slot, before.reshape(-1, 1))[:, 0].unflatten(0, anchors.shape)


def new(folder: Path, wanted: NewDrafter) -> None:
    """A block of the drafts that are wanted and its anchor; it begins with the target's final norm."""
    words = block_words(wanted)
    own = {"mask_token_id": mask_token(wanted), "target_layer_ids": layer_ids(wanted)}
    config = {"architectures": ["DFlashDraftModel"], **words, "block_size": wanted.depth + 1, "dflash_config": own}
    write_head(folder, config, beginning(wanted, layer_shape(words)))


def block_words(wanted: NewDrafter) -> dict[str, Any]:
    """The layers of a block drafter in the words of transformers' Qwen 3, and how many its target has."""
    words = llama_config(wanted) | {"model_type": "qwen3", "use_sliding_window": False, "sliding_window": None}
    words["layer_types"] = ["full_attention"] * int(words["num_hidden_layers"])
    return words | {"num_target_layers": config_value(wanted.config, *LAYERS)}


def layer_ids(wanted: NewDrafter) -> list[int]:
    """The layers whose outputs the taps are, -1 for the embedding."""
    found = [boundary(tap) for tap in wanted.taps]
    return [each - 1 for each in found if each is not None]


def beginning(wanted: NewDrafter, layers: LayerShape) -> dict[str, Tensor]:
    """What all block drafters have, without ends of their own."""
    hidden, vocabulary = target_sizes(wanted)
    shapes = block_shapes(layers, len(wanted.taps), hidden, (vocabulary, vocabulary))
    kept = {name: shape for name, shape in shapes.items() if name not in ENDS}
    norm = wanted.ends.norm()
    return random_tensors(kept, wanted.seed) | ({} if norm is None else {"norm.weight": norm})
