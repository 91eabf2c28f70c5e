"""Sources in the runtime in C++ against Python's: targets of several families, drafted and drawn, side by side."""

import numpy as np
import pytest
import torch

from speccompile.compiler.from_recipe import build
from tests.compile.test_encoder_decoders import make_model, recipe
from tests.compile.whispers import SOUND, noise
from tests.compile.whispers import make_pair as make_whispers
from tests.native.side_by_side import SideBySide

LONGEST = 30
CACHE = {"max_length": 48, "prefill_chunk": 8}
SAMPLING = {"temperature": [0.9, 1.3], "top_k": [0, 20], "seed": [3, 2**60]}


def make_pair(folder):
    """Write an M2M100 that forces a token at the beginning, and a smaller one that drafts for it."""
    model = make_model("m2m_100", folder / "target")
    model.generation_config.forced_bos_token_id = 9
    model.generation_config.save_pretrained(folder / "target")
    drafter = make_model("m2m_100", folder / "drafter", encoder_layers=1, decoder_layers=1)
    weights = {name: each for name, each in model.state_dict().items() if name in drafter.state_dict()}
    drafter.load_state_dict(weights)  # so that some drafts are right
    drafter.save_pretrained(folder / "drafter")
    return {"kind": "model", "model": str(folder / "drafter"), "tokens": 3}


def make_target(name):
    return lambda folder: make_model(name, folder / "target") and None


def make_pegasus(folder):
    """Write a Pegasus whose answers depend on their source more than random weights let them."""
    model = make_model("pegasus", folder / "target")
    with torch.no_grad():
        for layer in model.model.decoder.layers:
            layer.encoder_attn.v_proj.weight *= 8
    model.save_pretrained(folder / "target")


KINDS = {
    "m2m_100 with a smaller one": (make_pair, {"decoding": "sampling"}),
    "t5, lookups in the answer": (make_target("t5"), {"drafter": {"kind": "prompt_lookup", "tokens": 3}}),
    "marian, lookups in the source, drawn": (
        make_target("marian"),
        {"drafter": {"kind": "prompt_lookup", "over": "source", "tokens": 4}, "decoding": "sampling"},
    ),
    "pegasus alone": (make_pegasus, {"drafter": {"kind": "none"}}),
}


@pytest.mark.sweep("bundles of other families than the corrector")
@pytest.mark.builds(14)
@pytest.mark.parametrize("kind", KINDS)
def test_both_runtimes_give_the_same_tokens(tmp_path, native_library, onnxruntime_library, kind):
    make, keys = KINDS[kind]
    drafter = make(tmp_path)
    more = {} if drafter is None else {"drafter": drafter}
    cache = CACHE | {"batch_size": 2}
    asked = {"source": {"max_length": LONGEST}, "cache": cache, "prove": {"max_new_tokens": 6}} | keys | more
    build(recipe(tmp_path / "target", **asked), tmp_path / "bundle")
    check(tmp_path / "bundle", native_library, onnxruntime_library)


@pytest.mark.sweep("a batch of sounds, drafted with a shared encoder, beside one sound and lookups")
@pytest.mark.builds(6)
def test_a_smaller_whisper_drafts_in_cpp(tmp_path, native_library, onnxruntime_library):
    make_whispers(tmp_path)
    drafter = {"kind": "model", "model": str(tmp_path / "drafter"), "tokens": 3}
    asked = recipe(tmp_path / "target", drafter=drafter, cache=CACHE | {"batch_size": 2}, prove={"max_new_tokens": 8})
    build({key: value for key, value in asked.items() if key != "source"}, tmp_path / "bundle")
    check_whisper(tmp_path / "bundle", native_library, onnxruntime_library)


def check_whisper(folder, library, onnxruntime):
    """Check sounds side by side, and one sound of two transcripts."""
    both, answers = SideBySide(folder, library, onnxruntime), set()
    for sizes in ((1, SOUND), (2000, 5000)):
        sounds = [noise(size, size) for size in sizes]
        for way in ({"adaptive": False}, {}, {"autoregressive": True}):
            found = both.check([], audio=sounds, source_language="de", max_new_tokens=30, logprobs=False, **way)
            answers |= {tuple(each.token_ids) for each in found}
    assert len(answers) >= 3
    both.check([[101, 103], [101, 102, 104]], audio=sounds[0], max_new_tokens=20)


def check(folder, library, onnxruntime):
    """Check every way to decode, at every length of sources."""
    both, random = SideBySide(folder, library, onnxruntime), np.random.default_rng(5)
    manifest, answers = both.python.manifest, set[tuple[int, ...]]()
    samples = SAMPLING if manifest.decoding == "sampling" else {}
    for lengths in ((1, LONGEST), (7, 12), (3, 3)):
        sources = [random.integers(3, manifest.vocabulary_size, length).tolist() for length in lengths]
        for way in ({"adaptive": False}, {}, {"autoregressive": True}):
            asked = {"source": sources, "max_new_tokens": 24, **way}
            answers |= {tuple(each.token_ids) for each in both.check([], logprobs=True, **asked)}
            if samples:
                both.check([], **asked, **samples)
        beginning = [[manifest.source["start_token_id"], 5, 6], [manifest.source["start_token_id"]]]
        both.check(beginning, source=sources[0], max_new_tokens=20)
    assert len(answers) >= 4
    assert both.native.description["exact"] == both.python.exact
