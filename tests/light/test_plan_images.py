"""Recipes with target.images: what they decide, and what is refused by name."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from speccompile.bundle.media import MEDIA
from speccompile.compiler.checkpoints.images import read_images
from speccompile.compiler.models.image_encoder import load_whole
from speccompile.errors import BundleError, CheckpointError, PromptError, RecipeError, UnsupportedModelError
from speccompile.plan.plan import Plan
from speccompile.recipe import make_plan
from speccompile.recipe.load import parse_recipe
from speccompile.runtime.images.families import FAMILIES
from speccompile.runtime.images.reader import image_settings
from tests import multimodal, vision, zoo
from tests.heads.eagle import eagle
from tests.heads.eagle3 import eagle3
from tests.heads.mtp import mtp_head
from tests.json_files import merge_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("seeing")
    vision.save(vision.model("idefics3"), "idefics3", folder / "target")
    zoo.save("llama", folder / "text")
    zoo.save("llama", folder / "small")  # with fewer rows than its tokenizer has tokens
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / "target" / name, folder / "small" / name)
    multimodal.save(multimodal.model("gemma3n"), folder / "gemma3n", tokenizer=True)
    vision.save(vision.model("gemma3"), "gemma3", folder / "gemma3")
    vision.save(vision.model("qwen3_vl"), "qwen3_vl", folder / "qwen3_vl")
    decoder = vision.model("idefics3").config.text_config
    eagle3(folder / "narrow", decoder, boundaries=(1, 2, 2))
    mtp_head(folder / "mtp", vision.model("internvl").config.text_config, 2)
    eagle(folder / "eagle", vision.model("gemma3").config.text_config)
    return folder


def planned(folder: Path, model: str = "target", drafter: Any = None, **more: Any) -> Plan:
    target = {"model": str(folder / model), "images": True, **more.pop("target", {})}
    recipe = {"name": "seeing", "target": target, "drafter": drafter or {"kind": "prompt_lookup"}} | more
    return make_plan(parse_recipe(recipe, folder / "recipe.yaml", []))


def test_a_plan_has_the_pictures_and_locks_their_processor(folder):
    plan = planned(folder)
    assert plan.images is not None
    assert plan.to_json()["images"]["family"] == "idefics3"
    assert Path("preprocessor_config.json") in plan.target.files
    assert not [note for note in plan.notes if "multimodal" in note]


def test_the_command_shows_the_pictures(folder, tmp_path, command_line):
    recipe = {"name": "seeing", "target": {"model": str(folder / "target"), "images": True}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    code, out, _ = command_line("-q", "plan", tmp_path / "recipe.yaml")
    assert (code, "idefics3, 4 tokens for a tile of 56 x 56 pixels" in out) == (0, True)


def test_text_alone_stays_the_default(folder):
    plan = planned(folder, target={"images": None})
    assert plan.images is None
    assert "images" not in plan.to_json()
    assert [note for note in plan.notes if "is multimodal: its text decoder is compiled" in note]


REFUSED = [
    (
        {"model": "qwen3_vl", "drafter": {"kind": "mtp", "model": "mtp"}},
        "received 'mtp' for a target whose pictures have positions on three axes, expected a single MTP layer: rows of",
    ),
    (
        {"model": "gemma3", "cache": {"prefill_chunk": 15}},
        r"prefill_chunk: received 15, expected at least 16: all rows of",
    ),
    ({"model": "text"}, r"target\.images: received true, but .* is no multimodal model"),
    ({"drafter": {"kind": "lookahead"}}, r"drafter\.kind: received 'lookahead' beside target\.images"),
    ({"drafter": {"kind": "model", "model": "small", "then": "prompt_lookup"}}, "with a lookup beside it"),
    ({"drafter": {"kind": "model", "model": "small"}}, "a drafter that knows the placeholder of pictures"),
    ({"drafter": {"kind": "eagle3", "model": "narrow"}}, "received a head of width 32, which embeds tokens in rows of"),
    (
        {"model": "gemma3", "drafter": {"kind": "eagle", "model": "eagle"}, "cache": {"prefill_chunk": 16}},
        r"prefill_chunk: received 16, expected at least 17: all rows of",
    ),
    ({"cache": {"dtype": "int8"}}, r"cache\.dtype: received int8, expected float beside target\.images"),
    ({"cache": {"max_length": 40}}, r"cache\.max_length: received 40, expected at least \d+: the smallest picture has"),
    ({"adapters": {"modules": ["q_proj"]}}, r"adapters: received it beside target\.images"),
    ({"engines": [{"backend": "onnxruntime", "provider": "cuda"}]}, r"target\.images: received true and the engine"),
    (
        {
            "engines": [{"backend": "tensorrt_rtx", "compute_capability": "8.9", "precision": {"target": "float16"}}],
            "target": {"encoder_precision": "int8"},
        },
        r"target\.encoder_precision: received 'int8' and the engine 'tensorrt_rtx-8\.9-float16', tensorrt_rtx, exp",
    ),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_what_does_not_go_with_pictures_is_refused(folder, changes, said):
    changes = dict(changes)
    if "model" in changes.get("drafter", {}):
        changes["drafter"] = changes["drafter"] | {"model": str(folder / changes["drafter"]["model"])}
    with pytest.raises(RecipeError, match=said) as caught:
        planned(folder, **changes)
    assert caught.value.hint


def test_another_multimodal_model_is_refused_with_its_pictures_alone(folder):
    with pytest.raises(UnsupportedModelError, match=r"received target\.images for a model of type 'gemma3n'"):
        planned(folder, "gemma3n")
    assert planned(folder, "gemma3n", target={"images": False}).images is None
    shutil.copytree(folder / "text", folder / "other")
    merge_json(folder / "other" / "config.json", {"vision_config": {}})  # as phi4_multimodal's
    with pytest.raises(UnsupportedModelError, match=r"received target\.images for a model of type 'llama'"):
        planned(folder, "other")


def test_a_chunk_holds_a_picture_whose_rows_see_each_other(folder):
    plan = planned(folder, "gemma3", cache={"max_length": 96})
    assert plan.prefill_chunk >= plan.images.tile_rows


PROCESSOR = "preprocessor_config.json"
PATCHES = r"received \w+_size \d+, expected the \w+ of the vision tower, \d"
SIZE = {"size": {"height": 28, "width": 56}}
OTHERS = [
    ("idefics3", PROCESSOR, {"do_resize": False}, "received do_resize False, expected True"),
    ("idefics3", PROCESSOR, {"resample": 0}, r"received resample 0, expected one of"),
    ("idefics3", PROCESSOR, {"max_image_size": {"longest_edge": 28}}, "received max_image_size 28, expected"),
    ("idefics3", "config.json", {"image_token_id": None}, r"received image_token_id: None, expected the id of the"),
    ("idefics3", "config.json", {"image_token_id": 5}, "received no added token with the id 5, expected the place"),
    ("gemma3", PROCESSOR, {"do_pan_and_scan": True}, "received do_pan_and_scan True, expected False: crops"),
    ("gemma3", PROCESSOR, SIZE, r"received size \[28, 56\], expected the image_size of the vision"),
    ("internvl", PROCESSOR, SIZE, r"received size \[28, 56\], expected the image_size of the vision"),
    ("qwen3_vl", PROCESSOR, {"patch_size": 14}, PATCHES),
    ("qwen3_vl", PROCESSOR, {"merge_size": 4}, PATCHES),
    ("llava_onevision", PROCESSOR, {"size": {"height": 28, "width": 28}}, "the image_size of the vision"),
    ("llava_onevision", PROCESSOR, {"image_grid_pinpoints": [[56, 56]]}, "those of config.json"),
    (
        "llava_onevision",
        "config.json",
        {"vision_feature_select_strategy": "default"},
        "received vision_feature_select_strategy 'default' in config.json, expected 'full'",
    ),
    ("llava_onevision", "config.json", {"vision_aspect_ratio": "pad"}, "received vision_aspect_ratio 'pad'"),
    ("mistral3", "processor_config.json", {"patch_size": 16}, "received patch_size 16 in processor_config"),
    ("lfm2_vl", PROCESSOR, {"encoder_patch_size": 16}, "received encoder_patch_size 16, expected"),
    ("lfm2_vl", "processor_config.json", {"use_image_special_tokens": False}, "received use_image_special_tokens F"),
    ("gemma4", PROCESSOR, {"patch_size": 16}, "received patch_size 16, expected that of the vision"),
]


@pytest.mark.parametrize(("name", "file", "changes", "said"), OTHERS)
def test_processors_that_do_not_fit_their_towers_are_refused(tmp_path, name, file, changes, said):
    path = vision.save(vision.model(name), name, tmp_path / "target") / file
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))
    with pytest.raises((CheckpointError, UnsupportedModelError), match=said):
        planned(tmp_path)


def test_a_picture_that_would_vanish_is_refused(tmp_path):
    settings = read_images(vision.save(vision.model("mistral3"), "mistral3", tmp_path))
    with pytest.raises(PromptError, match="received a picture that is less than a pixel wide in 90 x 90 pixels"):
        FAMILIES[settings.family](settings).grid(1, 5000)


def test_a_checkpoint_without_its_tower_is_refused(tmp_path):
    vision.save(vision.model("idefics3"), "idefics3", tmp_path)
    file = tmp_path / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(file).items() if "vision" not in name}
    save_file(kept, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks \d+ tensors of Idefics3ForConditionalGeneration"):
        load_whole(tmp_path)


def test_a_manifest_that_contradicts_its_graphs_is_refused(folder):
    written = planned(folder).to_json()["images"]
    seeing = SimpleNamespace(inputs=[SimpleNamespace(name=MEDIA)])
    for plan, graphs in (
        ({}, [seeing]), ({"images": written}, []), ({"images": written | {"family": "other"}}, [seeing]),
        ({"images": {"family": "idefics3"}}, [seeing]), ({"images": written | {"more": 1}}, [seeing]),
    ):  # fmt: skip
        with pytest.raises(BundleError, match=r"plan\.images: "):
            image_settings(SimpleNamespace(plan=plan, graphs=graphs))
    assert image_settings(SimpleNamespace(plan={}, graphs=[])) is None


def test_the_encoder_s_precision_is_part_of_the_pictures(folder):
    plan = planned(folder, target={"encoder_precision": "int8"}, prove={"max_encoder_divergence": 0.5})
    assert plan.images is not None
    assert (plan.images.precision, plan.prove.max_encoder_divergence) == ("int8", 0.5)
    assert plan.images.describe().endswith("pixels, encoded in int8")
    assert planned(folder).images.precision == "float32"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": {"images": False, "encoder_precision": "int8"}},
         "target.encoder_precision: received int8, expected it only with target.images: true"),
        ({"target": {"images": False}, "prove": {"max_encoder_divergence": 0.1}},
         "prove.max_encoder_divergence: received 0.1, expected it only with target.images: true"),
        ({"prove": {"max_encoder_divergence": 0.1}},
         "prove.max_encoder_divergence: received 0.1, expected it only with another precision"),
        ({"target": {"encoder_precision": "int4"}}, "target.encoder_precision: .*expected float32, bfloat16 or int8"),
        ({"target": {"encoder_precision": "int8"}, "prove": {"max_encoder_divergence": 0}},
         "prove.max_encoder_divergence: .*expected a number of nats above 0"),
    ],
)  # fmt: skip
def test_keys_of_the_encoder_without_one_are_refused(folder, changes, said):
    with pytest.raises(RecipeError, match=said):
        planned(folder, **changes)
