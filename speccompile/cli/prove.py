"""`speccompile prove`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speccompile.cli.options import NEW_TOKENS, THREADS

if TYPE_CHECKING:
    from speccompile.bundle.manifest import EngineEntry
    from speccompile.compiler.prove.filters import Reference
    from speccompile.compiler.prove.tokens import Case
    from speccompile.runtime import Bundle


@click.command(
    epilog="Examples: speccompile prove build/demo --prompts other.jsonl, or against transformers as well: "
    "speccompile prove build/demo --target recipes/demo/target"
)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--prompts", type=click.Path(path_type=Path), help="Prompts file, one JSON object a line.")
@click.option("--target", type=click.Path(path_type=Path), help="The target's folder: compare with transformers too.")
@click.option("-n", "--max-new-tokens", default=64, show_default=True, help="For each prompt.", **NEW_TOKENS)
@click.option("--samples", type=click.IntRange(min=100), help="Draws for each test of a distribution; by default fewer "
              "the larger the target is, from 2000 down to 100.")  # fmt: skip
@click.option("--engine", help="Engine of the bundle; by default the first that can run here.")
@click.option("--threads", **THREADS)
@click.option("--json", "as_json", is_flag=True, help="Print the proof as one JSON object.")
def command(
    bundle: Path, prompts: Path | None, target: Path | None, max_new_tokens: int, samples: int | None,
    engine: str | None, threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Prove BUNDLE again: speculative decoding gives the tokens of autoregressive decoding, on these prompts.

    Without --prompts random tokens are used. For a target with an encoder the prompts are its sources. A prompts line
    is {"prompt": "text"} or {"token_ids": [1, 2, 3]}. Of a bundle that samples, the tokens that it draws are proven
    too: chi-square against the target's probabilities, as its engine computes them or, with --target, as transformers
    does; and where drafts are certain, equal seeds must give equal tokens both ways.

    Speculation by an approximate method may give other tokens: they are counted, and those of autoregressive decoding
    are what must be transformers'.

    Exit code 3 means that something differs: the message names the prompt, the position, both tokens and the margin, or
    the settings, the p-value and the token that was drawn too often or too rarely.

    The JSON object: engine, prompts, new_tokens, rounds, mean_accepted, equal, near_ties, and with --target
    transformers (prompts, equal, near_ties). Of a bundle that samples also distributions, a list of objects (drafter,
    tree, sample, settings, token, samples, statistic, degrees, p_value, outside, accepted, against, exact), and where
    drafts are certain, seeds (settings, prompts, new_tokens, rounds, mean_accepted, equal, near_ties).
    """
    from speccompile.bundle.prompts import read_prompts
    from speccompile.compiler.prove import seeds, tokens
    from speccompile.progress import log_step
    from speccompile.runtime import Bundle

    texts = read_prompts(prompts) if prompts else None
    opened = Bundle.open(bundle, engine=engine, threads=threads)
    manifest = opened.manifest
    given, sources = tokens.given_prompts(opened, texts)
    with log_step("proving speculative against autoregressive"):
        cases = list(tokens.decode_both(opened, given, max_new_tokens, sources))
        ties = [tie for case in cases if (tie := tokens.check_equal(opened, case))]
    proof: dict[str, Any] = {"engine": opened.engine_name, **tokens.summary(cases, ties)}
    if seeds.applies(opened):
        with log_step("proving that equal seeds give equal tokens"):
            proof["seeds"] = seeds.check(opened, given, max_new_tokens, sources)
    if target is not None:
        proof["transformers"] = _against(target, cases, manifest.max_length, opened.entry)
    if manifest.decoding == "sampling":
        proof["distributions"] = _distributions(opened, cases[0], samples, target)
    click.echo(json.dumps(proof, indent=2) if as_json else _text(proof))


def _against(target: Path, cases: list[Any], max_length: int, entry: "EngineEntry") -> dict[str, Any]:
    from speccompile.bundle.caches import cache_dtype
    from speccompile.compiler.models.eager import round_caches
    from speccompile.compiler.models.load import load_model, quiet_transformers
    from speccompile.compiler.prove.reference import check_cases, judging_precision
    from speccompile.contract import COMPONENTS
    from speccompile.progress import log_step

    quiet_transformers()
    with log_step("proving against transformers"):
        model = round_caches(load_model(target, max_length), cache_dtype(entry.graphs, COMPONENTS[0]))
        return check_cases(model, cases, judging_precision(model, entry))


def _distributions(bundle: "Bundle", case: "Case", samples: int | None, target: Path | None) -> list[dict[str, Any]]:
    from speccompile.compiler.prove.distribution import SETTINGS, Request, check, draw_all, make_prompt, sample_count
    from speccompile.progress import log_step

    count = samples or sample_count(bundle.manifest.plan["target"]["facts"]["weight_bytes"])
    with log_step(f"proving distributions: {count} samples at {len(SETTINGS)} settings"):
        prompt = make_prompt(bundle, case.prompt_ids, case.source)
        drawn = draw_all(bundle, prompt, Request(SETTINGS, count), source=case.source)
        return check(bundle.manifest, drawn, _reference(bundle, target, case.source))


def _reference(bundle: "Bundle", target: Path | None, source: list[int] | None) -> "Reference":
    """Return transformers as reference if its folder is given and the engine is float32; else the engine itself."""
    from speccompile.compiler.prove.tokens import engine_reference

    if target is None or bundle.entry.precision["target"] != "float32":
        return engine_reference(bundle, source)
    from speccompile.bundle.caches import cache_dtype
    from speccompile.compiler.models.eager import round_caches
    from speccompile.compiler.models.load import load_model
    from speccompile.compiler.models.sourced import read_source
    from speccompile.compiler.prove.processors import eager_reference
    from speccompile.contract import COMPONENTS

    model = load_model(target, bundle.manifest.max_length)
    read_source(model, source)
    return eager_reference(round_caches(model, cache_dtype(bundle.entry.graphs, COMPONENTS[0])))


def _text(proof: dict[str, Any]) -> str:
    lines = [
        f"engine          {proof['engine']}",
        f"equal           {proof['equal']} of {proof['prompts']} prompts, {proof['new_tokens']} new tokens",
        f"rounds          {proof['rounds']}, mean accepted {proof['mean_accepted']}",
    ]
    if "transformers" in proof:
        against = proof["transformers"]
        same = "{equal} of {prompts} prompts" if "equal" in against else "{same_tokens} of {tokens} tokens"
        lines.append(f"transformers    {same.format(**against)}")
    if "seeds" in proof:
        lines.append(f"equal seeds     {proof['seeds']['equal']} of {proof['seeds']['prompts']} prompts")
    lines += [f"distribution    {_row(row)}" for row in proof.get("distributions", ())]
    ties = [*proof["near_ties"], *proof.get("seeds", {"near_ties": ()})["near_ties"]]
    return "\n".join([*lines, *(f"near-tie        {tie}" for tie in ties)])


def _row(row: dict[str, Any]) -> str:
    settings = ", ".join(f"{name} {value:g}" for name, value in row["settings"].items())
    rule = "" if row["exact"] else "; the rule is approximate"
    return f"{settings}: {row['token']}, {row['samples']} samples, p-value {row['p_value']:.3g}{rule}"
