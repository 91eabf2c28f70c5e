"""The zoo itself: every row is a working model, lively enough that a mistake in tracing it would show."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests import zoo
from tests.suite.selection import sweep_but

NEEDED = (
    "llama qwen2 qwen3 mistral gemma2 gemma3_text phi phi3 gpt_neox gpt2 opt olmo2 starcoder2 granite stablelm cohere "
    "smollm3 glm4 mixtral qwen3_moe"
)
PROMPT = torch.arange(3, 3 + 5 * 24, 5).unsqueeze(0)


@torch.no_grad()
def logits_of(model: torch.nn.Module, token_ids: torch.Tensor = PROMPT) -> torch.Tensor:
    """Return logits [1, S, V] of one forward pass without a cache."""
    return model(token_ids, use_cache=False).logits


def test_names_selects_rows_by_what_is_expected_of_them() -> None:
    assert set(NEEDED.split()) <= set(zoo.names("works"))
    assert set(zoo.names("works")) < set(zoo.names())
    assert zoo.names("no such expectation") == []


@pytest.mark.parametrize("name", sweep_but(zoo.FIRST, zoo.names(), zoo.REASON))
def test_model_is_finite_and_made_by_its_seed(name: str) -> None:
    logits = logits_of(zoo.model(name))
    assert logits.shape == (1, PROMPT.shape[1], zoo.VOCABULARY)
    assert logits.dtype == torch.float32
    assert torch.isfinite(logits).all()
    assert logits.std() > 0.5
    torch.testing.assert_close(logits_of(zoo.model(name)), logits, rtol=0, atol=0)
    assert (logits_of(zoo.model(name, seed=1)) - logits).abs().max() > 0.5


@pytest.mark.parametrize("name", sweep_but(zoo.FIRST, zoo.names("works"), zoo.REASON))
def test_greedy_output_varies_and_depends_on_the_context(name: str) -> None:
    model = zoo.model(name)
    generated = model.generate(PROMPT, max_new_tokens=24, do_sample=False)[0, PROMPT.shape[1] :]
    assert len(generated) == 24
    assert len(set(generated.tolist())) > 2
    changed = PROMPT.clone()
    changed[0, -8] = 200
    assert (logits_of(model, changed) - logits_of(model))[0, -1].abs().max() > 0.02


def test_making_a_model_leaves_the_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    zoo.model("llama", seed=7)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", ["llama_tied", "gpt2", "gemma3_text", "glm4", "mixtral"])
def test_saved_folder_loads_to_the_same_model(name: str, tmp_path: Path) -> None:
    folder = zoo.save(name, tmp_path / name, seed=3)
    loaded = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    torch.testing.assert_close(logits_of(loaded), logits_of(zoo.model(name, seed=3)), rtol=0, atol=0)
    assert loaded.generation_config.eos_token_id is None
    assert (loaded.config.pad_token_id, loaded.config.bos_token_id) == (zoo.PAD, zoo.BEGIN)
    assert len(AutoTokenizer.from_pretrained(folder)) == loaded.config.vocab_size


def test_saved_end_of_sequence_token_is_the_one_asked_for(tmp_path: Path) -> None:
    zoo.save("llama", tmp_path, eos=70)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert (loaded.config.eos_token_id, loaded.generation_config.eos_token_id, tokenizer.eos_token_id) == (70, 70, 70)
    assert len(tokenizer) == zoo.VOCABULARY


def test_saved_folder_can_do_without_a_tokenizer(tmp_path: Path) -> None:
    zoo.save("llama", tmp_path, tokenizer=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("text", ["the self = thin", "héllo, 日本語 🙂", "\x00\r\n\t tail "])
def test_tokenizer_gives_every_text_back(text: str) -> None:
    tokenizer = zoo.byte_tokenizer()
    token_ids = tokenizer(text)["input_ids"]
    assert max(token_ids) < zoo.VOCABULARY
    assert tokenizer.decode(token_ids) == text


def test_tokenizer_merges_common_pairs() -> None:
    assert zoo.byte_tokenizer().tokenize("in the self") == ["in", "Ġthe", "Ġ", "self"]
