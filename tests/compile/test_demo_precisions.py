"""The demo pair in every precision of ONNX Runtime on a CPU: a token's numbers do not depend on the window it rides in,
and what the precision costs on held-out text."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
import yaml
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, PreTrainedModel

from speccompile.bundle import open_bundle
from speccompile.bundle.manifest import TOKENIZER
from speccompile.bundle.prompts import read_prompts
from speccompile.compiler.build import build
from speccompile.compiler.prove import quality
from speccompile.compiler.prove.feeds import make_input
from speccompile.contract import Graph
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.resource_estimate import estimate_resources
from speccompile.runtime import Bundle
from speccompile.runtime.devices.engine import Engine
from speccompile.runtime.devices.onnxruntime import OnnxRuntimeEngine
from speccompile.runtime.devices.prepacked import weights_of
from speccompile.runtime.text.tokenizer import Tokenizer
from speccompile.tree import chain
from tests.native.side_by_side import SideBySide
from tests.suite.selection import sweep_but

pytestmark = pytest.mark.builds(2)

DEMO = Path(__file__).resolve().parents[2] / "recipes/demo"
PRECISIONS = ("float32", "int8", "int4")
WIDTHS = (1, 2, 5, 8, 16, 128)
TOLERANCE = 1e-6
"""Largest difference of logits, of rows of a cache and of probabilities between two windows."""

BATCH, TOKENS, VOCABULARY = 2, 2, 4096
RECIPE = {
    "name": "demo",
    "target": {"model": str(DEMO / "target")},
    "drafter": {"kind": "model", "model": str(DEMO / "drafter"), "tokens": TOKENS},
    "decoding": "sampling",  # shows the probabilities that drafts are drawn from
    "cache": {"max_length": 320, "batch_size": BATCH},
    "engines": [
        {"backend": "onnxruntime", "provider": "cpu", "name": word, "precision": {"target": word, "drafter": word}}
        for word in PRECISIONS
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a bundle with an engine for each precision."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    return build(make_plan(load_recipe(folder)), folder / "bundle", prove=False)


@pytest.mark.parametrize("word", PRECISIONS)
def test_an_engine_takes_what_the_plan_says(folder, word):
    """Compare the estimate before the build with the files after it."""
    plan = make_plan(load_recipe(folder.parent))
    one = replace(plan, engines=tuple(engine for engine in plan.engines if engine.name == word))
    opened = open_bundle(folder)
    (entry,) = (engine for engine in opened.manifest.engines if engine.name == word)
    files = {path for file in entry.files.values() for path in (folder / file, *weights_of(folder / file))}
    size = sum(path.stat().st_size for path in {*files, opened.path(TOKENIZER)})
    assert estimate_resources(one).bundle == pytest.approx(size, rel=0.05)


@pytest.fixture(
    scope="module",
    params=sweep_but(("int8", "int4"), PRECISIONS, "float32 is what all tiny bundles of the first tier have"),
)
def bundle(folder, request) -> Bundle:
    return Bundle.open(folder, engine=request.param, threads=1)


@cache
def texts() -> list[list[int]]:
    """Return Held-out passages."""
    text = Tokenizer(DEMO / "target/tokenizer.json")
    return [text.encode(str(passage)) for passage in read_prompts(DEMO / "held_out.jsonl")]


def test_passages_are_no_longer_than_what_the_models_were_trained_on():
    assert len(texts()) == 16
    assert all(192 <= len(text) <= 256 for text in texts())


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max())


def target_logits(bundle: Bundle, both: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """Return float32 [n, V] after each of the n tokens of the first text, fed in windows of this width."""
    fed = [[*text, 0] for text in both]
    found = dict(quality.engine_logits(bundle.engine, bundle.manifest.graphs[0], fed, width, BATCH))
    return np.concatenate([found[start] for start in sorted(found) if start < len(both[0])])


def next_logits(bundle: Bundle, length: int, window: Sequence[int], n_total: int) -> np.ndarray:
    """Return float32 [V] after a window's first token, behind `length` committed ones; drafts and padding follow it."""
    engine, width = bundle.engine, len(window)
    verify = engine.bind("verify", {"window": width, "logit_rows": width, "history": 1}, ("logits",))
    engine.host_view("window", (BATCH, width))[:] = [window, window[::-1]]
    for name, value in (("n_given", 1), ("n_total", n_total), ("length", length)):
        engine.host_view(name, (BATCH,))[:] = value
    verify()
    return engine.host_view("logits", (BATCH, width, VOCABULARY))[0, 0].copy()


