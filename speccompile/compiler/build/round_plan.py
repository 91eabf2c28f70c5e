"""Decisions about a round, and from them the inputs of the stages that make its graphs."""

from dataclasses import dataclass, replace

from speccompile.compiler.build.lowered import LowerInputs
from speccompile.compiler.build.modules import VerifyInputs, WindowDrafts
from speccompile.compiler.build.traced_graphs import TraceInputs, shares_weights
from speccompile.compiler.lower.signatures import DraftWidth
from speccompile.compiler.models.load import ModelFiles
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.media_rows import MediaRows
from speccompile.contract import FLOAT_CACHE
from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.context import DraftInputs
from speccompile.drafters.method import NOTHING, OWN
from speccompile.drafters.token_map import TokenizerPair
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.plan.adapters import AdaptersPlan
from speccompile.plan.caches import FULL, CachePlan, spare_rows
from speccompile.plan.plan import DrafterPlan, EnginePlan, VerifyPlan
from speccompile.tree import ROOT, Tree, chain, from_parents, merged

_SCRIPT = 8
"""Granularity of the growth of a proof's chain, in drafts."""
_LONG_ENOUGH = 64
"""Minimum cache.max_length, in positions, for a rounded chain: it must not fill most of them."""


_FEW = 4
"""Number of distinct tokens of a proof's texts for drafts that are copies or votes."""


@dataclass(frozen=True)
class RoundPlan:
    """Decisions on which the graphs of a round depend. models: the language models that draft. drafter: without these,
    and without names that a recipe gives. tokenizers: of each, if these are not the target's. source: most
    tokens of a source, 0 without an encoder. first_timestamp, hidden: see `VerifyInputs`. The other fields are the
    plan's."""

    target: ModelFiles
    models: tuple[ModelFiles, ...]
    drafter: DrafterPlan
    verify: VerifyPlan
    decoding: str
    constraints: bool
    graphs: str
    max_length: int
    batch_size: int
    prefill_chunk: int
    caches: CachePlan
    tokenizers: tuple[TokenizerPair, ...] = ()
    adapters: AdaptersPlan | None = None
    images: ImageSettings | None = None
    source: int = 0
    first_timestamp: int | None = None
    hidden: tuple[int, ...] = ()

    @property
    def shape(self) -> CacheShape:
        """Shape of the target's buffers for the longest sequence, the widest window, and the drafter's lookahead."""
        rows = self.max_length + spare_rows(self.prefill_chunk, self.drafter.tokens)
        caches = self.caches
        kinds = caches.target, self.source, caches.sliding, caches.ring_rows
        return CacheShape(self.batch_size, rows, self.max_length, *kinds)

    @property
    def trace(self) -> TraceInputs:
        """Return inputs of the traced graphs."""
        known = (self.target,) if self.tokenizers else (self.target, *self.models)
        common = min(model.vocabulary_size for model in known)
        repeats = self.target.vocabulary_size if self.drafter.inner or self.drafter.cascade else 0
        if self.drafts_in_graph and DRAFTING_METHODS[self.drafter.kind].weights == NOTHING:
            repeats = _FEW  # random tokens alone hardly ever occur twice
        draft = self.draft if self.drafts_in_graph else None
        return TraceInputs(self.verification, draft, self.script_tree, common, self.prefill_chunk, repeats)

    @property
    def draft(self) -> DraftInputs:
        """Return inputs of the drafter."""
        method = DRAFTING_METHODS[self.drafter.kind]
        reads, shape = method.weights not in (OWN, NOTHING), replace(self.shape, dtype=self.caches.drafter)
        if not (method.reads_target_cache or self.drafter.layers is not None):
            shape = replace(shape, sliding=FULL, ring_rows=None)  # its own caches have a row for each token
        return DraftInputs(
            self.drafter, self.models, self.target if reads else None, self.target.vocabulary_size, shape,
            self.verify.parameters.get("fallback"), self.tokenizers, self.caches.target if reads else FLOAT_CACHE,
            self.media if reads else None,
        )  # fmt: skip

    @property
    def drafts_in_graph(self) -> bool:
        """Return whether there are drafts that do not come from the host."""
        return self.drafter.tokens > 0 and not (
            DRAFTING_METHODS[self.drafter.kind].drafts_on_host or self.drafter.over_texts
        )

    @property
    def verification(self) -> VerifyInputs:
        """Return inputs of the target's graph before the drafter is traced: see `VerifyInputs.after`."""
        taps = self.drafter.head.taps if self.drafter.head else ()
        return VerifyInputs(
            self.target, self.shape, self.decoding, self.constraints, self.verify.method, self.verify.parameters, taps,
            self.drafter.successors, None if self.is_chain_independent else self._drafts,
            self.adapters, self.media, self.first_timestamp, self.hidden,
        )  # fmt: skip

    @property
    def media(self) -> MediaRows | None:
        """Return rows of pictures in the target's windows; None if it sees none."""
        found = self.images
        if found is None:
            return None
        return MediaRows(found.width, found.both_ways, found.axes, found.stacked, found.in_windows, found.padded)

    @property
    def _drafts(self) -> WindowDrafts:
        drafter, tree = self.drafter, self.window_tree
        depth = tree.depth if tree else drafter.tree.depth
        width = DraftWidth(drafter.tokens, drafter.tokens + 1)
        return WindowDrafts(self.tree_kind, tree, drafter.tokens, depth, drafter.sample, width)

    @property
    def has_weights(self) -> bool:
        """Return whether the drafter has weights, its own or the target's."""
        return bool(self.models) or shares_weights(self.drafter)

    def lowering(self, engines: tuple[EnginePlan, ...]) -> LowerInputs:
        """Return the inputs of the lowered graphs."""
        return LowerInputs(
            engines, self.graphs, self.batch_size, shares_weights(self.drafter), self.has_weights, self.caches.target
        )

    @property
    def window_tree(self) -> Tree | None:
        """Return the tree of all drafts of a round; None if the drafter makes it, or if there is no drafter."""
        parents = self.drafter.tree.parents
        if parents is None or not self.drafter.tokens:
            return None
        tree = Tree(parents)
        return merged([tree] * len(self.models)) if len(self.models) > 1 else tree

    @property
    def tree_kind(self) -> str:
        """Return the shape of a round's drafts: "chain", "static" or "dynamic"."""
        tree = self.window_tree
        return "static" if tree is not None and not tree.is_chain else self.drafter.tree.kind

    @property
    def is_chain_independent(self) -> bool:
        """Return whether the target's graph is the same for all drafts: it compares its input with its own choices."""
        is_plain = self.decoding == "greedy" and self.verify.method == "exact" and not self.drafter.successors
        return self.tree_kind == "chain" and is_plain

    @property
    def script_tree(self) -> Tree | None:
        """Tree of the drafts in the proof's schedule, by default the round's. If the target's graph accepts any chain,
        a chain of rounded length, so that its proof stays the same when a few drafts are added."""
        tree = self._proof_tree
        if tree is None or not self.is_chain_independent or self.max_length < _LONG_ENOUGH:
            return tree
        return chain(-(-tree.drafts // _SCRIPT) * _SCRIPT)

    @property
    def _proof_tree(self) -> Tree | None:
        """Tree that the window can hold: the round's own, or one with a long branch and many short ones."""
        if self.drafter.tree.kind != "dynamic":
            return self.window_tree
        long = min(self.drafter.tree.depth, self.drafter.tokens)
        return from_parents([ROOT, *range(long), *[0] * (self.drafter.tokens - long)])
