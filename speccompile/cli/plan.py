"""`speccompile plan`."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from speccompile.cli.heads import found_rows
from speccompile.cli.options import CACHE_GB
from speccompile.cli.training_rows import training_rows
from speccompile.errors import SpeccompileError

if TYPE_CHECKING:
    from speccompile.plan.plan import DrafterPlan
    from speccompile.plan.training_plan import TrainingPlan
    from speccompile.recipe import EnginePlan, ModelPlan, Plan, Recipe
    from speccompile.recipe.resource_estimate import ResourceEstimate
    from speccompile.recipe.resources import AvailableResources

Row = tuple[str, str, str]


@click.command(epilog="Example: speccompile plan recipes/demo --set drafter.tokens=6")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a key, as in drafter.tokens=6.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--cache-gb", **CACHE_GB)
def command(recipe: Path, overrides: tuple[str, ...], as_json: bool, cache_gb: float) -> None:
    """Show what build would do with RECIPE: every default decided, every check before the work made.

    RECIPE is a recipe.yaml or the folder that holds one.

    \b
    The JSON object has the plan's own keys, and
      needs    an estimate in bytes: disk (bundle, and temporary files until
               it is done), memory (what a process holds of its own), mapped,
               reserved and address_space (these two and memory)
      room     what there is for it here: disk, free in folder, where
               build/<name> would be; memory, the lowest limit
      context  {bytes_per_token, memory, tokens}: bytes of a token in the caches
               of all layers, --cache-gb in bytes, and tokens of the longest
               text whose caches fit; null: any does
      lacking  [text]: of what there is less than needed; build refuses
               where it is less than nine tenths

    \b
    Where the recipe has a section train, the object has the key
      training  what train would do; null where it would refuse, and why is
                then in notes
    Before the drafter is there, training and notes are its only keys.
    """
    from speccompile.recipe import load_recipe, make_plan
    from speccompile.recipe.drafter import is_untrained
    from speccompile.recipe.resource_estimate import estimate_resources
    from speccompile.recipe.resources import find_resources, insufficient_resources

    written = load_recipe(recipe, overrides)
    training, refused = _training(written)
    if is_untrained(written):
        if training is None:
            raise refused or AssertionError("it is planned or refused")
        _show_training_alone(written, training, as_json=as_json)
        return
    plan = make_plan(written)
    needs, room = estimate_resources(plan), find_resources(Path("build") / plan.name)
    lacking = [str(error) for error in insufficient_resources(needs, room)]
    if as_json:
        found = {"folder": str(room.folder), "disk": room.disk, "memory": room.memory}
        data = plan.to_json() | {
            "needs": needs.to_json(),
            "room": found,
            "lacking": lacking,
            "context": _context(plan, cache_gb),
        }
        if written.train is not None:
            data |= {"training": training.to_json() if training else None}
            data["notes"] += [f"train would refuse: {refused}"] if refused else []
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    notes = [*plan.notes, *lacking, *([f"train would refuse: {refused}"] if refused else [])]
    rows = _rows(plan, written, needs, room, cache_gb)
    if training is not None:
        rows, notes = [*rows, *training_rows(written, training)], [*notes, *training.notes]
    _show(rows, notes)


def _training(recipe: "Recipe") -> "tuple[TrainingPlan | None, SpeccompileError | None]":
    """Return the training plan, or the error that prevents it; two None without a section `train`."""
    from speccompile.recipe.training import plan_training

    try:
        return (None if recipe.train is None else plan_training(recipe)), None
    except SpeccompileError as error:
        return None, error


def _show_training_alone(recipe: "Recipe", training: "TrainingPlan", *, as_json: bool) -> None:
    notes = [*training.notes, f"what build would do is planned when the drafter is there: {training.output} is not yet"]
    if as_json:
        click.echo(json.dumps({"training": training.to_json(), "notes": notes}, indent=2, ensure_ascii=False))
        return
    head = [_row(recipe, "name", recipe.name), *_model_rows(recipe, "target", training.target)]
    _show([*head, *training_rows(recipe, training)], notes)


def _show(rows: list[Row], notes: list[str]) -> None:
    """Print aligned lines (key, value, source of the decision), then the notes."""
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"{key:{widths[0]}}  {value:{widths[1]}}  {source}" for key, value, source in rows]
    click.echo("\n".join([*lines, *(f"note: {note}" for note in notes)]))


def _context(plan: "Plan", cache_gb: float) -> dict[str, int | None]:
    """Return what JSON says of the caches."""
    from speccompile.bundle.caches import GIGABYTE, describe_context
    from speccompile.recipe.cache_sizes import cache_size, plan_token_bytes

    memory = cache_gb * GIGABYTE
    return describe_context(plan_token_bytes(plan), memory, cache_size(plan).longest(memory))


def _rows(
    plan: "Plan", recipe: "Recipe", needs: "ResourceEstimate", room: "AvailableResources", cache_gb: float
) -> list[Row]:
    decided: list[tuple[str, object]] = [
        ("decoding", _decoding(plan, recipe)),
        ("graphs", plan.graphs),
        ("verify.method", f"{plan.verify.method}{'' if plan.verify.exact else ' (not exact)'}"),
        *((f"verify.{name}", value) for name, value in plan.verify.parameters.items()),
        ("constraints", str(plan.constraints).lower()),
        ("cache.max_length", plan.max_length),
        ("cache.batch_size", plan.batch_size),
        ("cache.prefill_chunk", plan.prefill_chunk),
        *([("prefixes", ", ".join(prefix.name for prefix in plan.prefixes))] if plan.prefixes else []),
    ]
    proof: list[tuple[str, object]] = [
        ("prove.prompts", plan.prove.reference or "(the build's own)"),
        ("prove.held_out", plan.prove.held_out_reference or ("(the prompts)" if plan.prove.prompts else "(none)")),
        ("prove.max_new_tokens", plan.prove.max_new_tokens),
    ]
    return [
        _row(recipe, "name", plan.name),
        *_model_rows(recipe, "target", plan.target),
        *_drafter_rows(recipe, plan),
        *(_row(recipe, key, value) for key, value in decided),
        *_adapter_rows(recipe, plan),
        *([] if plan.images is None else [_row(recipe, "target.images", plan.images.describe())]),
        *_cache_rows(recipe, plan, cache_gb),
        *(_row(recipe, key, value) for key, value in proof),
        *_engine_rows(recipe, plan),
        *_needs_rows(needs, room),
    ]


def _cache_rows(recipe: "Recipe", plan: "Plan", cache_gb: float) -> list[Row]:
    """Return the rows of stored keys and values: their dtypes, and the bytes of a token in all layers."""
    from speccompile.bundle.caches import GIGABYTE, format_max_tokens
    from speccompile.contract import FLOAT_CACHE, INT4_VALUES
    from speccompile.plan.caches import FULL
    from speccompile.recipe.cache_sizes import cache_size, ring_rows, token_bytes

    caches, rows = plan.caches, list[Row]()
    for key, dtype, models in (
        ("cache.dtype", caches.target, (plan.target,)), ("drafter_cache.dtype", caches.drafter, plan.drafter.models)
    ):  # fmt: skip
        if models:
            size = sum(token_bytes(model, dtype) for model in models)
            section = key.partition(".")[0]
            words = {f"{section}.key": "int8", f"{section}.value": "int4"} if dtype == INT4_VALUES else {key: dtype}
            rows += [_row(recipe, *each) for each in words.items()]
            rows += [("  a token", f"{size / 1e3:.2f} KB", "checkpoint")]
    if caches.target != FLOAT_CACHE:
        rows.append(_row(recipe, "cache.max_divergence", f"{caches.max_divergence:g}"))
    if {caches.target, caches.drafter} != {FLOAT_CACHE}:
        rows.append(_row(recipe, "cache.max_acceptance_loss", f"{caches.max_acceptance_loss:g}"))
    whole = cache_size(plan)
    if whole.source:
        rows.append(("  a source", f"{whole.source / 1e6:.2f} MB", "checkpoint"))
    if caches.sliding != FULL:
        sizes = sorted(Counter(ring_rows(plan)).items())
        rings = ", ".join(f"{count} layer{'s' * (count > 1)} of {size} rows" for size, count in sizes)
        rows += [_row(recipe, "cache.sliding", caches.sliding), ("  rings", rings, "checkpoint")]
        rows.append(("  a token beyond them", f"{whole.token / 1e3:.2f} KB", "checkpoint"))
    return [*rows, (f"  {cache_gb:g} GB holds", format_max_tokens(whole.longest(cache_gb * GIGABYTE)), "estimate")]


def _adapter_rows(recipe: "Recipe", plan: "Plan") -> list[Row]:
    """Return the row of slots for adapters, with the memory that they take; none without slots."""
    from speccompile.recipe.resource_estimate import adapter_bytes
    from speccompile.recipe.resources import gigabytes

    slots = plan.adapters
    return [] if slots is None else [_row(recipe, "adapters", f"{slots.describe()}, {gigabytes(adapter_bytes(plan))}")]


def _decoding(plan: "Plan", recipe: "Recipe") -> str:
    """Describe the decoding; why it is greedy, if the recipe does not say."""
    from speccompile.recipe.decide import SAMPLING, sampling_cost

    if recipe.decoding is not None or plan.decoding == SAMPLING:
        return plan.decoding
    if any(engine.provider != "cpu" for engine in plan.engines):
        return f"{plan.decoding} ({SAMPLING} as well: not measured on GPUs)"
    cost = max(sampling_cost(plan.target, engine) for engine in plan.engines)
    return f"{plan.decoding} ({SAMPLING} as well: rounds about {cost:.0%} longer)"


def _needs_rows(needs: "ResourceEstimate", room: "AvailableResources") -> list[Row]:
    from speccompile.recipe.resources import gigabytes

    disk = f"{gigabytes(needs.disk)}, {gigabytes(room.disk)} free in {room.folder}"
    memory = f"{gigabytes(needs.memory)} of {gigabytes(room.memory)}"
    return [("needs.disk", disk, "estimate"), ("needs.memory", memory, "estimate")]


def _row(recipe: "Recipe", key: str, value: object) -> Row:
    return key, str(value), recipe.source_of(key)


def _model_rows(recipe: "Recipe", section: str, model: "ModelPlan") -> list[Row]:
    facts = model.facts
    rows = [_row(recipe, f"{section}.model", model.reference)]
    key, word, source = _row(recipe, f"precision.{section.partition('.')[0]}", model.precision)
    rows.append((key, word, _source(source, word, model)))
    if model.commit:
        rows += [_row(recipe, f"{section}.revision", model.revision or "main"), ("  commit", model.commit, "Hub")]
    found = {
        "folder": model.folder,
        "architecture": facts.architecture,
        "vocabulary": facts.vocabulary_size,
        "positions": facts.positions or "unlimited",
        "layers": facts.layers or "unknown",
        "end tokens": ", ".join(map(str, facts.eos_token_ids)) or "none",
        "weights": f"{facts.weight_bytes / 1e6:.1f} MB",
        "tokenizer": "tokenizer.json" if facts.tokenizer else "none",
    }
    if facts.quantization:
        becomes = "as stored" if model.precision == "stored" else f"dequantized, then {model.precision}"
        found["quantized"] = facts.quantization + (f"; {becomes}" if facts.has_codes else "")
    return rows + [(f"  {name}", str(value), "checkpoint") for name, value in found.items()]


def _drafter_rows(recipe: "Recipe", plan: "Plan") -> list[Row]:
    drafter = plan.drafter
    key, kind, source = _row(recipe, "drafter.kind", drafter.kind)
    written = recipe.drafter.kind if recipe.drafter else None
    by_folder = recipe.drafter is not None and recipe.drafter.model is not None and written != kind
    rows = [(key, kind, "folder" if by_folder else source)]
    for index, model in enumerate(drafter.models):
        rows += _model_rows(recipe, f"drafter.models.{index}" if len(drafter.models) > 1 else "drafter", model)
    if drafter.head:
        rows.append(_row(recipe, "drafter.model", drafter.head.reference))
        rows += [(name, value, "folder") for name, value in found_rows(drafter.head)]
    if drafter.mask_token is not None:
        rows.append(("  mask token", str(drafter.mask_token), "checkpoint"))
    found = {name: getattr(drafter, name) for name in ("tokenizer", "threshold", "layers")}
    rows += [_row(recipe, f"drafter.{name}", value) for name, value in found.items() if value is not None]
    if drafter.tokens:
        rows += _tree_rows(recipe, plan)
    if drafter.retrieval and drafter.retrieval.asked and not drafter.cascade:
        fewest, most, occurrences = drafter.retrieval.asked
        rows.append(_row(recipe, "drafter.index", drafter.retrieval.reference))
        rows.append(_row(recipe, "drafter.match", f"{fewest} to {most} tokens"))
        rows.append(_row(recipe, "drafter.occurrences", occurrences))
    if drafter.ngram:
        rows.append(_row(recipe, "drafter.ngram", drafter.ngram))
    if drafter.suffix:
        parts = asdict(drafter.suffix).items()
        shown = {name: str(value).lower() if isinstance(value, bool) else value for name, value in parts}
        rows += [_row(recipe, f"drafter.{name}", value) for name, value in shown.items()]
    rows += [_row(recipe, f"drafter.{name}", value) for name, value in drafter.options.items()]
    return rows + _cascade_rows(recipe, drafter)


def _cascade_rows(recipe: "Recipe", drafter: "DrafterPlan") -> list[Row]:
    """Return the rows of a cascade's lookups (before, after and instead of the drafter), and of all drafts together."""
    cascade, keys = drafter.cascade, ("kind", "tokens", "ngram")
    rows = (
        [(f"drafter.drafter.{key}", getattr(drafter.inner, key)) for key in (*keys, "passes", "lenience")]
        if drafter.inner
        else []
    )
    if cascade and cascade.then:
        rows += [(f"drafter.then.{key}", getattr(cascade.then, key)) for key in keys]
    if cascade and cascade.gate:
        rows += [(f"drafter.gate.{key}", getattr(cascade.gate, key)) for key in (*keys, "match")]
        rows += [("drafter.gate.index", drafter.retrieval.reference)] if drafter.retrieval else []
    found = [_row(recipe, key, value) for key, value in rows]
    return [*found, ("  drafts of a round", f"at most {drafter.tokens}", "drafter")] if cascade else found


