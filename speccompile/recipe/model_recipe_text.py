"""Write the recipe of a plan as text with comments."""

from collections.abc import Callable
from pathlib import Path

import yaml

from speccompile.drafters import DRAFTING_METHODS, KINDS_WITH_WEIGHTS
from speccompile.plan.plan import Plan
from speccompile.plan.precisions import FLOATS
from speccompile.recipe.engines import FAST
from speccompile.recipe.load import dump_yaml
from speccompile.recipe.model_request import ModelRequest
from speccompile.recipe.stored_precision import stored_precision

WIDTH = 30
"""Column of the comments behind values."""


def recipe_text(request: ModelRequest, plan: Plan, written: Callable[[str], str]) -> str:
    """Return YAML of which `make_plan` makes `plan` again, with the drafter in 8 bits where it would be in floats.
    request: of the user. written: a model's reference as it stands in the recipe."""
    facts = plan.target.facts
    size = f"{facts.weight_bytes / 1e6:.0f} MB" if facts.weight_bytes >= 1e7 else f"{facts.weight_bytes / 1e3:.0f} kB"
    stored = stored_precision(facts, ()).target or facts.quantization or "other dtypes"
    limit = "the model sets no limit" if facts.positions is None else f"the model has positions for {facts.positions}"
    engine = plan.engines[0]
    lines = [
        f"# A recipe for {request.model}. `speccompile plan` shows all that it decides.",
        _line(dump_yaml({"name": plan.name}).strip(), "of the bundle, by default in build/"),
        "target:",
        _line(f"  model: {_quoted(written(plan.target.reference))}", f"{facts.architecture}, {size} in {stored}"),
        *_revision_lines(plan.target.commit),
        *_tokenizer_lines(request, written),
        *([_line("  images: true", "the bundle sees pictures")] if request.images else []),
        "drafter:",
        *_drafter_lines(plan, written),
        _line(f"decoding: {plan.decoding}", "sampling: temperature, top-k, top-p and so on can be asked for"),
        "cache:",
        _line(f"  max_length: {plan.max_length}", f"tokens of a prompt and its answer; {limit}"),
        _line(f"  batch_size: {plan.batch_size}", "sequences side by side; a server wants 4 or more"),
        "precision:",
        _line(f"  target: {engine.precision.target}", "float32, bfloat16, int8 or int4; inspect says what each costs"),
        *_drafter_precision_lines(plan),
        "engines:",
        _line(f"  - backend: {engine.backend}", "tensorrt_rtx builds for GPUs, without one"),
        f"    provider: {engine.provider}",
        "prove:",
        _line(f"  max_new_tokens: {plan.prove.max_new_tokens}", "of each prompt of the proof"),
        _line("  # prompts: prompts.jsonl", 'yours: one {"prompt": "..."} a line'),
    ]
    return "\n".join([lines[0], *_elsewhere_lines(lines), *lines[1:]]) + "\n"


def _elsewhere_lines(lines: list[str]) -> list[str]:
    """Return a comment that says what to set where the absolute paths of a recipe's text are not there: a recipe in a
    bundle goes where the bundle goes. None where all are relative."""
    read = yaml.safe_load("\n".join(lines))
    keys = [
        f"{section}.{key}"
        for section in ("target", "drafter")
        for key in ("model", "tokenizer")
        if str(read[section].get(key, "")).startswith("/")
    ]
    told = " ".join(f"--set {key}=FOLDER" for key in keys)
    return [f"# The folders are those of the machine that wrote this. Elsewhere: {told}"] if keys else []


def _tokenizer_lines(request: ModelRequest, written: Callable[[str], str]) -> list[str]:
    if request.tokenizer is None:
        return []
    return [f"  tokenizer: {_quoted(written(str(Path(request.tokenizer).expanduser().resolve())))}"]


def _drafter_lines(plan: Plan, written: Callable[[str], str]) -> list[str]:
    drafter = plan.drafter
    lines = [_line(f"  kind: {drafter.kind}", "none: no drafts; compare measures what others are worth")]
    references = [(each.reference, each.commit) for each in drafter.models]
    if drafter.head is not None and drafter.head.folder != plan.target.folder:
        references.append((drafter.head.reference, drafter.head.commit))
    for reference, commit in references:
        lines += [f"  model: {_quoted(written(reference))}", *_revision_lines(commit)]
    if "tokens" in DRAFTING_METHODS[drafter.kind].keys and drafter.tree.kind == "chain":
        lines.append(_line(f"  tokens: {drafter.tokens}", "drafts of a round, at most"))
    return lines


def _revision_lines(commit: str | None) -> list[str]:
    return [f"  {dump_yaml({'revision': commit}).strip()}"] if commit else []


def _quoted(text: str) -> str:
    text = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=float("inf"))
    return text.strip()


def _drafter_precision_lines(plan: Plan) -> list[str]:
    engine = plan.engines[0]
    if plan.drafter.kind in KINDS_WITH_WEIGHTS and engine.provider == "cpu" and engine.precision.drafter in FLOATS:
        return [_line(f"  drafter: {FAST}", "drafts cost less, and no token changes")]
    return []


def _line(text: str, comment: str) -> str:
    return f"{text:<{WIDTH}}  # {comment}"
