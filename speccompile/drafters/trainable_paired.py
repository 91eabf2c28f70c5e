"""Trainable heads that pair a feature with the next token: the training-time test (section 3 of Li et al. 2025)."""

import torch
from torch import Tensor

from speccompile.compiler.step.draft.paired import PairedReader
from speccompile.compiler.step.training_pass import TrainingPass
from speccompile.drafters.trainable import TeacherBatch, TrainableHead, rows_at


class TrainablePairedHead(TrainableHead):
    """A head whose row p pairs the features of token p with token p + 1. In the next step, row p pairs its own output
    with the token after. A row attends to the rows of true features up to its position and to its own earlier steps."""

    network: PairedReader

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`."""
        reader, (batch, length) = self.network, seen.tokens.shape
        places = torch.arange(length - 1, device=seen.tokens.device)
        current = TrainingPass(list(reader.shape_of_layers.windows))
        causal = (places[None, :] <= places[:, None]).expand(batch, -1, -1)
        x, rows, found = reader.fuse(seen.features[:, :-1]), places.expand(batch, -1), []
        for step in range(depth):
            tokens = seen.tokens[:, (places + 1 + step).clamp(max=length - 1)]
            positions = reader.clamp(rows + step)
            current.set_positions(positions, rows, causal, n_own=step)
            output = reader.run(x, reader.embed(tokens), current, reader.rotary(positions))
            x = output.feedback
            found.append(reader.logits(rows_at(output.hidden, anchors - 1)))
        return found
