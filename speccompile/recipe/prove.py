"""The section `prove`: its files of prompts and held-out texts, and how far a proof goes."""

from pathlib import Path

from speccompile.bundle.prompts import read_prompts
from speccompile.errors import PromptError
from speccompile.plan.caches import MAX_DIVERGENCE
from speccompile.plan.plan import ModelPlan, ProvePlan
from speccompile.recipe.prove_schema import Prove
from speccompile.recipe.schema import Recipe

MAX_NEW_TOKENS = 64


def decide_prove(recipe: Recipe) -> ProvePlan:
    """Return the plan of the proof. Raise RecipeError for a file that does not exist."""
    prove = recipe.prove or Prove()
    prompts = _decide_file(recipe, "prompts", prove.prompts)
    held_out = _decide_file(recipe, "held_out", prove.held_out)
    return ProvePlan(
        prompts, prove.max_new_tokens or MAX_NEW_TOKENS, prove.prompts, held_out, prove.held_out,
        prove.max_encoder_divergence or MAX_DIVERGENCE,
    )  # fmt: skip


def check_prompts(prove: ProvePlan, target: ModelPlan) -> None:
    """Raise PromptError for prompts and held-out texts that cannot be read, or not by the target."""
    for file in filter(None, (prove.prompts, prove.held_out)):
        _check_file(file, target)


def _check_file(file: Path, target: ModelPlan) -> None:
    """Raise PromptError for prompts that the target cannot read: ids past its vocabulary, text without a tokenizer."""
    size = target.facts.vocabulary_size
    for number, prompt in enumerate(read_prompts(file), 1):
        if isinstance(prompt, str):
            if not target.facts.tokenizer:
                received = f"prompt {number} as text, but the target has no tokenizer.json"
                raise PromptError(
                    f"{file}: received {received}, expected token ids",
                    hint='write prompts as {"token_ids": [1, 2, 3]}, or add the tokenizer to the target\'s folder',
                )
        elif max(prompt) >= size:
            raise PromptError(
                f"{file}: received token id {max(prompt)} in prompt {number}, expected ids below {size}, "
                "the size of the target's vocabulary",
                hint="tokenize the prompts with the target's tokenizer",
            )


def _decide_file(recipe: Recipe, name: str, written: str | None) -> Path | None:
    if written is None:
        return None
    path = recipe.origin.resolve(written)
    if not path.is_file():
        received = f"'{written}' (no file lies at {path})"
        hint = f"correct prove.{name}; a relative path starts at the folder of the recipe"
        raise recipe.origin.refusal(f"prove.{name}", received, str(Prove.model_fields[name].description), hint)
    return path
