"""Every architecture of the zoo is compiled right or refused by name; none is compiled wrong.

Right means: the neutral and the lowered graph, fed a text in windows of many widths, give the logits and the committed
caches of transformers eager over the whole text, and the loop gives the tokens of transformers' `generate`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from speccompile.bundle.manifest import EngineEntry
from speccompile.compiler.lower.export import Exported, export_draft, export_verify
from speccompile.compiler.lower.files import engine_file, neutral_file, write_lowered, write_neutral
from speccompile.compiler.lower.lowering_targets import CPU
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.compiler.step.verify import Verify
from speccompile.contract import BATCH, Graph
from speccompile.errors import UnsupportedModelError
from speccompile.runtime.devices.onnxruntime import OnnxRuntimeEngine
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.decode_loop import DecodeLoop
from speccompile.tree import chain
from tests import zoo
from tests.compile.tiny_bundles import noisy
from tests.light.test_zoo import NEEDED
from tests.suite.selection import sweep_but

pytestmark = pytest.mark.builds(9)

TOLERANCE = 5e-5
"""Largest difference from transformers eager in float64, relative to the largest value; most rows measure 1.3e-5."""

NOISE = 4.0
"""Or so many times what transformers' own float32 is away from it. On a Xeon with AMX 2.5e-4 of RecurrentGemma, by
roots of what is left of one, and 4e-5 of Qwen 3.5, by norms of small heads; another processor has other figures."""

WIDTHS = (7, 1, 5, 13, 2, 40, 1, 16, 6)
"""Windows of one text: past every attention window, and past the original positions where they are scaled."""

OWN_CACHES = ("minimax", "recurrent_gemma")
"""Families that keep their states in caches of their own classes, or nowhere: of these the logits are compared."""

DELTA = ("qwen3_5_text",)
"""Families whose states are [H, K, V] in transformers too."""

MAX_LENGTH = {"phi3_longrope": 32}
LONGEST = 120
DRAFTS = 2
FORMS: dict[str, Callable[[Graph], str]] = {"neutral": neutral_file, "lowered": lambda graph: engine_file(graph, "cpu")}
WORKING = zoo.names("works")
REFUSED = [name for name in zoo.names() if name not in WORKING]
FIRST = [name for name in zoo.FIRST if name != "mixtral"]
"""Those experts are a target of test_combinations.py in the sweep, those of GPT-OSS are here."""


@dataclass
class Compiled:
    """One row: its graphs on disk, and models that transformers loaded apart, which nothing of ours has touched."""

    folder: Path
    batch: int
    max_length: int
    graphs: list[Graph]
    target: PreTrainedModel
    drafter: PreTrainedModel | None = None

    @cached_property
    def exact(self) -> PreTrainedModel:
        """Return the target in float64, expert by expert: torch multiplies groups of no such matrices."""
        model = deepcopy(self.target).double()
        model.set_experts_implementation("eager")
        return model

    def engine(self, form: str) -> OnnxRuntimeEngine:
        files = {graph.name: FORMS[form](graph) for graph in self.graphs}
        entry = EngineEntry(form, "onnxruntime", "cpu", files, {"target": "float32"}, tuple(self.graphs))
        return OnnxRuntimeEngine(self.folder, entry, threads=1)


def compile_row(name: str, folder: Path) -> Compiled:
    """Compile a row: needed ones for one sequence, to which a drafter may be added, others for ragged pairs."""
    batch, max_length = 1 if name in NEEDED.split() else 2, MAX_LENGTH.get(name, LONGEST)
    zoo.save(name, folder / "target", tokenizer=False)
    exported = export_verify(Verify(probe(load_model(folder / "target", max_length), shape_of(batch, max_length))))
    write(exported, folder)
    return Compiled(folder, batch, max_length, [exported.graph], reference(folder / "target"))


def add_drafter(row: Compiled, name: str) -> None:
    """Add one that is often right."""
    noisy(name, 0.03).save_pretrained(row.folder / "drafter")
    model = load_model(row.folder / "drafter", row.max_length)
    reader = DecoderReader(probe(model, shape_of(row.batch, row.max_length)))
    exported = export_draft(FixedDrafter(reader, chain(DRAFTS)), row.batch)
    write(exported, row.folder)
    row.graphs.append(exported.graph)
    row.drafter = reference(row.folder / "drafter")


def shape_of(batch: int, max_length: int) -> CacheShape:
    return CacheShape(batch, max_length + max(WIDTHS) + DRAFTS, max_length)


def reference(folder: Path) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return model.eval().requires_grad_(False)


def write(exported: Exported, folder: Path) -> None:
    graph = exported.graph
    neutral = write_neutral(exported.model, graph, folder, f"{graph.name}.weights")
    write_lowered(ir.load(neutral), graph, folder, "cpu", CPU)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compiled]:
    return cache(lambda name: compile_row(name, tmp_path_factory.mktemp(name)))


def random_text(length: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, zoo.VOCABULARY, length).tolist()


def windows(batch: int, max_length: int) -> Iterator[tuple[int, list[int]]]:
    """Yield a width and the tokens of each row in it: all in the first row, sometimes fewer or none in the second."""
    total = 0
    for index, width in enumerate(WIDTHS):
        if total + width <= max_length:
            total += width
            yield width, [width, max(0, width - index % 4)][:batch]


def run_windows(session: ort.InferenceSession, graph: Graph, texts: list[list[int]], fed: list[Any]) -> tuple[Any, ...]:
    """Return logits of every token, row by row, and the caches in the end. Checks the round's own outputs on the
    way."""
    names = [tensor.name for tensor in graph.outputs]
    states = {
        t.name: np.zeros(t.concrete_shape({BATCH: len(texts)}), t.dtype) for t in graph.inputs if t.role == "state"
    }
    length, logits = np.zeros(len(texts), np.int64), [[] for _ in texts]

    def run(width: int, counts: list[int], n_given: np.ndarray, n_rows: int) -> dict[str, np.ndarray]:
        window = np.full((len(texts), width), 3)
        for row, (text, start, n) in enumerate(zip(texts, length, counts, strict=True)):
            window[row, :n] = text[start : start + n]
        given = {"window": window, "n_given": n_given, "n_total": n_given, "length": length}
        return dict(zip(names, session.run(names, given | {"logit_rows": np.arange(n_rows)} | states), strict=True))

    for width, counts in fed:
        n_given = np.array(counts)
        all_rows, last = run(width, counts, np.ones_like(n_given), width), run(width, counts, n_given, 1)
        for row, n in enumerate(counts):
            logits[row].append(all_rows["logits"][row, :n])
            if n:
                np.testing.assert_allclose(last["logits"][row, 0], all_rows["logits"][row, n - 1], rtol=0, atol=1e-4)
                assert last["path"][row, n] == last["logits"][row, 0].argmax()
        assert last["n_path"].tolist() == counts
        states = {name: last[f"{name}.out"] for name in states}
        length = length + n_given
    return [np.concatenate(parts) for parts in logits], states


def assert_close(got: np.ndarray, expected: torch.Tensor, single: torch.Tensor) -> None:
    """Check the distance from what transformers computes in float64, with its own float32 beside."""
    assert got.shape == expected.shape
    distance = float(np.abs(got - expected.numpy()).max())
    assert distance <= max(TOLERANCE * expected.abs().max().item(), NOISE * (expected - single).abs().max().item())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", sweep_but(FIRST, WORKING, zoo.REASON))
def test_windows_give_the_logits_and_caches_of_transformers(
    compiled: Callable[[str], Compiled], name: str, form: str
) -> None:
    row, fed = compiled(name), list(windows(compiled(name).batch, compiled(name).max_length))
    texts = [random_text(sum(counts[index] for _, counts in fed), index) for index in range(row.batch)]
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(row.folder / FORMS[form](row.graphs[0])), options)
    logits, states = run_windows(session, row.graphs[0], texts, fed)
    for index, text in enumerate(texts):
        (expected, kept), (single, kept_single) = (eager(model, text) for model in (row.exact, row.target))
        assert_close(logits[index], expected, single)
        for state, value in kept.items():
            got = states[f"target.{state}"][index]
            if state.startswith(("key", "value")):  # of Llama 4's chunks transformers keeps the latest rows alone
                got = got[:, len(text) - value.shape[1] : len(text)]
            assert_close(got, value, kept_single[state])
        assert kept.keys() == {state.removeprefix("target.") for state in states} or name in OWN_CACHES


def eager(model: PreTrainedModel, text: list[int]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return transformers' logits [n, V], and what its caches hold in the end, by our names and in our layout."""
    if model.config.model_type in OWN_CACHES:
        return model(torch.tensor([text]), use_cache=False).logits[0], {}
    carries = any(kind not in (zoo.FULL, zoo.SLIDING) for kind in getattr(model.config, "layer_types", None) or ["?"])
    # Of one kind for all layers, so that no row is dropped, where none carries a state.
    cache = DynamicCache(config=model.config) if carries and hasattr(model.config, "layer_types") else DynamicCache()
    logits = model(torch.tensor([text]), use_cache=True, cache=cache).logits[0]
    kept: dict[str, torch.Tensor] = {}
    for layer, each in enumerate(cache.layers):
        for index, rows in getattr(each, "conv_states", {}).items():
            kernel = each.conv_kernel_size[index]
            kept[f"conv.{layer}"] = rows[0, :, 1 - kernel :].T[None]
        for state in getattr(each, "recurrent_states", {}).values():
            if state is not None:
                kept[f"state.{layer}"] = state[0] if model.config.model_type in DELTA else turned(state[0])
        if getattr(each, "keys", None) is not None:
            kept |= {f"key.{layer}": each.keys[0], f"value.{layer}": each.values[0]}
    return logits, kept


