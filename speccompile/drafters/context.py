"""Where drafters are made: the plan, the sizes of the buffers, and the models that a drafter may read."""

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
    """plan: whole, but for what is drafted beside the drafter; shape: of the caches; load: a model behind the attention
    hook, by the role that messages name; model: the target in eager torch, where it is loaded anyway."""

    plan: Plan
    shape: CacheShape
    load: Callable[[ModelPlan, str, CacheShape], Decoder]
    model: nn.Module | None = None

    @property
    def tree(self) -> Tree:
        """The constant tree, or chain, of the drafts."""
        parents = self.plan.drafter.tree.parents
        assert parents is not None, "the plan refuses trees that the drafter makes"
        return Tree(parents)

    @property
    def head(self) -> HeadPlan:
        """The head that drafts."""
        assert self.plan.drafter.head is not None, "the plan reads the head of such kinds"
        return self.plan.drafter.head

    def target(self) -> Decoder:
        """The target, loaded once more for the drafter's graph: what both have is shared when they are written."""
        return self.load(self.plan.target, "target", self.shape)

    def ends(self) -> TargetEmbeddings:
        """The target's embedding and head."""
        return TargetEmbeddings(self.eager)

    def eager(self) -> nn.Module:
        """The target as transformers runs it."""
        return self.model or load_model(self.plan.target.folder, self.plan.max_length)

    def drafters(self) -> list[Decoder]:
        """The language models that draft."""
        models = self.plan.drafter.models
        roles = ["drafter"] if len(models) == 1 else [f"drafter {number}" for number in range(1, len(models) + 1)]
        return [self.load(model, role, self.shape) for model, role in zip(models, roles, strict=True)]


def token_by_token(site: DrafterContext, reader: DraftNetwork, fallback: float | None = None) -> Drafter:
    """The drafter that the plan asks for, of any shape, by a reader. fallback: as of `FixedDrafter`."""
    drafter = site.plan.drafter
    if drafter.inner is not None:
        return drafted_for(reader, drafter.tokens, drafter.inner, site.shape)
    if drafter.tree.parents is None:
        assert drafter.tree.top_k is not None, "dynamic trees have it"
        return DynamicDrafter(reader, drafter.tree.depth, drafter.tree.top_k, drafter.tokens)
    stop = site.plan.verify.parameters.get("fallback", fallback)
    return FixedDrafter(reader, site.tree, sample=drafter.sample, fallback=stop)
