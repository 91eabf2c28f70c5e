"""Reference: transformers' forward over the whole text."""

from dataclasses import replace

import numpy as np
from torch import nn

from speccompile.compiler.models.eager import round_caches
from speccompile.compiler.models.load import load_model
from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits, teacher
from speccompile.compiler.prove.reference import Logits, sequence_logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.token_map import TokenMap


def teachers(context: DrafterContext, mask: int | None = None) -> list[ReferenceLogits]:
    """Return one reference per draft model, over the target's tokens. mask: the model's token that a model with another
    tokenizer reads as every draft."""
    size, longest = context.vocabulary_size, context.shape.max_length
    folders = [each.folder for each in context.inputs.models]
    models = [round_caches(load_model(folder, longest), context.shape.dtype) for folder in folders]
    if context.token_maps:
        return [mapped(*each, size, longest, mask) for each in zip(models, context.token_maps, strict=True)]
    return [paired(teacher(model), model.config.vocab_size, size) for model in models]


def paired(each: ReferenceLogits, rows: int, size: int) -> ReferenceLogits:
    """Return a reference over the target's `size` tokens by a model of `rows` tokens with different padding. For tokens
    that the model lacks, it reads its last token and returns -inf as logits."""
    if rows == size:
        return each
    common = min(rows, size)

    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        known, drafts = ([min(token, rows - 1) for token in tokens] for tokens in (fed.known, drafts))
        found = each(replace(fed, known=known), drafts)
        whole = np.full((len(found), size), -np.inf, np.float32)
        whole[:, :common] = found[:, :common]
        return whole

    return logits


def mapped(model: nn.Module, tokens: TokenMap, size: int, longest: int, mask: int | None = None) -> ReferenceLogits:
    """Return a reference over the target's `size` tokens by a model with another tokenizer. It reads the text in its
    own tokens, at positions below `longest`, and returns -inf for tokens that it does not have. mask: as in
    `teachers`."""

    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        known = tokens.expanded(fed.known)
        own = [tokens.expanded([token])[-1] if mask is None else mask for token in drafts]
        found = sequence_logits(model, [*known, *own], longest)[len(known) - 1 :]
        whole = np.full((len(found), size), -np.inf, np.float32)
        whole[:, tokens.target_ids] = found[:, tokens.drafter_ids]
        return whole

    return logits
