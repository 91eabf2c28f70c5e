"""`speccompile predict`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from speccompile.cli.model_bundle import ModelOptions, model_options
from speccompile.cli.options import THREADS
from speccompile.cli.table_output import print_table
from speccompile.errors import UsageError
from speccompile.progress import LOGGER

if TYPE_CHECKING:
    from speccompile.measure.predict import Costs
    from speccompile.measure.profile import Profile
    from speccompile.plan.plan import Plan


@click.command("predict", epilog="Example: speccompile predict recipes/demo --device apple-m4 --accept 0.8,0.7")
@click.argument("recipe", required=False)
@click.option("--device", metavar="NAME", help="A device of --list-devices, by the vendor's peak figures.")
@click.option(
    "--profile", "file", metavar="FILE", type=click.Path(path_type=Path), help="What `speccompile profile` wrote there."
)
@click.option(
    "--accept", metavar="A", help="Acceptance by depth: 0.8,0.7,.., a file of `bench --json`, or a bundle's folder."
)
@click.option("--threads", **THREADS)
@click.option("--context", metavar="N", type=click.IntRange(min=1), help="Committed tokens; 256 by default.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a key, as in drafter.tokens=6.")
@model_options
@click.option("--list-devices", is_flag=True, help="List the devices, and do nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    recipe: str | None,
    device: str | None,
    file: Path | None,
    accept: str | None,
    threads: int | None,
    context: int | None,
    overrides: tuple[str, ...],
    built_as: ModelOptions,
    list_devices: bool,
    as_json: bool,
) -> None:
    """Predict memory and speed of RECIPE, or of a model, before a build.

    RECIPE is a recipe.yaml, a folder that holds one, or a model as for `speccompile init`. Without --device and
    --profile the figures are for this machine: its profile is measured once, which takes some 15 to 30 seconds, and
    then kept. Every speed is an interval. Without --accept it reaches from no draft accepted to all of them.

    \b
    The JSON object has
      name, device, precision, context
      weight_bytes, drafter_bytes, cache_bytes, running_bytes, device_memory
                    bytes; device_memory is null where it is not known
      ceiling       tokens/s of autoregression by bandwidth alone
      acceptance    by depth, after the drafts before; null without --accept
      shapes        [{name, drafts, depth, round_seconds, limit, break_even,
                    break_even_rate, tokens_per_round, tokens_per_second,
                    speedup, faster}]: pairs are lower and upper bounds; limit
                    is bandwidth, products or overhead; break_even the tokens
                    a round from which drafting pays, the rate that of every
                    draft of a chain; faster is true where all of the interval
                    of the speedup lies above 1, null without --accept
      notes         [text]
    """
    from speccompile.measure.predict import device_rows, predict, read_acceptance, write_devices, write_prediction

    if list_devices:
        rows = device_rows()
        data = {"devices": [row.to_json() for row in rows.values()]}
        print_table(write_devices(rows.values()), data if as_json else None)
        return
    if recipe is None:
        raise UsageError("received no recipe, expected RECIPE or a model", hint="or --list-devices")
    if device is not None and file is not None:
        raise UsageError("received --device and --profile, expected one of them", hint="leave one out")
    acceptance = read_acceptance(accept) if accept is not None else None
    name, memory, costs, notes = _device(device, file, threads)
    plan = _plan(recipe, overrides, built_as)
    if device is None and plan.engines[0].provider != "cpu":
        notes = [*notes, f"the engine {plan.engines[0].name} is not on the processor, whose profile this is"]
    found = predict(
        plan, costs, device=name, memory=memory, acceptance=acceptance, context=context, notes=[*notes, *plan.notes]
    )
    print_table(write_prediction(found), found.to_json() if as_json else None)


def _plan(recipe: str, overrides: tuple[str, ...], built_as: ModelOptions) -> "Plan":
    from speccompile.recipe import load_recipe, make_plan
    from speccompile.recipe.model_recipe import make_model_recipe
    from speccompile.recipe.model_request import is_model

    if is_model(recipe):
        return make_model_recipe(built_as.request(recipe, sampling=False), overrides=overrides).plan
    built_as.refuse_for_recipe(recipe)
    return make_plan(load_recipe(Path(recipe), overrides))


def _device(device: str | None, file: Path | None, threads: int | None) -> "tuple[str, int | None, Costs, list[str]]":
    """Return the device's name, the bytes of its memory, its costs and notes."""
    from speccompile.measure.predict import DataSheetCosts, ProfileCosts, find_device
    from speccompile.measure.profile import has_own_profile, own_profile, read_profile

    if device is not None:
        if threads is not None:
            raise UsageError("received --threads with --device, expected it for a profile", hint="leave it out")
        row = find_device(device)
        memory = round(row.memory * 2**30) if row.memory else None
        said = ["peak figures of a data sheet: bandwidth share 0.6 to 0.9, kernels and nodes not measured"]
        said += [] if row.products else ["products are not counted: the device's peak is not known"]
        return row.title, memory, DataSheetCosts(row), said
    if file is None:
        if not has_own_profile(threads):
            LOGGER.info("this machine has no profile yet: measuring it, some 15 to 30 seconds")
        profile = own_profile(threads)
        return _title(profile), profile.memory_bytes, ProfileCosts(profile), []
    profile = read_profile(file)
    if threads is not None and threads != profile.threads:
        raise UsageError(
            f"--threads: received {threads}, expected the {profile.threads} of the profile {file}",
            hint="make a profile with these threads: speccompile profile --threads N",
        )
    return _title(profile), profile.memory_bytes, ProfileCosts(profile), _foreign(profile)


def _title(profile: "Profile") -> str:
    return f"{profile.processor} ({profile.kernels}, {profile.threads} threads)"


def _foreign(profile: "Profile") -> list[str]:
    """Return a note where a profile is of another processor, or of another code path, than this machine's."""
    from speccompile import native
    from speccompile.machine.system import processor

    here = processor()
    if profile.processor != (here["name"] or here["architecture"]):
        return [f"the profile is of another processor than this machine's: {profile.processor}"]
    if profile.kernels != native.kernels():
        return [f"the profile is of the kernels {profile.kernels}, this machine uses {native.kernels()}"]
    return []
