"""Inputs of a drafter: its own part of the plan, the sizes of the buffers, and the models that it may read."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import nn

from speccompile.compiler.models.eager import round_caches
from speccompile.compiler.models.load import ModelFiles, load_model
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.dynamic import DynamicDrafter
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.network import DraftNetwork
from speccompile.compiler.step.draft.own_text import OwnTokens
from speccompile.compiler.step.draft.paired import PairedReader
from speccompile.compiler.step.media_rows import MediaRows
from speccompile.contract import FLOAT_CACHE
from speccompile.drafters.cascades import drafted_for
from speccompile.drafters.token_map import TokenizerPair, TokenMap, make_token_map
from speccompile.drafters.weights import TargetEmbeddings
from speccompile.plan.head import HeadPlan
from speccompile.plan.plan import DrafterPlan
from speccompile.tree import Tree


@dataclass(frozen=True)
class DraftInputs:
    """Inputs of a drafter's graph and of its proof.

    drafter: its own part of the plan, without its models and without names that a recipe gives; models: the language
    models that draft. target: None if the drafter does not read it, and then only its vocabulary_size matters. shape:
    of the caches. fallback: probability of a draft below which the verification method ends drafting, None if it does
    not. tokenizers: of each model, if they have other tokenizers than the target; none for the same. target_cache:
    dtype of the target's stored keys and values. media: rows of pictures in the target's windows, None if it sees none.
    """

    drafter: DrafterPlan
    models: tuple[ModelFiles, ...]
    target: ModelFiles | None
    vocabulary_size: int
    shape: CacheShape
    fallback: float | None = None
    tokenizers: tuple[TokenizerPair, ...] = ()
    target_cache: str = FLOAT_CACHE
    media: MediaRows | None = None


@dataclass(frozen=True)
class DrafterContext:
    """Input of a drafter's `make`. inputs: without the drafter's cascade. load: loads a model with the attention hook,
    given the role that messages name; model: the eager target, if it is loaded."""

    inputs: DraftInputs
    load: Callable[[ModelFiles, str, CacheShape], Decoder]
    model: nn.Module | None = None

    @property
    def drafter(self) -> DrafterPlan:
        """Return the drafter's own part of the plan."""
        return self.inputs.drafter

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens of the target."""
        return self.inputs.vocabulary_size

    @property
    def shape(self) -> CacheShape:
        """Return the shape of the caches."""
        return self.inputs.shape

    @property
    def tree(self) -> Tree:
        """Return the constant tree, or chain, of the drafts."""
        parents = self.drafter.tree.parents
        assert parents is not None, "the plan refuses trees that the drafter makes"
        return Tree(parents)

    @property
    def head(self) -> HeadPlan:
        """Return the description of the head that drafts."""
        assert self.drafter.head is not None, "the plan reads the head of such kinds"
        return self.drafter.head

    @property
    def target_files(self) -> ModelFiles:
        """Return files of the target."""
        assert self.inputs.target is not None, "the weights of such kinds are the target's, or were made for it"
        return self.inputs.target

    def target(self) -> Decoder:
        """Load the target again for the drafter's graph. Weights of both graphs are stored once."""
        return self.load(self.target_files, "target", self.shape)

    def ends(self) -> TargetEmbeddings:
        """Return the target's embedding and head."""
        return TargetEmbeddings(self.eager)

    def eager(self) -> nn.Module:
        """Return the target as transformers runs it."""
        model = self.model or load_model(self.target_files.folder, self.shape.max_length)
        return round_caches(model, self.inputs.target_cache)

    @cached_property
    def token_maps(self) -> list[TokenMap]:
        """Return tables between the target's tokens and those of each model, none if they are the same."""
        return [make_token_map(pair) for pair in self.inputs.tokenizers]

    def own_tokens(self, number: int = 0) -> OwnTokens | None:
        """Return the tables of a model, counted from 0, as a part of the drafter's graph."""
        if not self.token_maps:
            return None
        found = self.token_maps[number]
        tables = found.target_ids, found.drafter_ids, found.to_drafter, found.counts
        return OwnTokens(*map(torch.from_numpy, tables))

    def drafters(self) -> list[Decoder]:
        """Load the language models that draft. Caches of one with another tokenizer have rows for all tokens to which
        the target's expand."""
        models, rows = self.inputs.models, self.shape.rows
        several = [each.to_drafter.shape[1] for each in self.token_maps] or [1] * len(models)
        shapes = [replace(self.shape, rows=rows * each) for each in several]
        roles = ["drafter"] if len(models) == 1 else [f"drafter {number}" for number in range(1, len(models) + 1)]
        return [self.load(*each) for each in zip(models, roles, shapes, strict=True)]


def token_by_token(context: DrafterContext, reader: DraftNetwork, fallback: float | None = None) -> Drafter:
    """Return the drafter of the planned tree for an autoregressive draft network. fallback: see `FixedDrafter`; the
    verification method's own comes first."""
    drafter, stop = context.drafter, context.inputs.fallback
    if drafter.inner is not None:
        return drafted_for(reader, drafter.tokens, drafter.inner, context.shape)
    if drafter.tree.parents is None:
        return DynamicDrafter(reader, drafter.tree.depth, drafter.tree.top_k or drafter.tokens, drafter.tokens)
    return FixedDrafter(reader, context.tree, sample=drafter.sample, fallback=fallback if stop is None else stop)


def paired(context: DrafterContext, reader: PairedReader) -> Drafter:
    """Return the drafter of the planned tree for a head whose rows pair a feature with the next token. Its positions
    are on the axes of its own config, if the target's are on several."""
    if context.inputs.media is not None:
        axes = reader.shape_of_layers.axes if context.inputs.media.axes else ()
        reader.media = replace(context.inputs.media, axes=axes)
    return token_by_token(context, reader)
