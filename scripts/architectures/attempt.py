"""One class tried: a tiny random checkpoint, built and proven as any other, then compared with transformers apart.

Proven means that `speccompile build` proved its bundle (the probe, the graphs over windows, tokens against eager), and
that the bundle, opened again, gives the tokens of transformers' own `generate`, drafting from the prompt and alone.
Exact means that windows of every width gave equal bits in every precision, on one thread and on two, and that no
operator is left to ONNX Runtime whose results depend on the window in larger models (`loose_operators`).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from scripts.architectures.configurations import IMPOSSIBLE, configuration
from scripts.architectures.loose_operators import loose_operators
from scripts.architectures.row import PRECISIONS, THREADS, Row
from speccompile.compiler.build import build
from speccompile.compiler.checkpoints.multimodal import TYPES
from speccompile.compiler.models.load import first_line
from speccompile.errors import ProofError, SpeccompileError
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from speccompile.runtime.window_invariance import compare_windows
from tests import zoo

RECIPE = """\
name: tiny
target: {model: target}
drafter: {kind: prompt_lookup, tokens: 9}
cache: {max_length: 96, prefill_chunk: 16, batch_size: 2}
engines:
"""
PROMPT_LENGTHS, REPEATS, CANDIDATES, NEW_TOKENS = (5, 23), 10, 16, 24


def attempt(model_type: str, folder: Path, precisions: Sequence[str] = PRECISIONS, proven: Row | None = None) -> Row:
    """Try one type in a folder that is there and empty. proven: its row, where windows alone are to be compared."""
    if model_type in IMPOSSIBLE:
        return Row(model_type, "", "impossible", IMPOSSIBLE[model_type])
    try:
        family = AutoModelForImageTextToText if model_type in TYPES else AutoModelForCausalLM
        model = zoo.lively(configuration(model_type), family=family)
        model.save_pretrained(folder / "target")
        texts = [] if proven else _texts(model)
    except Exception as error:  # whatever transformers' code raises, there is nothing to compile
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            raise
        return Row(model_type, "", "impossible", f"{type(error).__name__}: {first_line(error)}")
    architecture = type(model).__name__
    (folder / "recipe.yaml").write_text(
        RECIPE + "".join(f"  - {{name: {each}, precision: {{target: {each}}}}}\n" for each in precisions)
    )
    try:
        with patch(
            "speccompile.recipe.decide.refuse_type"
        ):  # what is refused by name may have been mended in transformers
            plan = make_plan(load_recipe(folder))
        build(plan, folder / "bundle", use_build_cache=False, prove=proven is None)
    except ProofError as error:
        return Row(model_type, architecture, "wrong", str(error))
    except SpeccompileError as error:
        return Row(model_type, architecture, "refused", str(error).replace(f"{folder}/", ""))
    with Bundle.open(folder / "bundle", engine=precisions[0], threads=1) as bundle:
        row = proven or _compared(model_type, architecture, bundle, texts)
        engines = bundle.manifest.engines
    if row.status != "proven":
        return row
    loose = {each.name: loose_operators(folder / "bundle" / each.files["verify"]) for each in engines}
    exact = tuple(each for each in precisions if not loose[each] and _is_exact(folder / "bundle", each))
    found = tuple(dict.fromkeys(chain(*loose.values())))
    return replace(row, exact=exact == tuple(precisions), exact_in=exact, loose=found, threads=THREADS)


def _is_exact(bundle: Path, precision: str) -> bool:
    """Return whether windows of every width give equal bits, on one thread and on two."""
    for threads in THREADS:
        with Bundle.open(bundle, engine=precision, threads=threads) as opened:
            # Not `opened.exact`: with the kernels, its result for one thread is cached for two.
            if not (opened.manifest.exact and compare_windows(opened.engine, opened.manifest).exact):
                return False
    return True


Text = tuple[list[int], list[int]]
"""A prompt, and what transformers says behind it."""


def _texts(model: PreTrainedModel) -> list[Text]:
    """Return a prompt of less than a chunk of the prefill, one longer than a chunk and any window, and of several that
    repeat themselves the one whose continuation does so most: drafts from the prompt are right there."""
    random = np.random.default_rng(0)
    prompts = [random.integers(3, zoo.VOCABULARY, (1, length)) for length in PROMPT_LENGTHS]
    prompts.append(np.tile(random.integers(3, zoo.VOCABULARY, (CANDIDATES, 3)), REPEATS))
    *others, repeated = [_continued(model, each) for each in prompts]
    return [text for (text,) in others] + [max(repeated, key=_repeats)]


def _continued(model: PreTrainedModel, prompts: np.ndarray) -> list[Text]:
    """Return what transformers says greedily behind each prompt [N, T], without a cache: of that nothing can be
    wrong."""
    ids = torch.from_numpy(prompts)
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS, use_cache=False
    )
    return [(prompt, text[len(prompt) :]) for prompt, text in zip(prompts.tolist(), output.tolist(), strict=True)]


def _repeats(text: Text) -> int:
    """Return how many new tokens come behind two tokens behind which they came before."""
    prompt, continuation = text
    tokens, seen, hits = prompt + continuation, {}, 0
    for place in range(2, len(tokens)):
        before = tuple(tokens[place - 2 : place])
        hits += place >= len(prompt) and seen.get(before) == tokens[place]
        seen[before] = tokens[place]
    return hits


def _compared(model_type: str, architecture: str, bundle: Bundle, texts: list[Text]) -> Row:
    """Return every text drafted from the prompt, two at once, and alone."""
    prompts, expected = [prompt for prompt, _ in texts], [continuation for _, continuation in texts]
    size, rounds = bundle.manifest.batch_size, 0
    for autoregressive in (False, True):
        found = []
        for start in range(0, len(prompts), size):
            group = prompts[start : start + size]
            found += bundle.generate_batch(
                group, max_new_tokens=NEW_TOKENS, autoregressive=autoregressive, adaptive=False
            )
        for number, (got, wanted) in enumerate(zip(found, expected, strict=True), 1):
            if got.token_ids != wanted:
                how = "alone" if autoregressive else "with drafts"
                reason = f"text {number} {how}: received {got.token_ids}, expected {wanted}"
                return Row(model_type, architecture, "wrong", reason)
        if not autoregressive:
            rounds = sum(each.rounds for each in found)
    new = sum(len(each) - 1 for each in expected)
    return Row(model_type, architecture, "proven", per_round=round(new / rounds, 2))
