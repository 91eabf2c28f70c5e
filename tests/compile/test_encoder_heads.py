"""Medusa's heads over targets with an encoder: bundles against transformers, in both runtimes."""

import json

import pytest
import torch

from speccompile.bundle.sources import is_cross_state
from speccompile.compiler.from_recipe import build
from speccompile.contract import is_scale
from speccompile.drafters.medusa.reading import head_shapes
from speccompile.runtime import Bundle
from tests.compile.test_encoder_decoders import generate, make_model, recipe
from tests.compile.test_speech import generate as transcribe
from tests.compile.whispers import SOUND, make_whisper, noise
from tests.heads import write
from tests.native.side_by_side import SideBySide

pytestmark = pytest.mark.builds(1)

HEADS, HIDDEN, VOCABULARY = 3, 32, 120


def make_heads(model, folder):
    """Write random heads beside the target's own, so that some of what they draft is right."""
    torch.manual_seed(1)
    rows = {f"lm_heads.{head}.weight": VOCABULARY for head in range(HEADS)}
    shapes = head_shapes(HEADS, 1, HIDDEN, rows, None, has_bias=True)
    own = model.get_output_embeddings().weight.data
    tensors = {name: own.clone() if name in rows else 0.3 * torch.randn(shape) for name, shape in shapes.items()}
    config = {
        "architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": HIDDEN, "vocab_size": VOCABULARY,
        "num_heads": HEADS, "num_hidden_layers": 1, "original_lm_head": False, "medusa_fc_bias": True,
    }  # fmt: skip
    return {"kind": "medusa", "model": str(write(folder, config, tensors))}


def make_bundle(folder, model, **keys):
    given = {"drafter": make_heads(model, folder / "heads"), "cache": {"max_length": 60, "prefill_chunk": 8}}
    return build(recipe(folder / "target", **given | {"source": {"max_length": 30}} | keys), folder / "bundle")


def sources():
    random = torch.Generator().manual_seed(0)
    return [torch.randint(3, VOCABULARY, (size,), generator=random).tolist() for size in (1, 6, 30)]


def check_tokens(built, model):
    accepted = 0
    with Bundle.open(built) as bundle:
        for source in sources():
            ours = bundle.generate(source=source, max_new_tokens=30, adaptive=False)
            alone = bundle.generate(source=source, max_new_tokens=30, autoregressive=True)
            assert ours.token_ids == alone.token_ids == generate(model, source, max_new_tokens=30)[:30]
            accepted += len(ours.token_ids) - 1 - ours.rounds
    assert accepted > 0


def check_transcripts(folder, model, drafter):
    """Build a bundle of a Whisper in `folder / "target"`, and compare what it writes with transformers'."""
    keys = {"cache": {"max_length": 48, "prefill_chunk": 8}, "prove": {"max_new_tokens": 12}}
    given = {"name": "demo", "target": {"model": str(folder / "target")}, "drafter": drafter}
    built = build(given | keys, folder / "bundle")
    with Bundle.open(built) as bundle:
        for number, size in enumerate((1, 2000, SOUND)):
            sound = noise(size, number)
            asked = {"audio": sound, "source_language": "de", "max_new_tokens": 30}
            ours = bundle.generate(**asked, adaptive=False)
            assert ours.token_ids == bundle.generate(**asked, autoregressive=True).token_ids
            assert ours.token_ids == transcribe(model, sound)


def test_heads_draft_behind_a_source_in_both_runtimes(tmp_path, native_library, onnxruntime_library):
    model = make_model("bart", tmp_path / "target")
    built = make_bundle(tmp_path, model)
    check_tokens(built, model)
    both = SideBySide(built, native_library, onnxruntime_library)
    for source in sources():
        both.check([], source=source, max_new_tokens=30, adaptive=False)


@pytest.mark.sweep("a bundle for each family; caches of codes without an encoder are in the first tier")
@pytest.mark.builds(2)
@pytest.mark.parametrize(
    ("name", "cache"),
    [("bart", {"dtype": "int8"}), ("t5", {"dtype": "int8"}), ("bart", {"key": "int8", "value": "int4"})],
)
def test_rows_of_a_source_are_codes_in_both_runtimes(name, cache, tmp_path, native_library, onnxruntime_library):
    model = make_model(name, tmp_path / "target")
    drafter = {"kind": "model", "model": str(tmp_path / "target"), "tokens": 3}
    cache = {"max_length": 60, "prefill_chunk": 8, "batch_size": 2} | cache
    built = make_bundle(tmp_path, model, drafter=drafter, cache=cache, drafter_cache={"dtype": "int8"})
    proof = json.loads((built / "proof.json").read_text())
    assert proof["engines"][0]["transformers"]["equal"] == 3  # over rows that are rounded there by other code
    both = SideBySide(built, native_library, onnxruntime_library)
    for graph in both.python.manifest.graphs:
        kept = {tensor.buffer: tensor.dtype for tensor in graph.inputs if is_cross_state(tensor.buffer)}
        assert {kept[buffer] for buffer in kept if not is_scale(buffer)} == {"int8"}
    one, *_, other = sources()
    for way in ({"adaptive": False}, {"autoregressive": True}):
        found = both.check([], source=[one, other], max_new_tokens=30, **way)
        alone = both.python.generate(source=other, max_new_tokens=30, autoregressive=True)
        assert found[1].token_ids == alone.token_ids


@pytest.mark.sweep("as BART: its head reads what a T5 with one matrix scales")
@pytest.mark.parametrize("decoding", ["greedy", "sampling"])
def test_heads_read_what_the_head_of_a_tied_t5_reads(decoding, tmp_path):
    model = make_model("t5", tmp_path / "target", tie_word_embeddings=True, num_decoder_layers=2)
    built = make_bundle(tmp_path, model, decoding=decoding)
    proof = json.loads((built / "proof.json").read_text())
    assert any(row["level"].endswith("features") for row in proof["graphs"])
    check_tokens(built, model)


@pytest.mark.sweep("as BART, behind an encoder that hears")
def test_heads_draft_transcripts(tmp_path):
    model = make_whisper(tmp_path / "target")
    check_transcripts(tmp_path, model, make_heads(model, tmp_path / "heads"))
