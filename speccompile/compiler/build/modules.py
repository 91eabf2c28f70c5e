"""The torch modules of a round, with their models loaded and probed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.lower.signatures import DraftWidth
from speccompile.compiler.models.load import ModelFiles, load_model
from speccompile.compiler.models.probe import probe, with_hook
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.layer_attention import LayerAttention
from speccompile.compiler.step.low_rank import AdapterSlots
from speccompile.compiler.step.media_rows import MediaRows
from speccompile.compiler.step.verify import Verify
from speccompile.compiler.step.verify.methods import make_acceptance
from speccompile.compiler.step.window import ChainLayout, TreeLayout
from speccompile.contract import FLOAT_CACHE
from speccompile.drafters import module_of
from speccompile.drafters.cascades import cascaded
from speccompile.drafters.context import DrafterContext, DraftInputs
from speccompile.plan.adapters import AdaptersPlan
from speccompile.plan.caches import FULL
from speccompile.progress import log_step
from speccompile.tree import Tree


@dataclass(frozen=True)
class ProbeInputs:
    """Inputs of the probe of a model's attention. max_length: of a sequence, in tokens."""

    model: ModelFiles
    max_length: int


@dataclass(frozen=True)
class WindowDrafts:
    """Drafts that the target's graph verifies. kind: "chain", "static" or "dynamic". tree: of all drafts, None without
    drafts or if the drafter makes it. tokens, depth: their number and the most that one round accepts. is_sampled:
    drafts are sampled. width: of the drafter's graph."""

    kind: str
    tree: Tree | None
    tokens: int
    depth: int
    is_sampled: bool
    width: DraftWidth


@dataclass(frozen=True)
class VerifyInputs:
    """Inputs of the target's graph. shape: of its caches. method, parameters: of the verification. taps, successors:
    hidden states, and number of best tokens, that the drafter reads. drafts: None if the graph is the same for any
    chain of drafts. adapters: None without slots for them. media: None of a target that sees no pictures.
    first_timestamp: token of the time 0.00, None of a target that writes no times; hidden: tokens that no text has."""

    target: ModelFiles
    shape: CacheShape
    decoding: str
    constraints: bool
    method: str
    parameters: Mapping[str, float]
    taps: tuple[str, ...]
    successors: int
    drafts: WindowDrafts | None
    adapters: AdaptersPlan | None = None
    media: MediaRows | None = None
    first_timestamp: int | None = None
    hidden: tuple[int, ...] = ()

    @property
    def is_sampling(self) -> bool:
        """Return whether the graph can sample."""
        return self.decoding == "sampling"

    def after(self, width: DraftWidth | None) -> "VerifyInputs":
        """Return the inputs once the drafter is traced. width: of its drafts; None if no graph drafts."""
        if self.drafts is None or width is None:
            return self
        return replace(self, drafts=replace(self.drafts, width=width))


def make_verify(inputs: VerifyInputs, decoder: Decoder) -> Verify:
    """Return the target's part of the round."""
    drafts = inputs.drafts
    acceptance = make_acceptance(
        inputs.method, inputs.parameters, tree=drafts.tree if drafts else None, is_sampling=inputs.is_sampling,
        draws=drafts is not None and drafts.is_sampled, first_timestamp=inputs.first_timestamp, hidden=inputs.hidden,
    )  # fmt: skip
    has_branches = drafts is not None and drafts.kind != "chain"
    layout = TreeLayout(drafts.tree, drafts.tokens + 1, drafts.depth) if drafts and has_branches else ChainLayout()
    given = inputs.adapters
    slots = None if given is None else AdapterSlots(given.rank, given.modules, given.slots)
    return Verify(decoder, layout, acceptance, inputs.taps, inputs.successors, slots, inputs.media)


def make_drafter(inputs: DraftInputs, steps: CachedSteps | None = None) -> Drafter:
    """Return the drafter's part of the round."""
    context = drafter_context(inputs, steps)
    made = module_of(inputs.drafter.kind, "drafter").make(context)
    return cascaded(made, inputs.drafter, inputs.vocabulary_size, inputs.shape)


def drafter_context(inputs: DraftInputs, steps: CachedSteps | None = None) -> DrafterContext:
    """Return the context from which a drafter, and its reference, are made."""
    own = replace(inputs, drafter=inputs.drafter.own)
    return DrafterContext(own, partial(load_decoder, steps=steps or CachedSteps()))


def load_decoder(model: ModelFiles, role: str, shape: CacheShape, steps: CachedSteps) -> Decoder:
    """Load a model with the attention hook, and check that all its attention goes through it."""
    loaded, probed = load_model(model.folder, shape.max_length), list[Decoder]()

    def find() -> list[dict[str, Any]]:
        with log_step(f"loading the {role} and probing its attention"):
            # compared with transformers in float, over full caches
            plain = replace(shape, dtype=FLOAT_CACHE, sliding=FULL, ring_rows=None)
            probed.append(probe(loaded, plain))
        return [asdict(layer) for layer in probed[0].layers]

    inputs = ProbeInputs(model, shape.max_length)
    found = steps.result(f"probing the attention of the {role}", inputs, find)
    decoder = probed[0] if probed else with_hook(loaded, [LayerAttention.from_json(each) for each in found], shape)
    decoder.shape = shape
    return decoder
