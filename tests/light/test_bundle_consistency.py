"""A manifest that contradicts itself is refused by name; C++ says the same: tests/native/test_native_bundle.py."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from speccompile.bundle import Manifest
from speccompile.bundle.consistency import check_consistency
from speccompile.bundle.manifest import TensorRTBuild
from speccompile.bundle.media import ENCODE_IMAGE, MEDIA, MEDIA_ROWS
from speccompile.bundle.signatures import ADAPTER_MATRIX, COMPUTED, SIGNATURES
from speccompile.contract import BUFFERS, NEXT_ROUND_INPUTS, Graph, Tensor, with_tensorrt_states
from speccompile.errors import BundleError
from tests.light.fake_bundle import toy_manifest

Change = Callable[[Manifest], Manifest]

KINDS: dict[str, dict[str, Any]] = {
    "chain": {},
    "autoregressive": {"speculative": False},
    "fused": {"fused": True},
    "rows": {"batch_size": 3},
    "static": {"tree": "static", "sampling": True},
    "drawn": {"sampling": True, "sample": True},
    "dynamic": {"tree": "dynamic", "fused": True},
    "features": {"features": True, "pairs": True, "carried": True},
}  # fmt: skip


def field(**changes: Any) -> Change:
    return lambda manifest: replace(manifest, **changes)


def planned(**plan: Any) -> Change:
    return lambda manifest: replace(manifest, plan=manifest.plan | plan)


def edited(graph: str, of: str, /, *, engines: bool = True, **changes: Any) -> Change:
    """Change a tensor, in the engines as well unless told otherwise."""

    def tensor(each: Tensor) -> Tensor:
        wanted = changes if each.name == of else {}
        return replace(each, **wanted)

    def graphs(all_of: tuple[Graph, ...]) -> tuple[Graph, ...]:
        return tuple(
            Graph(each.name, tuple(map(tensor, each.inputs)), tuple(map(tensor, each.outputs)))
            if each.name == graph
            else each
            for each in all_of
        )

    def change(manifest: Manifest) -> Manifest:
        entries = tuple(replace(each, graphs=graphs(each.graphs)) for each in manifest.engines)
        if not engines:
            return replace(manifest, engines=entries)
        return replace(manifest, graphs=graphs(manifest.graphs), engines=entries)

    return change


def without(graph: str, name: str) -> Change:
    def change(manifest: Manifest) -> Manifest:
        def cut(each: Graph) -> Graph:
            kept = (tuple(t for t in tensors if t.name != name) for tensors in (each.inputs, each.outputs))
            return Graph(each.name, *kept) if each.name == graph else each

        entries = tuple(replace(each, graphs=tuple(map(cut, each.graphs))) for each in manifest.engines)
        return replace(manifest, graphs=tuple(map(cut, manifest.graphs)), engines=entries)

    return change


def own_engine(**changes: Any) -> Change:
    return lambda made: replace(made, engines=(replace(made.engines[0], **changes), *made.engines[1:]))


def seeing(*, encodes: bool, where: str = "tensorrt_rtx") -> Change:
    """Let a bundle see pictures with an engine of one backend. encodes: the engine has the encoder."""
    rows = (
        Tensor(MEDIA, "float32", (MEDIA, 8), MEDIA, "io"),
        Tensor(MEDIA_ROWS, "int64", (1, "window"), MEDIA_ROWS, "io"),
    )
    patches = Tensor("pixels", "float32", ("patches", 12), "pixels", "io")
    encoder = Graph(ENCODE_IMAGE, (patches,), (Tensor("rows", "float32", ("rows", 8), "rows", "io"),))

    def change(manifest: Manifest) -> Manifest:
        graphs = tuple(
            replace(each, inputs=(*each.inputs, *rows)) if each.name == "verify" else each for each in manifest.graphs
        )
        entry = manifest.engines[0]
        files, own = entry.files, graphs
        if encodes:
            files, own = files | {ENCODE_IMAGE: files["verify"]}, (*graphs, encoder)
        built = {"build": TensorRTBuild("", {}, {}, {}), "compute_capability": "8.9", "provider": "cuda"}
        mine = built if where != entry.backend else {}
        engine = replace(entry, graphs=own, files=files, backend=where, **mine)  # type: ignore[arg-type]
        return replace(manifest, graphs=graphs, engines=(engine,))

    return change


def also_encoding(manifest: Manifest) -> Manifest:
    """Return a manifest whose engine encodes pictures that its graphs do not take."""
    return replace(seeing(encodes=True)(manifest), graphs=manifest.graphs)


def twice(made: Manifest) -> Manifest:
    """Give the first engine a graph twice."""
    return own_engine(graphs=(*made.engines[0].graphs, made.engines[0].graphs[0]))(made)


CONTRADICTIONS: list[tuple[str, Change, str]] = [
    ("chain", seeing(encodes=False), "its graphs are verify, draft, the bundle's are verify, draft, encode_image"),
    ("chain", also_encoding, "its graphs are verify, draft, encode_image, the bundle's are verify, draft"),
    ("chain", field(batch_size=2), "'window' is int64 [1, window] (io), expected int64 [2, window] (io)"),
    ("chain", field(tokens=3, depth=3), "'next_window' is int64 [1, 5] (io) in 'window', expected int64 [1, 4] (io)"),
    ("chain", field(tokens=10**6), "tokens: expected a number from 0 to 65536, got 1000000"),
    ("chain", field(depth=5), "depth: expected a number from 1 to 4, got 5"),
    ("chain", field(depth=0), "depth: expected a number from 1 to 4, got 0"),
    ("chain", field(catch_up=0), "catch_up: expected a number from 1 to 17, got 0"),
    ("chain", field(catch_up=18), "catch_up: expected a number from 1 to 17, got 18"),
    ("chain", field(vocabulary_size=10), "expected float32 [1, logit_rows, 10] (optional)"),
    ("chain", field(eos_token_ids=(2**31 - 1,)), "expected numbers from 0 to 2147483646, got 2147483647"),
    ("chain", field(eos_token_ids=(-1,)), "eos_token_ids: expected numbers from 0 to 2147483646, got -1"),
    ("chain", field(decoding="beam"), "decoding: expected 'greedy' or 'sampling', got 'beam'"),
    ("chain", field(decoding="sampling"), "decoding: received 'sampling', but 'verify' has no input 'uniforms'"),
    ("drawn", field(decoding="greedy"), "decoding: received 'greedy', but 'verify' has an input 'uniforms'"),
    ("drawn", field(sample=False), "sample: received False, but 'verify' has an input 'draft_ids'"),
    ("chain", field(tree="static"), "tree: received 'static', which 'nodes' of 'verify' contradicts"),
    ("dynamic", field(tree="static"), "tree: received 'static', but 'step' has an input 'parents'"),
    ("chain", field(max_length=200), "expected 221 rows or more: max_length, the widest window and its drafts"),
    ("chain", field(prefill_chunk=64), "expected 229 rows or more: max_length, the widest window and its drafts"),
    ("chain", field(rings={"target.rows": 200}), "expected 221 rows or more: what attention reads of a ring, "),
    ("chain", field(rings={"target.rows": 0}), "rings: 'target.rows': expected a number of positions from 1 on, got 0"),
    ("chain", field(rings={"target.key.9": 4}), "rings: 'target.key.9' is no cache of the target"),
    ("chain", field(rings={"length": 4}), "rings: 'length' is no cache of the target"),
    ("chain", planned(verify={"method": "typical", "exact": False}), "exact is True, but plan.verify.exact is False"),
    ("chain", planned(drafter={"tokens": 5}), "tokens is 4, but plan.drafter.tokens is 5"),
    ("chain", planned(target={"facts": {"eos_token_ids": [7]}}), "eos_token_ids is [], but plan.target.facts.eos_"),
    ("chain", lambda made: replace(made, graphs=made.graphs[1:]), "verify and draft, verify and step, got draft"),
    ("chain", field(tokens=0, depth=0), "graphs: expected verify, got verify and draft"),
    ("chain", edited("verify", "window", dtype="int32"), "is int32 [1, window] (io), expected int64 [1, window] (io)"),
    ("chain", edited("verify", "window", dtype="text"), "'window' has the dtype 'text', expected one of float32"),
    ("chain", edited("verify", "length", role="link"), "'length' is int64 [1] (link), expected int64 [1] (io)"),
    ("chain", edited("verify", "length", buffer="n_path"), "int64 [1] (io) in 'n_path', expected int64 [1] (io)"),
    ("chain", edited("verify", "length", name="width"), "graph 'verify': no input 'length'"),
    ("chain", edited("verify", "logits", name="scores"), "graph 'verify': no output 'logits'"),
    ("chain", edited("draft", "catch_up", name="caught"), "'caught', which no graph of this contract has"),
    ("chain", without("draft", "next_total"), "graph 'draft': no output 'next_total'"),
    ("chain", edited("verify", "n_total", name="n_given"), "no input 'n_total'"),
    ("static", without("verify", "biases"), "graph 'verify': the input 'adjusted' without 'biases'"),
    ("static", without("verify", "penalties"), "graph 'verify': the input 'adjusted' without 'penalties'"),
    ("static", without("verify", "adjusted"), "graph 'verify': the input 'biases' without 'adjusted'"),
    ("static", without("verify", "temperature"), "graph 'verify': the input 'uniforms' without 'temperature'"),
    ("static", without("verify", "uniforms"), "graph 'verify': the input 'adjusted' without 'uniforms'"),
    ("drawn", without("verify", "draft_probs"), "graph 'verify': the input 'draft_ids' without 'draft_probs'"),
    ("drawn", without("draft", "history"), "graph 'draft': the input 'draft_uniforms' without 'history'"),
    ("features", without("verify", "features"), "'features' is float32 [1, window, 1] (link), written is nothing"),
    ("features", edited("verify", "features", shape=(1, "window", 2)), "written is float32 [1, window, 2] (link)"),
    ("chain", edited("verify", "n_path", engines=False, dtype="int32"), "engine 'onnxruntime-cpu': graph 'verify': "),
    ("chain", twice, "its graphs are verify, draft, verify, the bundle's are verify, draft"),
    ("chain", own_engine(graphs=()), "engine 'onnxruntime-cpu': its graphs are none, the bundle's are verify, draft"),
]  # fmt: skip
"""Kind of bundle, change, and what is said of it."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_agrees_is_taken(kind):
    made = toy_manifest(**KINDS[kind])
    check_consistency(made, "manifest.json")
    own = tuple(with_tensorrt_states(graph) for graph in made.graphs)
    check_consistency(replace(made, engines=(replace(made.engines[0], graphs=own),)), "manifest.json")


