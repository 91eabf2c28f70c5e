"""Train ReDrafter's cell and head, and write new ones in Apple's layout."""

from pathlib import Path

import torch
from torch import Tensor

from speccompile.drafters.context import DrafterContext
from speccompile.drafters.initialization import random_tensors, renamed, target_sizes, write_head
from speccompile.drafters.redrafter.drafter import ReDrafterReader, load_reader
from speccompile.drafters.redrafter.reading import RNN, head_shapes
from speccompile.drafters.trainable import NewDrafter, TeacherBatch, TrainableHead, rows_at


def student(context: DrafterContext, depth: int) -> "ReDrafterStudent":
    return ReDrafterStudent(context.head, load_reader(context), depth)


class ReDrafterStudent(TrainableHead):
    """Trainable ReDrafter. It reads the feature of the token before the anchor, then the anchor and the text's next
    tokens, one after the other."""

    network: ReDrafterReader

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`."""
        reader, last, found = self.network, seen.tokens.shape[1] - 1, list[Tensor]()
        context = rows_at(seen.features, anchors - 1)
        state = torch.zeros_like(context)
        for draft in range(depth):
            state = reader.follow(seen.tokens.gather(1, (anchors + draft).clamp(max=last)), state)
            found.append(reader.logits(context, state))
        return found


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write a new head as wide as hidden state and recurrent state together, whose blocks pass both through. It begins
    as the target's output head on the hidden state."""
    (hidden, vocabulary), layers, cell = target_sizes(wanted), int(wanted.sizes["layers"]), str(wanted.sizes["cell"])
    shapes = head_shapes(layers, 2 * hidden, (hidden, vocabulary), cell)
    tensors = random_tensors(shapes, wanted.seed)
    for name in tensors:
        if name.startswith("blocks."):
            tensors[name] = torch.zeros(shapes[name])
    tensors["output.weight"][:, :hidden] = wanted.ends.head.weight.float()
    tensors["output.weight"][:, hidden:] *= 0.1
    config = {
        "model_type": "recurrent_drafting_drafter",
        "architectures": ["Drafter"],
        "hidden_size": hidden,
        "vocab_size": vocabulary,
        "exit_dim": 2 * hidden,
        "num_draft_layers": layers,
        "num_lookback_tokens": -1,
        "rnn": cell == RNN,
        "base_model_name_or_path": wanted.reference,
        "torch_dtype": "float32",
    }
    blocks = [(f"blocks.{layer}.", f"lm_head.{layer}.linear.") for layer in range(layers)]
    write_head(folder, config, renamed(tensors, [*blocks, ("output.", f"lm_head.{layers}.")]))
