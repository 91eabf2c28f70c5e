"""Train Kangaroo: the adapter over the target's exit features of all tokens of a text. Write new adapters in the layout
of the published code."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from speccompile.compiler.step.training_pass import TrainingPass
from speccompile.compiler.weights.tensor import with_numbers
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.initialization import layer_shape, llama_config, random_tensors, write_head
from speccompile.drafters.kangaroo.drafter import Adapter
from speccompile.drafters.kangaroo.reading import KEY, THETA, adapter_shapes
from speccompile.drafters.sizes import HIDDEN, INNER, config_value
from speccompile.drafters.trainable import NewDrafter, TeacherBatch, TrainableHead, rows_at
from speccompile.drafters.weights import Head, load_head
from speccompile.plan.head import HeadPlan


def student(context: DrafterContext, depth: int) -> "KangarooStudent":
    adapter = load_head(Adapter(context.head, context.shape.max_length), context.head)
    return KangarooStudent(context.head, adapter, context.ends().head, depth)


class KangarooStudent(TrainableHead):
    """Trainable adapter. Row p depends on the exit feature of token p alone, for drafts as for the text, so the logits
    after a token are the same for every anchor."""

    even = True
    network: Adapter

    def __init__(self, head: HeadPlan, network: Adapter, last: Head, depth: int) -> None:
        """last: the target's output head, which reads the adapter's output."""
        super().__init__(head, network, depth)
        self.last = with_numbers(last).float()

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`."""
        batch, length = seen.tokens.shape
        current, places = TrainingPass(list(self.network.shape.windows)), torch.arange(length, device=anchors.device)
        positions = places.expand(batch, -1)
        current.set_positions(positions, positions, (places <= places[:, None]).expand(batch, -1, -1))
        logits = self.last(self.network(seen.features, current, positions))
        return [rows_at(logits, (anchors + draft).clamp(max=length - 1)) for draft in range(depth)]


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write a new adapter, initialized with the target's final norm, and with the RoPE theta of the published code."""
    inner = config_value(wanted.config, *INNER, default=4 * config_value(wanted.config, *HIDDEN))  # layers have no MLP
    base = llama_config(replace(wanted, sizes={**wanted.sizes, "intermediate_size": inner}))
    base |= {"rope_theta": THETA, "rope_scaling": None}
    tensors, norm = random_tensors(adapter_shapes(layer_shape(base)), wanted.seed), wanted.ends.norm()
    before = int(wanted.taps[0].split(".")[1]) + 1
    own = {KEY: before, "base_model_name_or_path": wanted.reference}
    config = {"architectures": ["LlamaForCausalLM"], **base, **own}
    write_head(folder, config, tensors | ({} if norm is None else {"norm.weight": norm}))
