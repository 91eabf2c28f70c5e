"""`speccompile plan`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from speccompile.cli.heads import found_rows

if TYPE_CHECKING:
    from speccompile.recipe import EnginePlan, ModelPlan, Plan, Recipe
    from speccompile.recipe.needs import Needs
    from speccompile.recipe.room import Room

Row = tuple[str, str, str]


@click.command(epilog="Example: speccompile plan recipes/demo --set drafter.tokens=6")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a key, as in drafter.tokens=6.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def command(recipe: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show what build would do with RECIPE: every default decided, every check before the work made.

    RECIPE is a recipe.yaml or the folder that holds one.

    \b
    The JSON object has the plan's own keys, and
      needs    an estimate in bytes: disk (bundle, and temporary files until
               it is done), memory (what a process holds of its own), mapped,
               reserved and address_space (these two and memory)
      room     what there is for it here: disk, free in folder, where
               build/<name> would be; memory, the lowest limit
      lacking  [text]: of what there is less than needed; build refuses
               where it is less than nine tenths
    """
    from speccompile.recipe import load_recipe, make_plan
    from speccompile.recipe.needs import needs_of
    from speccompile.recipe.room import find_room, shortages

    written = load_recipe(recipe, overrides)
    plan = make_plan(written)
    needs, room = needs_of(plan), find_room(Path("build") / plan.name)
    lacking = [str(error) for error in shortages(needs, room)]
    if as_json:
        found = {"folder": str(room.folder), "disk": room.disk, "memory": room.memory}
        data = plan.to_json() | {"needs": needs.to_json(), "room": found, "lacking": lacking}
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    lines = [*_table(plan, written, needs, room), *(f"note: {note}" for note in (*plan.notes, *lacking))]
    click.echo("\n".join(lines))


def _table(plan: "Plan", recipe: "Recipe", needs: "Needs", room: "Room") -> list[str]:
    """Lines: key, value and who decided it, in columns."""
    decided: list[tuple[str, object]] = [
        ("decoding", plan.decoding),
        ("graphs", plan.graphs),
        ("verify.method", f"{plan.verify.method}{'' if plan.verify.exact else ' (not exact)'}"),
        *((f"verify.{name}", value) for name, value in plan.verify.parameters.items()),
        ("cache.max_length", plan.max_length),
        ("cache.batch_size", plan.batch_size),
        ("cache.prefill_chunk", plan.prefill_chunk),
        ("prove.prompts", plan.prove.reference or "(the build's own)"),
        ("prove.held_out", plan.prove.held_out_reference or ("(the prompts)" if plan.prove.prompts else "(none)")),
        ("prove.max_new_tokens", plan.prove.max_new_tokens),
    ]
    rows: list[Row] = [
        _row(recipe, "name", plan.name),
        *_model_rows(recipe, "target", plan.target),
        *_drafter_rows(recipe, plan),
        *(_row(recipe, key, value) for key, value in decided),
        *_engine_rows(recipe, plan),
        *_needs_rows(needs, room),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [f"{key:{widths[0]}}  {value:{widths[1]}}  {source}" for key, value, source in rows]


def _needs_rows(needs: "Needs", room: "Room") -> list[Row]:
    from speccompile.recipe.room import gigabytes

    disk = f"{gigabytes(needs.disk)}, {gigabytes(room.disk)} free in {room.folder}"
    memory = f"{gigabytes(needs.memory)} of {gigabytes(room.memory)}"
    return [("needs.disk", disk, "estimate"), ("needs.memory", memory, "estimate")]


def _row(recipe: "Recipe", key: str, value: object) -> Row:
    return key, str(value), recipe.source(key)


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
    found |= {"quantized": facts.quantization} if facts.quantization else {}
    return rows + [(f"  {name}", str(value), "checkpoint") for name, value in found.items()]


def _drafter_rows(recipe: "Recipe", plan: "Plan") -> list[Row]:
    drafter = plan.drafter
    key, kind, source = _row(recipe, "drafter.kind", drafter.kind)
    written = recipe.drafter.kind if recipe.drafter else None
    rows = [(key, kind, source if written == kind or not drafter.tokens else "folder")]
    for index, model in enumerate(drafter.models):
        rows += _model_rows(recipe, f"drafter.models.{index}" if drafter.kind == "models" else "drafter", model)
    if drafter.head:
        rows.append(_row(recipe, "drafter.model", drafter.head.reference))
        rows += [(name, value, "folder") for name, value in found_rows(drafter.head)]
    if drafter.mask_token is not None:
        rows.append(("  mask token", str(drafter.mask_token), "checkpoint"))
    if drafter.threshold is not None:
        rows.append(_row(recipe, "drafter.threshold", drafter.threshold))
    if drafter.layers:
        rows.append(_row(recipe, "drafter.layers", ", ".join(map(str, drafter.layers))))
    if drafter.tokens:
        rows += _tree_rows(recipe, plan)
    if drafter.ngram:
        rows.append(_row(recipe, "drafter.ngram", drafter.ngram))
    return rows


def _tree_rows(recipe: "Recipe", plan: "Plan") -> list[Row]:
    drafter, tree = plan.drafter, plan.drafter.tree
    key, value, source = _row(recipe, "drafter.tokens", drafter.tokens)
    if len(drafter.models) > 1:
        value += f" ({len(drafter.models)} models)"
    shape = [tree.kind, *([f"top_k {tree.top_k}"] if tree.top_k else []), f"depth {tree.depth}"]
    by_tree = recipe.source("drafter.tree")
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
    """Who decided a precision: the checkpoint where the recipe does not say and that one is held as it is."""
    holds = word == "int4" and model is not None and model.facts.groups_of_4_bits is not None
    return "checkpoint" if source == "default" and holds else source


def _precision_row(recipe: "Recipe", engine: "EnginePlan", part: str, word: str, model: "ModelPlan | None") -> Row:
    """The engine's own precision, or the one for all engines, whoever decided it."""
    key = f"engines.{engine.entry}.precision.{part}"
    block = f", {engine.precision.block_size} weights a scale" if word == "int4" else ""
    source = recipe.source(key)
    source = recipe.source(f"precision.{part}") if source == "default" else source
    return key, f"{word}{block}", _source(source, word, model)
