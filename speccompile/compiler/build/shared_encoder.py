"""Comparison of a drafter's encoder with the target's: where they are the same, one of them is enough."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.traced import SourceTraceInputs
from speccompile.compiler.models.encode_source import READS, WRITES
from speccompile.compiler.models.load import ModelFiles, load_model
from speccompile.compiler.models.speech import SpeechModel
from speccompile.contract import ENCODE_DRAFT_SOURCE, ENCODE_SOURCE
from speccompile.progress import LOGGER, log_step


@dataclass(frozen=True)
class EncoderPair:
    """Inputs of the comparison of two encoders. max_length: of a sequence, in tokens."""

    target: ModelFiles
    drafter: ModelFiles
    max_length: int


def with_shared_encoder(encoders: Mapping[str, SourceTraceInputs], steps: CachedSteps) -> dict[str, SourceTraceInputs]:
    """Return the inputs of the graphs that encode sources, by name: where both models hear and have the same encoder,
    the drafter's graph reads the states that the target's writes."""
    if ENCODE_DRAFT_SOURCE not in encoders:
        return dict(encoders)
    target, drafter = encoders[ENCODE_SOURCE], encoders[ENCODE_DRAFT_SOURCE]
    pair = EncoderPair(target.model, drafter.model, target.shape.max_length)

    def compare() -> str | None:
        with log_step("comparing the encoders of the target and the drafter"):
            return difference(pair)

    found = steps.result("comparing encoders", pair, compare)
    if found is not None:
        LOGGER.info("the encoders of the target and the drafter both run: %s", found)
        return dict(encoders)
    LOGGER.info("the drafter reads the target's encoder: both checkpoints have the same one")
    return {ENCODE_SOURCE: replace(target, sharing=WRITES), ENCODE_DRAFT_SOURCE: replace(drafter, sharing=READS)}


@torch.no_grad()
def difference(pair: EncoderPair) -> str | None:
    """Return what differs between two encoders, None if both write the same states: all weights are equal, bit for bit,
    and so are the states of an example."""
    models = [load_model(each.folder, pair.max_length) for each in (pair.target, pair.drafter)]
    target, drafter = models
    if not isinstance(target, SpeechModel) or not isinstance(drafter, SpeechModel):
        return "only encoders that hear are shared"
    own, other = (model.whole.get_encoder().state_dict() for model in (target, drafter))
    for name in sorted(own.keys() ^ other.keys()):
        return f"only one of them has {name}"
    for name, weight in own.items():
        if not torch.equal(weight, other[name]):
            return f"{name} differs"
    for model in (target, drafter):
        model.read([1, 2, 3])
    assert isinstance(target.encoded, torch.Tensor)
    assert isinstance(drafter.encoded, torch.Tensor)
    return None if torch.equal(target.encoded, drafter.encoded) else "their settings differ"