def test_logits_do_not_depend_on_the_width_of_the_window(bundle):
    """Compare windows of several widths, beside a longer text in the other slot."""
    text, other = texts()[0][:140], texts()[1][:180]
    alone = target_logits(bundle, [text], 1)
    changed = target_logits(bundle, [[text[0] + 1, *text[1:]]], 16)
    assert difference(changed[-1], alone[-1]) > 1e-3, "the first token would not be noticed"
    for both, widths in (([text], WIDTHS[1:]), ([text, other], WIDTHS)):
        for width in widths:
            assert difference(target_logits(bundle, both, width), alone) <= TOLERANCE


def test_logits_do_not_depend_on_the_drafts_beside_them(bundle):
    """Compare with other drafts, and with padding."""
    text, random = texts()[2][:140], np.random.default_rng(0)
    alone = target_logits(bundle, [text], 16)
    for length in (len(text) - 1, 3, 0):  # what is committed behind is overwritten
        for width in WIDTHS:
            for n_total in {1, width // 2 + 1, width}:
                window = [text[length], *random.integers(0, VOCABULARY, width - 1).tolist()]
                assert difference(next_logits(bundle, length, window, n_total), alone[length]) <= TOLERANCE


def read(bundle: Bundle, path: Sequence[int], n_path: int, length: int, catch_up: int) -> dict[str, np.ndarray]:
    """Do one run of the drafter over a path in the first row: what it drafts, and from what; what its caches then
    hold."""
    engine, draft, width = bundle.engine, bundle.manifest.graphs[1], len(path) - 1
    widths = {"batch": BATCH, "window": width, "catch_up": catch_up, "history": 1}
    run = engine.bind("draft", widths)
    rows = np.array([path, [0] * (width + 1)])
    values = {"path": rows, "n_path": [n_path, 0], "length": [length, 0]}
    for tensor in draft.inputs:
        if tensor.role in ("io", "link"):
            shape = tensor.concrete_shape(widths)
            made = values.get(tensor.name)
            made = make_input(tensor, shape, 1, rows, chain(TOKENS)) if made is None else made
            engine.host_view(tensor.buffer, shape)[:] = made
    run()
    found = {t.name: engine.host_view(t.buffer, t.concrete_shape(widths))[0].copy() for t in draft.outputs}
    return {name: value[:, : length + n_path] if value.ndim == 3 else value for name, value in found.items()}


def probabilities(found: dict[str, np.ndarray]) -> np.ndarray:
    """Return float32 [TOKENS, V]: what each draft was drawn from."""
    spread = np.zeros((TOKENS, VOCABULARY), np.float32)
    np.put_along_axis(spread, found["next_ids"], found["next_probs"], 1)
    return spread


def check_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], drafts: int) -> None:
    """Compare caches, and what so many of the first drafts were drawn from."""
    got, wanted = (probabilities(each)[:drafts] for each in (found, expected))
    assert difference(got, wanted) <= TOLERANCE
    np.testing.assert_array_equal(found["next_window"][: drafts + 1], expected["next_window"][: drafts + 1])
    for name, value in expected.items():
        assert not name.startswith("drafter.") or difference(found[name], value) <= TOLERANCE


def read_all(bundle: Bundle, text: Sequence[int], width: int) -> dict[str, np.ndarray]:
    """Return a text read in windows of this width up to its last two tokens, then a round of decoding behind them."""
    before = len(text) - 2
    for start in range(0, before, width):
        n_path = min(width, before - start)
        path = [*text[start : start + n_path + 1], *[7] * (width - n_path)]
        read(bundle, path, n_path, start, width + 1)
    return read(bundle, [*text[before:], *[7] * TOKENS], 1, before, 2)


def test_a_drafter_does_not_depend_on_the_widths_in_which_it_read(bundle):
    text = texts()[0][:140]
    alone = read_all(bundle, text, 1)
    changed = probabilities(read_all(bundle, [text[0] + 1, *text[1:]], 1))
    assert difference(changed, probabilities(alone)) > 10 * TOLERANCE, "the first token would not be noticed"
    for width in WIDTHS[1:]:
        check_same(read_all(bundle, text, width), alone, TOKENS)


