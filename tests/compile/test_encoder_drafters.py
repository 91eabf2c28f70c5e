"""Drafters without weights of their own over targets with an encoder, in both runtimes, against transformers."""

import json

import pytest

from tests.compile.test_encoder_decoders import make_model
from tests.compile.test_encoder_heads import check_tokens, check_transcripts, make_bundle, sources
from tests.compile.whispers import make_whisper
from tests.native.side_by_side import SideBySide

pytestmark = pytest.mark.builds(5)

LAYERS = {"kind": "layer_skip", "tokens": 3}


def make_target(name, folder):
    """Write a random model with four layers in its decoder, and return it."""
    model = make_model(
        name, folder, **({"num_layers": 4, "num_decoder_layers": 4} if name == "t5" else {"decoder_layers": 4})
    )
    if name == "t5":
        for weight in model.parameters():  # four layers with scores as large as those of two amplify rounding
            weight.data.mul_(0.5 if weight.dim() > 1 else 1)
        model.save_pretrained(folder)
    return model


@pytest.mark.sweep("one bundle for each drafter; layers and lookups have been built over language models")
@pytest.mark.parametrize(
    ("name", "drafter", "decoding"),
    [
        ("bart", LAYERS | {"layers": [0, 2]}, "greedy"),
        (
            "t5",
            LAYERS | {"layers": [1, 3]},
            "greedy",
        ),  # the first layer's table serves the others, though it is skipped
        ("m2m_100", {"kind": "layer_skip", "layers": [1, 3], "tree": [2, 2]}, "greedy"),
        ("mbart", LAYERS | {"layers": [0, 1]}, "sampling"),  # early exit
        ("bart", {"kind": "suffix", "tokens": 4, "remember": 512}, "greedy"),
        ("bart", {"kind": "token_recycling", "nodes": 12}, "greedy"),
        ("bart", {"kind": "jacobi", "tokens": 4}, "greedy"),
        ("bart", {"kind": "lookahead"}, "greedy"),
    ],
)
def test_drafters_without_weights_behind_a_source_in_both_runtimes(
    name, drafter, decoding, tmp_path, native_library, onnxruntime_library
):  # fmt: skip
    model = make_target(name, tmp_path / "target")
    built = make_bundle(tmp_path, model, drafter=drafter, decoding=decoding)
    proof = json.loads((built / "proof.json").read_text())
    assert any(row["graph"] == "draft" for row in proof["graphs"])
    check_tokens(built, model)
    both = SideBySide(built, native_library, onnxruntime_library)
    for source in sources():
        both.check([], source=source, max_new_tokens=30, adaptive=False)


@pytest.mark.sweep("as BART, behind an encoder that hears")
@pytest.mark.parametrize("drafter", [LAYERS | {"layers": [0]}, {"kind": "token_recycling", "nodes": 8}])
def test_drafters_without_weights_draft_transcripts(drafter, tmp_path):
    check_transcripts(tmp_path, make_whisper(tmp_path / "target"), drafter)
