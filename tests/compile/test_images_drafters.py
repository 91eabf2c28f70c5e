"""Drafting methods and precisions of targets that see pictures, each in a bundle of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from speccompile.bundle.media import AXES, MEDIA_BEHIND, MEDIA_NEXT, MEDIA_OFFSETS, MEDIA_ROWS
from speccompile.compiler.build import image_proof
from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.pictured_drafts import PicturedPrompt, check_pictured_drafts
from speccompile.compiler.models.image_encoder import load_whole
from speccompile.errors import ProofError
from speccompile.runtime import Bundle
from speccompile.runtime.images.families import FAMILIES
from speccompile.runtime.rounds.media_inputs import MediaInputs
from tests import vision, zoo
from tests.heads.assistant import assistant
from tests.heads.dflash import specforge, zlab
from tests.heads.eagle import eagle
from tests.heads.eagle3 import eagle3
from tests.heads.hydra import hydra
from tests.heads.medusa import faster_decoding
from tests.heads.mtp import mtp_target
from tests.heads.p_eagle import p_eagle
from tests.json_files import edit_config
from tests.native.native_api import NativeBundle
from tests.seeing import NEW, PROMPTS, WIDE, Seeing, made, planned

HEADS = {"medusa": faster_decoding, "hydra": hydra, "dflash": zlab, "dspark": specforge}
GROWS = {"tree": {"depth": 2, "top_k": 2, "nodes": 4}}
PUBLISHED: dict[str, dict[str, Any]] = {
    "smolvlm": {"draft_size": 60},
    "qwen2_5_vl": {"rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}},
    "qwen3_vl": {"dialect": "speculators"},  # one position a row
}


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


def written(name: str, kind: str, folder: Path) -> dict[str, str]:
    """Write a family's target into `folder`, and a head as its publisher does. Return the key that names it."""
    built = vision.model(name)
    vision.save(built, name, folder / name)
    decoder, head = built.config.text_config, folder / "head"
    if kind == "eagle3":
        layers, more = decoder.num_hidden_layers, {"width": decoder.hidden_size} | PUBLISHED.get(name, {})
        eagle3(head, decoder, boundaries=(1, layers, layers), **more)
    elif kind == "assistant":
        assistant(head, decoder)
    elif kind == "eagle":
        eagle(head, decoder)
    elif kind == "p_eagle":
        p_eagle(head, decoder, width=decoder.hidden_size)
    elif kind == "mtp":
        layers = load_file(mtp_target(folder / "text", name) / "model.safetensors")
        tensors = load_file(folder / name / "model.safetensors")
        tensors |= {name: each for name, each in layers.items() if name.startswith("mtp.")}
        save_file(tensors, folder / name / "model.safetensors", {"format": "pt"})
        edit_config(folder / name, lambda config: config["text_config"].update(mtp_num_hidden_layers=1))
    return {"model": str(head)} if head.exists() else {}


@pytest.mark.sweep("builds of drafters that read the rows or positions of pictures")
@pytest.mark.parametrize(
    ("name", "kind", "drafter", "recipe", "cache", "read"),
    [
        ("smolvlm", "eagle3", {"tokens": 3}, {}, {}, MEDIA_NEXT),
        ("qwen2_5_vl", "eagle3", {"tree": [2, 1, 1]}, {}, {"batch_size": 2}, MEDIA_OFFSETS),
        ("qwen3_vl", "eagle3", GROWS, {"graphs": "separate"}, {}, MEDIA_NEXT),
        ("smolvlm", "p_eagle", {"tokens": 3}, {}, {}, MEDIA_NEXT),
        ("gemma4", "assistant", {"tokens": 3}, {}, {"prefill_chunk": 72}, MEDIA_ROWS),
        ("gemma3", "eagle", {"tokens": 3}, {}, {"prefill_chunk": 17}, MEDIA_NEXT),
        ("qwen3_5", "mtp", {"tokens": 3}, {}, {}, MEDIA_NEXT),
        ("qwen3_vl", "layer_skip", {"layers": [0, 2], "tree": [2, 1, 1]}, {}, {}, MEDIA_BEHIND),
    ],
)
def test_drafters_read_pictures(
    tmp_path, monkeypatch, native_library, onnxruntime_library, name, kind, drafter, recipe, cache, read
):
    drafter = {"kind": kind, **written(name, kind, tmp_path), **drafter}
    path = made(name, drafter, tmp_path, recipe, **cache)
    (row,) = json.loads((path / "proof.json").read_text())["images"]
    assert row["drafts"] >= 6
    assert row["unseen"] == []
    seeing = Seeing(name, path, tmp_path)
    native = NativeBundle(path, library=native_library, onnxruntime=onnxruntime_library, threads=1).session()
    for text, images in PROMPTS:
        text = text.format(seeing.token)
        expected = seeing.expected(text, images)
        found = seeing.bundle.generate(text, images=list(images), max_new_tokens=NEW, adaptive=False)
        (again,) = native.generate([text], images=[list(images)], max_new_tokens=NEW, adaptive=0)
        assert found.token_ids == again["token_ids"] == expected
        assert found.path_lengths == again["path_lengths"]
        with seeing.bundle.serve() as service:
            for _ in range(2):
                (again,) = service.submit(text, images=list(images), max_new_tokens=NEW).generations()
                assert again.token_ids == expected
    monkeypatch.setattr(MediaInputs, "write", without(read, MediaInputs.write))
    bundle, draft = seeing.bundle, open_round(planned(name, drafter, tmp_path, recipe, **cache)).draft
    settings, whole = bundle.vision.settings, load_whole(seeing.folder)
    family = FAMILIES[settings.family](settings)
    shown = image_proof.proof_pictures(family, bundle.manifest.max_length - NEW)
    rows = [family.n_rows(family.grid(*each.shape[:2])) for each in shown]
    prompt = PicturedPrompt(whole, family, image_proof._prompt(settings, rows, bundle.manifest.vocabulary_size), shown)
    with pytest.raises(ProofError, match=r"pictures, window \d behind the prompt: "):
        check_pictured_drafts(bundle, prompt, draft, NEW)


def without(name: str, write: Any) -> Any:
    """Return `MediaInputs.write` that leaves zeros in an input."""
    shapes = {
        **dict.fromkeys((MEDIA_NEXT, MEDIA_ROWS), lambda window: (window,)),
        MEDIA_OFFSETS: lambda window: (AXES, window),
    }

    def writes(self: MediaInputs, window: int, lines: range, parts: Any, count: int) -> None:
        write(self, window, lines, parts, count)
        self._view(name, *shapes.get(name, lambda _: ())(window))[:] = 0

    return writes
