"""Drafting methods and precisions of targets that see pictures, each in a bundle of its own."""

from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from speccompile.runtime import Bundle
from tests import vision, zoo
from tests.heads.dflash import specforge, zlab
from tests.heads.hydra import hydra
from tests.heads.medusa import faster_decoding
from tests.seeing import NEW, PROMPTS, WIDE, Seeing, made

HEADS = {"medusa": faster_decoding, "hydra": hydra, "dflash": zlab, "dspark": specforge}


@pytest.mark.sweep("builds of drafters that read tokens or features")
@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("smolvlm", kind) for kind in ("model", "suffix", "none", "token_recycling", "medusa", "hydra")),
     ("smolvlm", "dflash"), ("qwen3_vl", "dspark"), ("qwen3_vl", "medusa"), ("gemma3", "token_recycling")],
)  # fmt: skip
def test_other_drafters_draft_behind_pictures(tmp_path, name, kind):
    drafter: dict[str, Any] = {"kind": kind}
    if kind in HEADS:
        drafter["model"] = str(HEADS[kind](tmp_path / "head", vision.model(name).config.text_config))
    if kind == "model":
        sizes = {
            key: zoo.SIZES[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads", "pad_token_id")
        }
        config = LlamaConfig(
            **sizes, num_hidden_layers=1, num_key_value_heads=2, vocab_size=zoo.VOCABULARY + 32, eos_token_id=None
        )
        vision.save(LlamaForCausalLM(config), "smolvlm", tmp_path / "small")
        drafter |= {"model": str(tmp_path / "small"), "tokens": 3}
    seeing = Seeing(name, made(name, drafter, tmp_path), tmp_path)
    for text, images in PROMPTS:
        text = text.format(seeing.token)
        found = seeing.bundle.generate(text, images=list(images), max_new_tokens=NEW, adaptive=False)
        assert found.token_ids == seeing.expected(text, images)


@pytest.mark.sweep("builds in another precision, and that sample")
def test_quantized_and_sampling_bundles_draft_behind_pictures(tmp_path):
    recipe = {"precision": {"target": "int8"}, "decoding": "sampling"}
    bundle = Bundle.open(made("internvl", {"kind": "prompt_lookup", "ngram": 1}, tmp_path, recipe), threads=1)
    found = [
        bundle.generate("what", images=[WIDE], max_new_tokens=NEW, autoregressive=each, adaptive=False).token_ids
        for each in (True, False)
    ]
    assert found[0] == found[1]
    drawn = [bundle.generate("what", images=[WIDE], temperature=1.0, seed=5, max_new_tokens=NEW) for _ in range(2)]
    assert drawn[0].token_ids == drawn[1].token_ids


@pytest.mark.sweep("a build of a decoder with windows")
def test_pictures_go_round_a_ring(tmp_path):
    windows = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    vision.save(vision.model("internvl", **windows), "internvl", tmp_path / "internvl")
    drafter = {"kind": "layer_skip", "layers": [0], "tokens": 3}
    path = made("internvl", drafter, tmp_path, prefill_chunk=8, batch_size=2)
    seeing = Seeing("internvl", path, tmp_path)
    assert seeing.bundle.manifest.rings == {"target.key.1": 4, "target.value.1": 4}
    rows = seeing.bundle.manifest.graphs[0].inputs
    (ring,) = {each.shape[2] for each in rows if each.buffer in seeing.bundle.manifest.rings}
    for text, images in PROMPTS:
        text = text.format(seeing.token)
        assert len(images) < 2 or len(seeing.bundle._prompt(text, chat=False, hint=None, images=images).ids) > ring
        expected = seeing.expected(text, images)
        found = seeing.bundle.generate(text, images=list(images), max_new_tokens=NEW, adaptive=False)
        assert found.token_ids == expected
        with seeing.bundle.serve() as service:  # again, and from what the slots hold
            for _ in range(2):
                (again,) = service.submit(text, images=list(images), max_new_tokens=NEW).generations()
                assert again.token_ids == expected
        if images:
            assert again.cached_tokens > 0
