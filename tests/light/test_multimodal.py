"""Multimodal checkpoints: their text decoder, in every layout, says of text what the whole model says."""

import pytest
import torch
from transformers import AutoModelForImageTextToText, VipLlavaConfig

from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.recipe import load_recipe, make_plan
from tests import multimodal, zoo
from tests.json_files import edit_config

TEXT = torch.arange(9, 9 + 40 * 6, 6)[None]
LAYOUTS = [(name, layout) for name in multimodal.NAMES for layout in ("saved", "published", "inner")]


@torch.no_grad()
@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_the_text_decoder_says_what_the_whole_model_says(tmp_path, name, layout):
    whole = multimodal.model(name)
    folder = multimodal.save(whole, tmp_path, layout)
    decoder = load_model(folder, 128)
    expected = whole(input_ids=TEXT).logits
    torch.testing.assert_close(decoder(input_ids=TEXT).logits, expected, rtol=0, atol=1e-5)
    assert expected.std() > 0.5
    again = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager")
    torch.testing.assert_close(again(input_ids=TEXT).logits, expected, rtol=0, atol=0)
    assert not [part for part, _ in decoder.named_modules() if "vision" in part or "audio" in part]


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_facts_are_the_decoder_s(tmp_path, name, layout):
    whole = multimodal.model(name)
    folder = multimodal.save(whole, tmp_path, layout)
    inner = whole.model.text_model if name in ("idefics3", "smolvlm") else whole.model.language_model
    decoder = sum(tensor.numel() for tensor in inner.state_dict().values())
    head = 0 if whole.config.tie_word_embeddings else whole.lm_head.weight.numel()
    others = ("vision", "visual", "projector", "audio", "connector", "newline")
    beside = [each for each in multimodal.tensor_names(folder) if any(other in each for other in others)]
    _, facts = read_checkpoint(folder)
    assert facts.architecture == type(whole).__name__
    assert (facts.vocabulary_size, facts.positions, facts.hidden_size) == (zoo.VOCABULARY, 256, 64)
    assert facts.layers == whole.config.text_config.num_hidden_layers
    assert facts.weight_bytes == 4 * (decoder + head)
    assert facts.left_out == len(beside) > 10


def test_what_a_config_leaves_to_transformers_is_read_off_the_weights(tmp_path):
    """Gemma 3's published text_config says neither its vocabulary nor its positions."""
    folder = multimodal.save(multimodal.model("gemma3"), tmp_path, "published")
    edit_config(folder, lambda config: [config["text_config"].pop(key) for key in (
        "vocab_size", "max_position_embeddings")])  # fmt: skip
    _, facts = read_checkpoint(folder)
    assert (facts.vocabulary_size, facts.positions) == (zoo.VOCABULARY, None)


@pytest.mark.parametrize(
    ("outer", "inner", "generation", "expected"),
    [
        (None, 3, None, (3,)),
        ([1, 106], 3, None, (1, 106)),
        ([1, 106], 3, [5, 7, 9], (5, 7, 9)),
    ],
)
def test_ends_are_those_of_generation_of_the_whole_then_of_the_decoder(tmp_path, outer, inner, generation, expected):
    folder = multimodal.save(multimodal.model("gemma3"), tmp_path)
    edit_config(folder, lambda config: config.update(eos_token_id=outer))
    edit_config(folder, lambda config: config["text_config"].update(eos_token_id=inner))
    (folder / "generation_config.json").write_text("{}" if generation is None else f'{{"eos_token_id": {generation}}}')
    assert read_checkpoint(folder)[1].eos_token_ids == expected


@torch.no_grad()
@pytest.mark.parametrize("is_tied", [True, False])
def test_the_whole_model_s_word_ties_the_head(tmp_path, is_tied):
    """Mistral 3's config says it beside text_config, whose own default is another."""
    whole = multimodal.model("ministral3" if is_tied else "mistral3")
    folder = multimodal.save(whole, tmp_path)
    edit_config(folder, lambda config: config["text_config"].update(tie_word_embeddings=not is_tied))
    decoder = load_model(folder, 128)
    torch.testing.assert_close(decoder(input_ids=TEXT).logits, whole(input_ids=TEXT).logits, rtol=0, atol=1e-5)


def test_the_plan_says_once_what_is_left_out(tmp_path, make_recipe):
    folder = multimodal.save(multimodal.model("mistral3"), tmp_path / "mm", tokenizer=True)
    path = make_recipe(target={"model": "mm"}, drafter={"kind": "prompt_lookup"})
    left_out = read_checkpoint(folder)[1].left_out
    assert make_plan(load_recipe(path)).notes == (
        f"'mm' is multimodal: its text decoder is compiled, {left_out} other tensors are left out",
    )


def test_layers_with_a_state_go_through_the_hook(tmp_path):
    folder = multimodal.save(multimodal.model("qwen3_5"), tmp_path)
    decoder = probe(load_model(folder, 64), CacheShape(1, 96, 64))
    assert [name.partition(".")[0] for name in decoder.cache_shapes()] == ["conv", "state", "key", "value"]


def test_another_multimodal_model_is_refused_by_its_type(tmp_path, make_checkpoint):
    text = VipLlavaConfig().to_dict()["text_config"]
    folder = make_checkpoint(tmp_path / "model", vocab_size=None, model_type="vipllava", text_config=text)
    message = (
        r"config\.json: received a multimodal checkpoint of type 'vipllava', expected a language model, or one of "
        r"gemma3, gemma3n, gemma4, idefics3, internvl, lfm2_vl, llava, llava_next, llava_onevision, mistral3, "
        r"qwen2_5_vl, qwen3_5, qwen3_vl, smolvlm, whose text decoder is compiled$"
    )
    with pytest.raises(UnsupportedModelError, match=message):
        read_checkpoint(folder)


def test_a_text_config_that_is_none_is_refused(tmp_path, make_checkpoint):
    with pytest.raises(CheckpointError, match=r"received text_config: 3, expected a JSON object"):
        read_checkpoint(make_checkpoint(tmp_path / "model", model_type="gemma3", text_config=3))


def test_a_multimodal_checkpoint_without_its_decoder_is_refused(tmp_path, make_checkpoint):
    folder = make_checkpoint(tmp_path / "model", model_type="gemma3", text_config={"vocab_size": 8})
    message = (
        r"received 2 tensors without the embedding of a text decoder, expected "
        r"language_model\.model\.embed_tokens\.weight or model\.language_model\.embed_tokens\.weight or "
        r"model\.text_model\.embed_tokens\.weight$"
    )
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(folder)
