"""A small model with the recipe's own drafter, for thousands of samples.

Its weights are random and wide, so that no distribution is flat; its drafters are noisy copies, so that drafts are both
accepted and refused. Everything else is the recipe's: drafting method, tree, sampled or deterministic drafts,
acceptance rule, and whether a drafter's vocabulary has more or less padding.
"""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from speccompile.drafters import module_of
from speccompile.plan.plan import LayersPlan, PrecisionPlan
from speccompile.recipe import EnginePlan, ModelPlan, Plan
from speccompile.tree import Tree

VOCABULARY, MAX_LENGTH, BATCH_SIZE, LAYERS, HIDDEN = 24, 64, 128, 2, 32
PADDING = 3
"""Difference in vocabulary size between drafter and target, if the recipe's models differ."""


def tiny_plan(plan: Plan, folder: Path) -> Plan:
    """Write the models into `folder`, and plan a bundle of them for ONNX Runtime on the CPU, in float32."""
    drafter, size = plan.drafter, _vocabulary_size(plan)
    target = _model(size, 0)
    rows = [size + _padding(plan.target, each) for each in drafter.models]
    models = tuple(
        _saved(each, _noisy(target, count, seed), folder / f"drafter.{seed}")
        for seed, (each, count) in enumerate(zip(drafter.models, rows, strict=True), 1)
    )
    layers = drafter.layers and LayersPlan(_first_or_last(drafter.layers.attention), _first_or_last(drafter.layers.mlp))
    words = PrecisionPlan("float32", "float32" if plan.engines[0].precision.drafter else None, None)
    head = drafter.head and module_of(drafter.kind, "reference").small(
        drafter.head, HIDDEN, size, LAYERS, folder / "head"
    )
    return replace(
        plan,
        name="small",
        target=_saved(plan.target, target, folder / "target"),
        drafter=replace(
            drafter,
            models=models,
            layers=layers,
            head=head,
            mask_token=None if drafter.mask_token is None else rows[0] - 1,
        ),
        max_length=MAX_LENGTH,
        batch_size=BATCH_SIZE,
        prefill_chunk=MAX_LENGTH // 2,
        engines=(EnginePlan(0, "small", "onnxruntime", "cpu", None, words),),
    )


def _vocabulary_size(plan: Plan) -> int:
    """Return at least twice the number of children of any node: a drafter may have a few tokens less."""
    tree = plan.drafter.tree
    branching = Tree(tree.parents).branching if tree.parents else 0
    return max(VOCABULARY, 2 * branching, 2 * (tree.top_k or 0))


def _first_or_last(layers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the first layer if it is among `layers`, else the last layer, or none for no layers."""
    return (0,) if 0 in layers else (LAYERS - 1,) if layers else ()


def _padding(target: ModelPlan, drafter: ModelPlan) -> int:
    """Return the number of tokens that the drafter has more than the target, in the small model."""
    ours, theirs = target.facts.vocabulary_size, drafter.facts.vocabulary_size
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


def _saved(plan: ModelPlan, model: LlamaForCausalLM, folder: Path) -> ModelPlan:
    model.save_pretrained(folder)
    facts = replace(
        plan.facts, architecture="LlamaForCausalLM", model_type="llama", vocabulary_size=model.config.vocab_size,
        positions=MAX_LENGTH, eos_token_ids=(), tokenizer=False,
        weight_bytes=sum(4 * parameter.numel() for parameter in model.parameters()),
    )  # fmt: skip
    files = tuple(sorted(path.relative_to(folder) for path in folder.iterdir()))
    return replace(plan, reference=folder.name, revision=None, commit=None, folder=folder, files=files, facts=facts)