def test_only_engines_of_tensorrt_have_the_encoder_of_pictures():
    """ONNX Runtime runs the encoder as a graph of its own file, which is not among an engine's."""
    for where, encodes in (("onnxruntime", False), ("tensorrt_rtx", True)):
        check_consistency(seeing(encodes=encodes, where=where)(toy_manifest()), "manifest.json")


@pytest.mark.parametrize(("kind", "change", "message"), CONTRADICTIONS)
def test_what_contradicts_itself_is_refused_with_both_values(kind, change, message):
    with pytest.raises(BundleError) as caught:
        check_consistency(change(toy_manifest(**KINDS[kind])), "x/manifest.json")
    assert str(caught.value).startswith("x/manifest.json: ")
    assert message in str(caught.value)
    assert caught.value.hint == "build the bundle again with this speccompile"


def test_every_buffer_of_the_contract_has_a_signature():
    assert set(SIGNATURES) - {ADAPTER_MATRIX} == {*BUFFERS, *NEXT_ROUND_INPUTS} - {"tokens"}
    widths = {"window", "window+1", "logit_rows", "catch_up", "history", "allowed", "adjusted", "media", "source", "*"}
    assert {size for _, shape, _ in SIGNATURES.values() for size in shape} == widths | set(COMPUTED)
