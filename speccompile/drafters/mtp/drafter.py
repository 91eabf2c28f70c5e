"""MTP layers that draft (DeepSeek-V3, section 2.2): of a hidden state and the token behind it, the token after that."""

from collections.abc import Sequence

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


def make(site: DrafterContext) -> Drafter:
    """Drafts token by token, in any shape."""
    return token_by_token(site, MtpReader(site.head, load_hooked_layers(site), site.shape))


def load_hooked_layers(site: DrafterContext) -> list[HookedLayer]:
    """The MTP layers of the plan. Raises UnsupportedModelError for such as carry states."""
    feeds_normed = bool(site.head.switches.get("norm_feedback"))
    loaded = load_layers(site.head, site.plan.target, site.shape.max_length)
    with log_step("probing the attention of the MTP layers"):
        layers = [HookedLayer(each, probe(each.model, site.shape), feeds_normed=feeds_normed) for each in loaded]
    for number, layer in enumerate(layers):
        if layer.decoder.is_recurrent:
            raise UnsupportedModelError(
                f"MTP layer {number} of {type(layer.layer.model).__name__} carries states from token to token, expected"
                " attention alone: rows of drafts are not kept",
                hint="use another drafter for this target",
            )
    return layers


class MtpReader(DraftNetwork):
    """Layer k drafts what comes k + 2 tokens behind. Its row q is (output of layer k - 1 at row q - 1, token q + 1),
    with the target's feature q in the place of that output where k = 0.

    Counted so, all layers get their rows of the same tokens. Row q of layer k continues position q - k: the layer has
    none before q = k, and its caches lag by k. What layer k says at the last row, layer k + 1 reads in the next round:
    outputs are kept row by row, as caches are, so that a text may be taken up anywhere.

    One layer that drafts more than once reads its own outputs; of n layers, layer k mod n makes draft k + 1.
    """

    pairs_next_token = True

    def __init__(self, head: HeadPlan, layers: Sequence[HookedLayer], shape: CacheShape) -> None:
        super().__init__()
        self.taps, self.size = head.taps, head.vocabulary_size
        self.layers, self.outputs = nn.ModuleList(layers), (shape.batch_size, 1, shape.rows, head.hidden_size)

    def states(self) -> list[State]:
        """Caches of all layers, then the outputs of all but the last."""
        found, first = list[State](), 0
        for layer in self.layers:
            found += cache_states(layer.decoder, "drafter", first)
            first += len(layer.decoder.layers)
        kept = range(len(self.layers) - 1)
        return [*found, *(State(f"drafter.hidden.{number}", torch.float32, self.outputs) for number in kept)]

    def begin(self, accepted: Accepted, states: list[Tensor]) -> MtpReading:
        return MtpReading(list(self.layers), accepted, states)
