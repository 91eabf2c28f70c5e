"""`speccompile prove`."""

import json
from pathlib import Path
from typing import Any

import click


@click.command(
    epilog="Examples: speccompile prove build/demo --prompts other.jsonl, or against transformers as well: "
    "speccompile prove build/demo --target recipes/demo/target"
)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--prompts", type=click.Path(path_type=Path), help="Prompts file, one JSON object a line.")
@click.option("--target", type=click.Path(path_type=Path), help="The target's folder: compare with transformers too.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=64, show_default=True, help="For each prompt.")
@click.option("--engine", help="Engine of the bundle; by default the first that can run here.")
@click.option("--json", "as_json", is_flag=True, help="Print the proof as one JSON object.")
def command(
    bundle: Path, prompts: Path | None, target: Path | None, max_new_tokens: int, engine: str | None, as_json: bool
) -> None:
    """Prove BUNDLE again: speculative decoding gives the tokens of autoregressive decoding, on these prompts.

    Without --prompts random tokens are used. A prompts line is {"prompt": "text"} or {"token_ids": [1, 2, 3]}.
    Exit code 3 means that the tokens differ: the message names the prompt, the position, both tokens and the margin.
    The JSON object: engine, prompts, new_tokens, rounds, mean_accepted, equal, near_ties, and with --target
    transformers (prompts, equal, near_ties).
    """
    from speccompile.bundle.prompts import read_prompts
    from speccompile.progress import step
    from speccompile.prove import tokens
    from speccompile.runtime import Bundle

    texts = read_prompts(prompts) if prompts else None
    opened = Bundle.open(bundle, engine=engine)
    manifest = opened.manifest
    own = tokens.own_prompts(manifest.vocabulary_size, manifest.max_length, manifest.prefill_chunk, seed=1)
    with step("proving speculative against autoregressive"):
        cases = list(tokens.run(opened, texts or own, max_new_tokens))
        ties = [tie for case in cases if (tie := tokens.check_equal(opened, case))]
    proof: dict[str, Any] = {"engine": opened.engine_name, **tokens.summary(cases, ties)}
    if target is not None:
        proof["transformers"] = _against(target, cases, manifest.max_length, opened.entry.precision["target"])
    click.echo(json.dumps(proof, indent=2) if as_json else _text(proof))


def _against(target: Path, cases: list[Any], max_length: int, precision: str) -> dict[str, Any]:
    from speccompile.models.load import load_model, quiet_transformers
    from speccompile.progress import step
    from speccompile.prove.reference import check_cases

    quiet_transformers()
    with step("proving against transformers"):
        return check_cases(load_model(target, max_length), cases, precision)


def _text(proof: dict[str, Any]) -> str:
    lines = [
        f"engine          {proof['engine']}",
        f"equal           {proof['equal']} of {proof['prompts']} prompts, {proof['new_tokens']} new tokens",
        f"rounds          {proof['rounds']}, mean accepted {proof['mean_accepted']}",
    ]
    if "transformers" in proof:
        against = proof["transformers"]
        lines.append(f"transformers    {against['equal']} of {against['prompts']} prompts")
    return "\n".join([*lines, *(f"near-tie        {tie}" for tie in proof["near_ties"])])
