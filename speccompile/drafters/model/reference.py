"""Reference: transformers' forward over the whole text."""

from dataclasses import replace

import numpy as np

from speccompile.compiler.models.eager import round_caches
from speccompile.compiler.models.load import load_model
from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits, teacher
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext


def teachers(site: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference per draft model, over the target's tokens."""
    size = site.vocabulary_size
    files = [each.folder for each in site.inputs.models]
    models = [round_caches(load_model(folder, site.shape.max_length), site.shape.dtype) for folder in files]
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
