"""Prefixes that a bundle ships: names and files."""

from collections.abc import Sequence

from speccompile.machine.plain_files import read_plain
from speccompile.plan.plan import EnginePlan, ModelPlan
from speccompile.plan.prefixes import PrefixPlan
from speccompile.recipe.schema import Recipe


def decide_prefixes(recipe: Recipe, target: ModelPlan, engines: Sequence[EnginePlan]) -> tuple[PrefixPlan, ...]:
    """Return the prefixes of a recipe. Raise RecipeError for two of one name, for a file that is missing, empty or no
    UTF-8, for a target without a tokenizer, and for engines of which none runs on this machine's processor."""
    written, origin = recipe.prefixes or [], recipe.origin
    if written and not target.facts.tokenizer:
        raise origin.refusal(
            "prefixes", "texts for a target without tokenizer.json", "a target with a tokenizer",
            "add the tokenizer to the target's folder, or remove prefixes",
        )  # fmt: skip
    if written and not any(engine.provider == "cpu" for engine in engines):
        raise origin.refusal(
            "prefixes", "engines that run on a GPU alone", "an engine of the provider cpu: the build runs it",
            "add one, or remove prefixes",
        )  # fmt: skip
    found: dict[str, PrefixPlan] = {}
    for number, prefix in enumerate(written):
        if prefix.name in found:
            raise origin.refusal(
                f"prefixes.{number}.name", f"'{prefix.name}' a second time", "every name once", "give another name"
            )
        key, file = f"prefixes.{number}.prompt_file", origin.resolve(prefix.prompt_file)
        received, expected = f"'{prefix.prompt_file}'", "a file with the text of the prefix"
        try:
            text = read_plain(file).decode("utf-8-sig")
        except OSError as error:
            raise origin.refusal(
                key, f"{received}: {error.strerror}", expected, "write it, or correct the path"
            ) from None
        except UnicodeDecodeError:
            raise origin.refusal(key, f"{received}, which is not UTF-8", expected, "save it as UTF-8") from None
        if not text:
            raise origin.refusal(key, f"{received}, which is empty", expected, "write the text into it")
        found[prefix.name] = PrefixPlan(prefix.name, text, prefix.prompt_file)
    return tuple(found.values())