def _tree_rows(recipe: "Recipe", plan: "Plan") -> list[Row]:
    drafter = plan.drafter.own
    tree = drafter.tree
    key, value, source = _row(recipe, "drafter.tokens", drafter.tokens)
    if len(drafter.models) > 1:
        value += f" ({len(drafter.models)} models)"
    shape = [tree.kind, *([f"top_k {tree.top_k}"] if tree.top_k else []), f"depth {tree.depth}"]
    by_tree = recipe.source_of("drafter.tree")
    return [
        (key, value, by_tree if source == "default" else source),
        ("drafter.tree", ", ".join(shape), by_tree),
        _row(recipe, "drafter.sample", "true" if drafter.sample else "false"),
    ]


def _engine_rows(recipe: "Recipe", plan: "Plan") -> list[Row]:
    rows, models = [], {"target": plan.target} | dict.fromkeys(["drafter"], next(iter(plan.drafter.models), None))
    for engine in plan.engines:
        decided = {"name": engine.name, "backend": engine.backend, "provider": engine.provider}
        decided |= {"compute_capability": engine.compute_capability} if engine.compute_capability else {}
        decided |= {"defer": "true"} if engine.defer else {}
        rows += [_row(recipe, f"engines.{engine.entry}.{key}", value) for key, value in decided.items()]
        words = engine.precision.words().items()
        rows += [_precision_row(recipe, engine, part, word, models.get(part)) for part, word in words]
    return rows


def _source(source: str, word: str, model: "ModelPlan | None") -> str:
    """Return the source of a precision: the checkpoint if the recipe is silent and the weights keep their values."""
    from speccompile.recipe.stored_precision import stored_precision

    is_stored = model is not None and stored_precision(model.facts, ()).target == word
    return "checkpoint" if source == "default" and is_stored else source


def _precision_row(recipe: "Recipe", engine: "EnginePlan", part: str, word: str, model: "ModelPlan | None") -> Row:
    """Return the row of a precision. Its source is the engine's key, or else the key for all engines."""
    key = f"engines.{engine.entry}.precision.{part}"
    size = engine.precision.block_size_of(word)
    block = f", {size} weights a scale" if size else ""
    source = recipe.source_of(key)
    source = recipe.source_of(f"precision.{part}") if source == "default" else source
    return key, f"{word}{block}", _source(source, word, model)
