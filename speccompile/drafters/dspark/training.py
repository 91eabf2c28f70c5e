"""Train DSpark: as DFlash, with corrections by the text's tokens, and a confidence head for the acceptance probability.
Write new heads in the dialects of SpecForge and DeepSpec."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from speccompile.drafters.context import DrafterContext
from speccompile.drafters.dflash.dialects import DEEPSPEC
from speccompile.drafters.dflash.training import BlockStudent, block_config, check_depth, initial_tensors, layer_ids
from speccompile.drafters.dspark.drafter import DSparkReader, DSparkSlots
from speccompile.drafters.dspark.reading import own_shapes
from speccompile.drafters.initialization import layer_shape, mask_token, random_tensors, target_sizes, write_head
from speccompile.drafters.trainable import NewDrafter, TeacherBatch
from speccompile.drafters.weights import load_head
from speccompile.plan.head import Switch


def student(context: DrafterContext, depth: int) -> "DSparkStudent":
    """Return the trainable drafter. Raise RecipeError for a depth beyond the head's block."""
    check_depth(context.head, depth)
    return DSparkStudent(
        context.head, load_head(DSparkReader(context.head, context.shape, context.ends(), depth), context.head), depth
    )


class DSparkStudent(BlockStudent):
    """Trainable DSpark head. The confidence head is trained together with the drafts, without gradients into them."""

    network: DSparkReader

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.confidences = list[Tensor]()  # of the last forward: logits of the confidence [B, A], one per draft

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`."""
        slots, confidence_head, found = self.slots(seen, anchors, depth), self.network.confidence_head, list[Tensor]()
        assert isinstance(slots, DSparkSlots)
        self.confidences = []
        for logits in self.read(slots, seen, anchors, depth):
            found.append(logits)
            if confidence_head is not None:
                confidence = confidence_head(slots.confidence_inputs().detach())[:, 0]
                self.confidences.append(confidence.unflatten(0, anchors.shape))
        return found

    def own_loss(
        self, seen: TeacherBatch, anchors: Tensor, drafted: list[Tensor], accepted: list[Tensor]
    ) -> Tensor | None:
        """Return the binary cross entropy between confidence and the target's acceptance probability, for the drafts of
        the last `forward` (section 3 of DeepSeek's paper); see `TrainableDrafter.own_loss`."""
        if not self.confidences:
            return None
        wanted = torch.stack(accepted, -1)
        return functional.binary_cross_entropy_with_logits(torch.stack(self.confidences, -1), wanted, reduction="none")


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write a new head: DFlash's with a draft at every block position, and a Markov head with zero corrections.
    DeepSpec's heads have copies of the target's embedding and output matrix."""
    base, sizes = block_config(wanted), target_sizes(wanted)
    switches: dict[str, Switch] = {
        "markov_rank": int(wanted.sizes["markov_rank"]), "markov_head_type": str(wanted.sizes["markov_head_type"]),
        "enable_confidence_head": True, "confidence_head_with_markov": True,
    }  # fmt: skip
    shapes = own_shapes(layer_shape(base), switches | {"confidence_head": True}, (sizes[1], sizes[1]))
    tensors = initial_tensors(wanted, layer_shape(base)) | random_tensors(shapes, wanted.seed + 1)
    tensors["markov_head.markov_w2.weight"].zero_()
    own = {"mask_token_id": mask_token(wanted), "target_layer_ids": layer_ids(wanted), **switches}
    if wanted.dialect == DEEPSPEC:
        ends = {"embed_tokens.weight": wanted.ends.embed.table, "lm_head.weight": wanted.ends.head.weight}
        tensors |= {name: tensor.float() for name, tensor in ends.items()}
        config = {"architectures": ["Qwen3DSparkModel"], **base, "block_size": wanted.depth, **own}
    else:
        own |= {"projector_type": "dspark", "sample_from_anchor": True}
        config = {"architectures": ["DSparkDraftModel"], **base, "block_size": wanted.depth, "dflash_config": own}
    write_head(folder, config, tensors)
