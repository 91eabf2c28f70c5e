"""Continue the training of MTP layers: all rows of a text at once, with the text's tokens (section 2.2 of DeepSeek-V3);
a layer that drafts more than once reads its own output (FastMTP, Cai et al. 2025)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers.core_model_loading import revert_weight_conversion

from speccompile.compiler.step.layers import find_layers, find_norm
from speccompile.compiler.step.training_pass import TrainingPass
from speccompile.compiler.weights.tensor import with_numbers
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.mtp.drafter import load_hooked_layers
from speccompile.drafters.mtp.patch_checkpoint import copy_with_replaced
from speccompile.drafters.mtp.rounds import HookedLayer
from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter
from speccompile.errors import UnsupportedModelError
from speccompile.plan.head import HeadPlan

_BALANCED = ".e_score_correction_bias"
"""Name suffix of the load-balancing bias of experts: it selects experts, and is no part of their output."""


def student(context: DrafterContext, depth: int) -> "MtpStudent":
    """Return the trainable drafter. Raise UnsupportedModelError for layers that cannot be saved as published."""
    return MtpStudent(context.head, load_hooked_layers(context), depth)


class MtpStudent(TrainableDrafter):
    """Trainable MTP layers. The target's embedding and head, and copies of them, are frozen."""

    def __init__(self, head: HeadPlan, layers: Sequence[HookedLayer], depth: int) -> None:
        super().__init__()
        self.head, self.depth, self.taps = head, depth, head.taps
        self.layers = with_numbers(nn.ModuleList(layers)).float()
        shared: dict[str, nn.Parameter] = {}
        for number, each in enumerate(layers):
            for name, module, end in _around(each, number, head):
                setattr(module, end, shared.setdefault(name, getattr(module, end)))
        for parameter in [*shared.values(), *(each for layer in layers for each in _inside(layer).values())]:
            parameter.requires_grad_(True)
        self._check_names()

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`. In the first turn, row p of a layer is (previous layer's output at p, or the
        feature; the text's token at the previous draft's position). Later turns add rows after those of the layer."""
        batch, length = seen.tokens.shape
        places = torch.arange(length - 1, device=anchors.device)
        rows, causal = places.expand(batch, -1), (places <= places[:, None]).expand(batch, -1, -1)
        passes = [TrainingPass([layer.window for layer in each.decoder.layers]) for each in self.layers]
        x, found = seen.features[:, :-1], list[Tensor]()
        for draft in range(depth):
            turn, number = divmod(draft, len(self.layers))
            layer, current = self.layers[number], passes[number]
            tokens = seen.tokens[:, (places + 1 + draft).clamp(max=length - 1)]
            current.set_positions(
                layer.decoder.clamp(rows + draft - number), layer.decoder.clamp(rows), causal, n_own=turn
            )
            logits, x = layer.run(current, x, layer.layer.embed(tokens), anchors - 1)
            found.append(logits)
        return found

    def save(self, folder: Path, dtype: torch.dtype) -> None:
        """Write a copy of the layers' original folder, which may be the target's, with the trained tensors replaced and
        everything else bit for bit."""
        trained = {self.head.tensors[name].name: each.detach().to("cpu", dtype) for name, each in self._tensors()}
        copy_with_replaced(self.head.folder, folder, {name: each.contiguous() for name, each in trained.items()})

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the trained tensors by normalised names in their published form, with separate experts."""
        for number, each in enumerate(self.layers):
            for name, module, end in _around(each, number, self.head):
                yield name, getattr(module, end)
            inside = {name: parameter.detach() for name, parameter in _inside(each).items()}
            for name, tensor in revert_weight_conversion(each.layer.model, inside).items():
                yield f"{number}.layers.{name.removeprefix(each.layer.prefix)}", tensor

    def _check_names(self) -> None:
        """Raise UnsupportedModelError unless every trained tensor is in the folder with its shape."""
        for name, tensor in self._tensors():
            source = self.head.tensors.get(name)
            if source is None or source.shape != tensor.shape:
                received = "none" if source is None else f"one of shape {list(source.shape)}"
                raise UnsupportedModelError(
                    f"{self.head.folder}: received {received} for {name} of the MTP layers, expected a tensor of shape "
                    f"{list(tensor.shape)}, in whose place the trained one is written",
                    hint="train on a checkpoint whose MTP layers are not quantized",
                )


def _around(hooked: HookedLayer, number: int, head: HeadPlan) -> Iterator[tuple[str, nn.Module, str]]:
    """Yield the parameters of an MTP layer outside of its decoder layer as (normalised name, module, attribute). Layers
    may share a name."""
    layer = hooked.layer
    parts = {"enorm": layer.enorm, "hnorm": layer.hnorm, "eh_proj": layer.eh_proj}
    parts |= {"norm": find_norm(layer.model)} if layer.has_norm else {}
    for part, module in parts.items():
        for end in (end for end, each in module._parameters.items() if each is not None):
            own = f"{number}.{part}.{end}"
            yield own if own in head.tensors or f"{part}.{end}" not in head.tensors else f"{part}.{end}", module, end


def _inside(hooked: HookedLayer) -> dict[str, nn.Parameter]:
    """Return the decoder layer's float parameters by their names in the model, without those that have no gradient."""
    inner = {id(each) for each in find_layers(hooked.layer.model).parameters() if each.is_floating_point()}
    named = hooked.layer.model.named_parameters()
    return {name: each for name, each in named if id(each) in inner and not name.endswith(_BALANCED)}
