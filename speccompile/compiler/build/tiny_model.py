"""A small model with the recipe's own drafter, for thousands of samples.

Its weights are random and wide, so that no distribution is flat; its drafters are noisy copies, so that drafts are both
accepted and refused. Everything else is the recipe's: drafting method, tree, sampled or deterministic drafts,
acceptance rule, and whether a drafter's vocabulary has more or less padding, or other tokens.
"""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from speccompile.compiler.build.round_plan import RoundPlan
from speccompile.compiler.build.tiny_tokenizers import shift_tokens, tiny_tokenizers
from speccompile.compiler.models.load import ModelFiles
from speccompile.drafters import module_of
from speccompile.plan.layers import LayersPlan
from speccompile.plan.plan import TreePlan
from speccompile.tree import Tree

VOCABULARY, MAX_LENGTH, BATCH_SIZE, LAYERS, HIDDEN = 24, 64, 128, 2, 32
PADDING = 3
"""Difference in vocabulary size between drafter and target, if the recipe's models differ."""


def tiny_round(round_plan: RoundPlan, folder: Path) -> RoundPlan:
    """Write the models into `folder`, and return the round with them."""
    drafter, size = round_plan.drafter, _vocabulary_size(round_plan.drafter.tree)
    target = _model(size, 0)
    maps = bool(round_plan.tokenizers)
    rows = [size if maps else size + _padding(round_plan.target, each) for each in round_plan.models]
    copies = [_noisy(target, count, seed) for seed, count in enumerate(rows, 1)]
    models = tuple(
        _saved(shift_tokens(copy) if maps else copy, folder / f"drafter.{number}")
        for number, copy in enumerate(copies, 1)
    )
    layers = drafter.layers and LayersPlan(_first_or_last(drafter.layers.attention), _first_or_last(drafter.layers.mlp))
    head = drafter.head and module_of(drafter.kind, "reference").small(
        drafter.head, HIDDEN, size, LAYERS, folder / "head"
    )
    mask_token = None if drafter.mask_token is None else rows[0] - 1
    return replace(
        round_plan,
        target=_saved(target, folder / "target"),
        models=models,
        drafter=replace(drafter, layers=layers, head=head, mask_token=mask_token),
        source=0,  # a rule reads logits, whatever they depend on
        max_length=MAX_LENGTH,
        batch_size=BATCH_SIZE,
        prefill_chunk=MAX_LENGTH // 2,
        tokenizers=(tiny_tokenizers(size, folder),) * len(models) if maps else (),
    )


def _vocabulary_size(tree: TreePlan) -> int:
    """Return at least twice the number of children of any node: a drafter may have a few tokens less."""
    branching = Tree(tree.parents).branching if tree.parents else 0
    return max(VOCABULARY, 2 * branching, 2 * (tree.top_k or 0))


def _first_or_last(layers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the first layer if it is among `layers`, else the last layer, or none for no layers."""
    return (0,) if 0 in layers else (LAYERS - 1,) if layers else ()


def _padding(target: ModelFiles, drafter: ModelFiles) -> int:
    """Return the number of tokens that the drafter has more than the target, in the small model."""
    ours, theirs = target.vocabulary_size, drafter.vocabulary_size
    return PADDING * ((theirs > ours) - (theirs < ours))


@torch.no_grad()
def _model(vocabulary_size: int, seed: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=vocabulary_size, hidden_size=HIDDEN, intermediate_size=48, num_hidden_layers=LAYERS,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=MAX_LENGTH, bos_token_id=None,
        eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model, random = LlamaForCausalLM(config), torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=1.5 / parameter.shape[-1] ** 0.5, generator=random)
    model.get_input_embeddings().weight.normal_(generator=random)
    return model


@torch.no_grad()
def _noisy(target: LlamaForCausalLM, rows: int, seed: int) -> LlamaForCausalLM:
    """Return a noisy copy of the target with `rows` tokens, the first of which are the target's."""
    config, random = deepcopy(target.config), torch.Generator().manual_seed(seed)
    config.vocab_size = rows
    model = LlamaForCausalLM(config)
    for name, tensor in target.state_dict().items():
        own = model.get_parameter(name)
        own[: len(tensor)] = tensor[: len(own)]
        own[len(tensor) :].normal_(std=float(tensor.std()), generator=random)
    for parameter in model.parameters():
        parameter += 0.2 * parameter.std() * torch.randn(parameter.shape, generator=random)
    return model


def _saved(model: LlamaForCausalLM, folder: Path) -> ModelFiles:
    model.save_pretrained(folder)
    files = tuple(sorted(path.relative_to(folder) for path in folder.iterdir()))
    return ModelFiles(folder, files, model.config.vocab_size)