def test_a_drafter_does_not_depend_on_what_lies_behind_the_path(bundle):
    """Compare drafts with and without rows behind the path, as the shorter prompts of a batch have them. These change
    the order of sums over keys of drafts, so that a number in fewer bits may round otherwise: later drafts may
    differ."""
    text, random = texts()[0][:140], np.random.default_rng(0)
    alone, before = read_all(bundle, text, 1), len(text) - 2
    for width in WIDTHS[1:]:
        junk = random.integers(0, VOCABULARY, width - 1).tolist()
        check_same(read(bundle, [*text[before:], *junk], 1, before, width + 1), alone, 1)


@cache
def target() -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(DEMO / "target", attn_implementation="eager").eval()


def said(engine: Engine, verify: Graph) -> quality.Predictions:
    """Return texts of four passages."""
    some = texts()[:4]
    return quality.predictions(quality.engine_logits(engine, verify, some, 128, BATCH), some, VOCABULARY, "the engine")


@cache
def said_by_transformers() -> quality.Predictions:
    some, blocks, start = texts()[:4], [], 0
    with torch.no_grad():
        for text in some:
            blocks.append((start, target()(torch.tensor([text])).logits[0, :-1].numpy()))
            start += len(text) - 1
    return quality.predictions(blocks, some, VOCABULARY, "transformers")


def test_losses_are_those_of_torch():
    some = texts()[:4]
    with torch.no_grad():
        ids = [torch.tensor([text]) for text in some]
        wanted = [cross_entropy(target()(each).logits[0, :-1], each[0, 1:], reduction="none") for each in ids]
    np.testing.assert_allclose(said_by_transformers().losses, torch.cat(wanted).numpy(), atol=1e-5)


WORST = {"float32": (1e-7, 1e-5, 1.0), "int8": (0.002, 0.01, 0.97), "int4": (0.03, 0.05, 0.9)}
"""Largest KL divergence and relative change of perplexity, and smallest agreement, several times what was measured."""


def test_what_a_precision_costs_the_demo(bundle):
    row = quality.agreement(said(bundle.engine, bundle.manifest.graphs[0]), said_by_transformers())
    divergence, change, same = WORST[bundle.engine_name]
    assert row["kl_divergence"] <= divergence
    assert row["perplexity"] == pytest.approx(said_by_transformers().perplexity, rel=change)
    assert row["same_argmax"] >= same
    assert (row["kl_divergence"] > 0) == (bundle.engine_name != "float32")


@pytest.mark.parametrize("word", ["int8", "int4"])
def test_a_damaged_weight_costs_more(folder, word, tmp_path):
    """Shift the numbers of the largest weight by one output."""
    entry = next(each for each in open_bundle(folder).manifest.engines if each.name == word)
    verify = entry.graphs[0]
    model = ir.load(folder / entry.files["verify"])
    stored = [value.const_value for value in model.graph.initializers.values() if not value.dtype.is_floating_point()]
    largest = max(stored, key=lambda tensor: tensor.nbytes)
    model.graph.initializers[largest.name].const_value = ir.tensor(np.roll(largest.numpy(), 1, 0), name=largest.name)
    ir.save(model, tmp_path / "verify.onnx", external_data="weights")
    damaged = replace(entry, files={"verify": "verify.onnx"}, graphs=(verify,))
    row = quality.agreement(said(OnnxRuntimeEngine(tmp_path, damaged, 1), verify), said_by_transformers())
    assert row["perplexity"] > 1.2 * said_by_transformers().perplexity
    assert row["kl_divergence"] > 3 * WORST[word][0]
    assert row["same_argmax"] < WORST[word][2]


@pytest.mark.sweep("the demo's prompts in two runtimes and every way to decode")
def test_the_runtime_in_c_gives_the_same(folder, bundle, native_library, onnxruntime_library):
    """Texts of the demo, greedy and drawn, in a batch; and what comes when a text ends it."""
    both = SideBySide(folder, native_library, onnxruntime_library, engine=bundle.engine_name)
    passages = [str(passage)[:60] for passage in read_prompts(DEMO / "held_out.jsonl")[:4]]
    for pair in (passages[:2], passages[2:]):
        both.check(pair, max_new_tokens=48, logprobs=True, adaptive=False)
        both.check(pair, max_new_tokens=48)
        both.check(pair, max_new_tokens=48, temperature=[0.9, 1.2], top_p=0.9, seed=[7, 8], autoregressive=True)
        found = both.check(pair, max_new_tokens=48, temperature=0.9, repetition_penalty=1.1, seed=3)
        both.check(pair, max_new_tokens=48, stop=[found[0].text[5:8], found[1].text[9:11]], adaptive=False)
