"""Context in which drafters are made: the plan, the sizes of the buffers, and the models that a drafter may read."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from speccompile.compiler.models.load import load_model
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.dynamic import DynamicDrafter
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.network import DraftNetwork
from speccompile.drafters.cascades import drafted_for
from speccompile.drafters.weights import TargetEmbeddings
from speccompile.plan.head import HeadPlan
from speccompile.plan.plan import ModelPlan, Plan
from speccompile.tree import Tree


@dataclass(frozen=True)
class DrafterContext:
    """Input of a drafter's `make`. plan: the plan without the drafter's cascade; shape: of the caches; load: loads a
    model with the attention hook, given the role that messages name; model: the eager target, if it is loaded."""

    plan: Plan
    shape: CacheShape
    load: Callable[[ModelPlan, str, CacheShape], Decoder]
    model: nn.Module | None = None

    @property
    def tree(self) -> Tree:
        """Constant tree, or chain, of the drafts."""
        parents = self.plan.drafter.tree.parents
        assert parents is not None, "the plan refuses trees that the drafter makes"
        return Tree(parents)

    @property
    def head(self) -> HeadPlan:
        """Description of the head that drafts."""
        assert self.plan.drafter.head is not None, "the plan reads the head of such kinds"
        return self.plan.drafter.head

    def target(self) -> Decoder:
        """Load the target again for the drafter's graph. Weights of both graphs are stored once."""
        return self.load(self.plan.target, "target", self.shape)

    def ends(self) -> TargetEmbeddings:
        """Return the target's embedding and head."""
        return TargetEmbeddings(self.eager)

    def eager(self) -> nn.Module:
        """Return the target as transformers runs it."""
        return self.model or load_model(self.plan.target.folder, self.plan.max_length)

    def drafters(self) -> list[Decoder]:
        """Load the language models that draft."""
        models = self.plan.drafter.models
        roles = ["drafter"] if len(models) == 1 else [f"drafter {number}" for number in range(1, len(models) + 1)]
        return [self.load(model, role, self.shape) for model, role in zip(models, roles, strict=True)]


def token_by_token(site: DrafterContext, reader: DraftNetwork, fallback: float | None = None) -> Drafter:
    """Return the drafter of the planned tree for an autoregressive draft network. fallback: see `FixedDrafter`."""
    drafter = site.plan.drafter
    if drafter.inner is not None:
        return drafted_for(reader, drafter.tokens, drafter.inner, site.shape)
    if drafter.tree.parents is None:
        assert drafter.tree.top_k is not None, "dynamic trees have it"
        return DynamicDrafter(reader, drafter.tree.depth, drafter.tree.top_k, drafter.tokens)
    stop = site.plan.verify.parameters.get("fallback", fallback)
    return FixedDrafter(reader, site.tree, sample=drafter.sample, fallback=stop)
