"""Random Whispers whose answers depend on what they hear, and sounds of noise."""

import numpy as np
import torch
import transformers

SIZES = {
    "vocab_size": 120, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_source_positions": 20,
    "max_target_positions": 64, "num_mel_bins": 8, "pad_token_id": 100, "bos_token_id": 100, "eos_token_id": 100,
    "decoder_start_token_id": 101, "suppress_tokens": None, "begin_suppress_tokens": None, "tie_word_embeddings": False,
}  # fmt: skip
RULES = {
    "suppress_tokens": [3, 4, 28, *range(107, 120)], "begin_suppress_tokens": [7, 54, 100],
    "no_timestamps_token_id": 107, "is_multilingual": True, "lang_to_id": {"<|en|>": 102, "<|de|>": 103},
    "task_to_id": {"translate": 104, "transcribe": 105}, "max_initial_timestamp_index": 10, "pad_token_id": 100,
    "return_timestamps": False, "eos_token_id": 100, "decoder_start_token_id": 101, "forced_decoder_ids": None,
}  # fmt: skip
ADJUSTED = (
    {"repetition_penalty": 1.3, "logit_bias": dict.fromkeys(range(108, 132), -2.0)},
    {"repetition_penalty": 1.3, "sequence_bias": [[[token], -2.0] for token in range(108, 132)]},
)
"""Options by which times are less probable: ours, and those of transformers' `generate`."""
SOUND = 6400
"""Samples that its encoder hears."""


def make_whisper(folder, seed=0, **changes):
    """Write a random Whisper whose answers depend on what it hears, and return it."""
    torch.manual_seed(seed)
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**SIZES | changes)).eval()
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and "embed_positions" not in name:
            weight.data.mul_(20 if "encoder_attn.out" in name else 8 if "embed" in name else 4)
    model.generation_config._from_model_config = False
    for key, value in RULES.items():
        setattr(model.generation_config, key, value)
    model.save_pretrained(folder)
    return model


def noise(size, seed):
    return (np.random.default_rng(seed).normal(size=size) * 0.2).astype(np.float32)


def features_of(sound):
    """Return transformers' features of a sound, float32 [1, 8, 40]."""
    extractor = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    return extractor(sound, sampling_rate=16_000, return_tensors="pt", max_length=SOUND).input_features


def make_pair(folder):
    """Write a target, and a drafter with its encoder and the first layer of its decoder, and return both."""
    model, drafter = make_whisper(folder / "target"), make_whisper(folder / "drafter", decoder_layers=1)
    weights = {name: each for name, each in model.state_dict().items() if name in drafter.state_dict()}
    drafter.load_state_dict(weights)  # so that some drafts are right
    drafter.save_pretrained(folder / "drafter")
    return model, drafter
