#!/usr/bin/env python3
"""speccompile: a target without a drafter. A bundle that has a drafter is measured speculatively as well."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import LONGEST, Form, Generated, Pair, Peer, main, with_positions

CACHES: dict[str, dict[str, Any]] = {
    "float32": {},
    "int8": {"dtype": "int8"},
    "int8/int4": {"key": "int8", "value": "int4"},
}
FORMS = {
    "float32": Form("fp32", "float32"),
    "bfloat16": Form("bf16", "bfloat16"),
    "int8": Form("8-bit", "int8"),
    "int4": Form("4-bit", "int4"),
    "int4, block 64": Form("4-bit", "int4-64"),
    "int4, block 128": Form("4-bit", "int4-128"),
    "stored": Form("gguf", "stored"),
    **{
        f"int4, {name} caches": Form("long", f"int4-{name.replace('/', '-')}", {"max_length": LONGEST, **caches})
        for name, caches in CACHES.items()
    },
}
WIDTHS, COST_REPEATS = (1, 5), 25


def prepare(model: Path, folder: Path, form: Form, drafter: dict[str, Any] | None = None) -> None:
    import yaml

    from speccompile.compiler.build import build
    from speccompile.recipe import load_recipe, make_plan

    recipe: dict[str, Any] = {
        "name": model.stem,
        "target": {"model": str(model.resolve())},
        "drafter": drafter or {"kind": "none"},
        "cache": {"max_length": 512} | form.conversion,
        "precision": _precision(form.weights),
    }
    with TemporaryDirectory() as scratch:
        if "max_length" in form.conversion:
            recipe["target"]["model"] = str(with_positions(model.resolve(), Path(scratch) / model.name, LONGEST))
        path = Path(scratch) / "recipe.yaml"
        path.write_text(yaml.safe_dump(recipe))
        build(make_plan(load_recipe(path)), folder, prove=False)


def prepare_pair(model: Path, drafter: Path, folder: Path, form: Form, drafts: int) -> None:
    prepare(model, folder, form, {"kind": "model", "model": str(drafter.resolve()), "tokens": drafts})


def _precision(words: str) -> dict[str, Any]:
    word, _, block = words.partition("-")
    return {"target": word} | ({"block_size": int(block)} if block.isdigit() else {})


class Session:
    """drafts: whether a pair's drafter is used, with the fixed draft length that its peers have."""

    def __init__(self, folder: Path, form: Form, threads: int, drafts: int = 0) -> None:
        from speccompile.runtime import Bundle

        self.bundle, self._drafts = Bundle.open(folder, threads=threads), drafts

    def generate(self, prompt: list[int], new_tokens: int) -> Generated:
        how = {"adaptive": False} if self._drafts else {"autoregressive": True}
        made = self.bundle.generate(prompt, max_new_tokens=new_tokens, **how)
        return Generated(made.token_ids, made.prefill_seconds, made.seconds, made.rounds if self._drafts else None)


def more(session: Session, prompt: list[int], token_ids: list[int]) -> dict[str, Any]:
    """Return milliseconds of `verify` by the width of its window, halfway through the new tokens; and speculation."""
    from speccompile.measure.bench.costs import measure_costs

    context = len(prompt) + len(token_ids) // 2
    costs = measure_costs(session.bundle, WIDTHS, context=context, repeats=COST_REPEATS)
    told: dict[str, Any] = {"verify_milliseconds": {width: 1e3 * costs.verify[width] for width in WIDTHS}}
    if session.bundle.speculative:
        made = session.bundle.generate(prompt, max_new_tokens=len(token_ids))
        told["speculative"] = {
            "tokens_per_second": (len(made.token_ids) - 1) / (made.seconds - made.prefill_seconds),
            "mean_accepted": made.acceptance_length,
            "same_tokens": made.token_ids == token_ids,
        }
    return told


if __name__ == "__main__":
    main(Peer("speccompile", FORMS, prepare, Session, more, Pair(prepare_pair, Session)))