def turned(state: torch.Tensor) -> torch.Tensor:
    """Return Mamba's [C, K] as heads of one value, Mamba 2's [H, V, K] as [H, K, V]."""
    return state[:, :, None] if state.dim() == 2 else state.transpose(1, 2)


def greedy(model: PreTrainedModel, text: Sequence[int], new_tokens: int) -> list[int]:
    ids = torch.tensor([list(text)])
    output = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new_tokens)
    return output[0, len(text) :].tolist()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", sweep_but(("llama",), NEEDED.split(), zoo.REASON))
def test_loop_gives_the_tokens_and_drafts_of_generate(
    compiled: Callable[[str], Compiled], name: str, form: str
) -> None:
    row, (prompt, new_tokens) = compiled(name), (random_text(21, 9), 20)
    if row.drafter is None:
        add_drafter(row, name)
    engine = row.engine(form)
    sizes = {"batch_size": 1, "prefill_chunk": 16, "tokens": DRAFTS, "depth": DRAFTS, "catch_up": 2}
    manifest = SimpleNamespace(
        graphs=row.graphs, tree="chain", sample=False, exact=True, source=None, rings={}, **sizes
    )
    expected = greedy(row.target, prompt, new_tokens)
    for speculative in (True, False):
        generation = SequenceState(prompt, new_tokens, row.max_length, [], None)
        for _ in DecodeLoop(engine, manifest).generate([generation], speculative):
            if speculative and generation.is_active:
                drafts = greedy(row.drafter, prompt + generation.token_ids, DRAFTS)
                assert engine.host_view("window", (1, DRAFTS + 1))[0].tolist() == [generation.token_ids[-1], *drafts]
        assert generation.token_ids == expected


@pytest.mark.parametrize("name", sweep_but(zoo.FIRST, REFUSED, zoo.REASON))
def test_what_cannot_be_right_is_refused_by_name(name: str, tmp_path: Path) -> None:
    zoo.save(name, tmp_path, tokenizer=False)
    architecture = type(zoo.model(name)).__name__
    with pytest.raises(
        UnsupportedModelError, match=f"^{architecture} cannot be compiled: .*{re.escape(zoo.ROWS[name].expect)}"
    ):
        probe(load_model(tmp_path, LONGEST), CacheShape(1, LONGEST, LONGEST))


@pytest.mark.parametrize("name", sweep_but(("llama",), ["llama", "qwen3_moe"], "a trace"))
def test_tracing_says_nothing(name: str, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder) -> None:
    verify = Verify(probe(zoo.model(name).requires_grad_(False), CacheShape(1, 32, 24)))
    capfd.readouterr()
    export_verify(verify)
    assert capfd.readouterr() == ("", "")
    assert [str(w.message) for w in recwarn if w.category is not DeprecationWarning] == []
