"""Train Medusa's heads, and write new ones in vLLM's dialect."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from speccompile.drafters.context import DrafterContext
from speccompile.drafters.initialization import target_sizes, write_head
from speccompile.drafters.medusa.drafter import MedusaReader, load_reader
from speccompile.drafters.medusa.sizes import PROJECTION, SHARED
from speccompile.drafters.trainable import NewDrafter, TeacherBatch, TrainableHead, rows_at
from speccompile.plan.head import HeadPlan


def student(context: DrafterContext, depth: int) -> "MedusaStudent":
    return MedusaStudent(context.head, load_reader(context), depth)


class MedusaStudent(TrainableHead):
    """Trainable Medusa heads. Each head reads the target's feature of the token before the anchor, and no drafts."""

    network: MedusaReader

    def __init__(self, head: HeadPlan, network: MedusaReader, depth: int) -> None:
        super().__init__(head, network, depth)
        for unasked in (network.blocks[depth:], network.lm_heads[depth:]):
            unasked.requires_grad_(False)

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`."""
        reader = self.network
        x = rows_at(seen.features, anchors - 1)
        return [self._known(reader.projection(head)(reader.blocks[head](x))) for head in range(depth)]

    def _known(self, logits: Tensor) -> Tensor:
        """Return the logits of the draft vocabulary if the projection has more."""
        reader = self.network
        if reader.vocabulary is None or logits.shape[-1] == reader.size:
            return logits
        return logits[..., reader.vocabulary.ids]


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write new heads that equal the target's output head: zero blocks, and copies of its weights."""
    (hidden, vocabulary), layers, kept = target_sizes(wanted), int(wanted.sizes["layers"]), wanted.kept
    is_shared, tensors = wanted.sizes[PROJECTION] == SHARED, dict[str, Tensor]()
    for name in (f"blocks.{head}.layers.{layer}" for head in range(wanted.depth) for layer in range(layers)):
        tensors |= {f"{name}.weight": torch.zeros(hidden, hidden), f"{name}.bias": torch.zeros(hidden)}
    rows = wanted.ends.head.weight.float()
    rows = rows if kept is None else functional.embedding(kept, rows)
    names = ["lm_head"] if is_shared else [f"lm_heads.{head}" for head in range(wanted.depth)]
    tensors |= {f"{name}.weight": rows for name in names} | ({} if kept is None else {"token_map": kept})
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": hidden,
        "vocab_size": vocabulary,
        "num_heads": wanted.depth,
        "num_hidden_layers": layers,
        "original_lm_head": is_shared,
        "medusa_fc_bias": True,
        "truncated_vocab_size": None if kept is None else len(kept),
        "base_model_name_or_path": wanted.reference,
        "torch_dtype": "float32",
    }
    write_head(folder, config, tensors)
