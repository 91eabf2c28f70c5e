"""MTP layers as drafter (DeepSeek-V3, section 2.2): from a hidden state and the next token, predict the token after."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Accepted, Drafter, State
from speccompile.compiler.step.draft.language import cache_states
from speccompile.compiler.step.draft.network import DraftNetwork
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.drafters.mtp.layer import load_layers
from speccompile.drafters.mtp.rounds import HookedLayer, MtpReading
from speccompile.errors import UnsupportedModelError
from speccompile.plan.head import HeadPlan
from speccompile.progress import log_step


def make(context: DrafterContext) -> Drafter:
    """Return the autoregressive drafter, for any tree."""
    reader = MtpReader(context.head, load_hooked_layers(context), context.shape)
    reader.media = context.inputs.media
    if reader.media is not None and reader.media.axes:
        check_axes(layer.decoder.model for layer in reader.layers)
    return token_by_token(context, reader)


def check_axes(models: Iterable[nn.Module]) -> None:
    """Raise UnsupportedModelError for models of MTP layers whose code has no positions on three axes: nothing published
    says how they turn the rows of pictures."""
    for model in models:
        if not any(hasattr(module, "mrope_section") for module in model.modules()):
            raise UnsupportedModelError(
                f"MTP layers of {type(model).__name__}: received target.images with positions on three axes, expected "
                "layers that have such positions, as Qwen3.5's",
                hint="set drafter.kind to prompt_lookup, or remove target.images",
            )


def load_hooked_layers(context: DrafterContext) -> list[HookedLayer]:
    """Load the MTP layers of the plan with the attention hook. Raise UnsupportedModelError for recurrent layers."""
    feeds_normed = bool(context.head.switches.get("norm_feedback"))
    loaded = load_layers(context.head, context.target_files.folder, context.shape.max_length)
    with log_step("probing the attention of the MTP layers"):
        layers = [HookedLayer(each, probe(each.model, context.shape), feeds_normed=feeds_normed) for each in loaded]
    for number, layer in enumerate(layers):
        if layer.decoder.is_recurrent:
            raise UnsupportedModelError(
                f"MTP layer {number} of {type(layer.layer.model).__name__} carries states from token to token, expected"
                " attention alone: rows of drafts are not kept",
                hint="use another drafter for this target",
            )
    return layers


class MtpReader(DraftNetwork):
    """Drafter of n MTP layers. Row q of layer k is (output of layer k - 1 at row q - 1, token q + 1); for k = 0 the
    output is the target's feature q. Layer k predicts the token k + 2 ahead.

    With this numbering, rows q of all layers have the same tokens. Row q of layer k has position q - k: the layer has
    no row before q = k, and its caches lag by k. Layer k + 1 reads the last row's output of layer k in the next round,
    so outputs are stored per row, like caches, and a text can be resumed anywhere.

    Layer k mod n makes draft k + 1. A layer that drafts more than once reads its own outputs.
    """

    pairs_next_token = True

    def __init__(self, head: HeadPlan, layers: Sequence[HookedLayer], shape: CacheShape) -> None:
        super().__init__()
        self.taps, self.size = head.taps, head.vocabulary_size
        self.layers, self.outputs = nn.ModuleList(layers), (shape.batch_size, 1, shape.rows, head.hidden_size)

    def states(self) -> list[State]:
        """Return the caches of all layers, then the outputs of all layers except the last."""
        found, first = list[State](), 0
        for layer in self.layers:
            found += cache_states(layer.decoder, "drafter", first)
            first += len(layer.decoder.layers)
        kept = range(len(self.layers) - 1)
        return [*found, *(State(f"drafter.hidden.{number}", torch.float32, self.outputs) for number in kept)]

    def begin(self, accepted: Accepted, states: list[Tensor]) -> MtpReading:
        return MtpReading(list(self.layers), accepted, states, self.media)
