"""A listener made by hand: a small Whisper that hears words spoken as tones, a tenth of a second each.

    python scripts/examples/listener.py FOLDER [SOUND.wav WORD..]

writes the model into a folder, and the words as a sound. Every word has a tone of its own, in the middle of a mel band.
The encoder's two convolutions hand on the features of every second frame and a threshold; the decoder's cross-attention
looks for the row in the middle of its word, and the head reads the strongest band there, or the end below a threshold.
"""

import json
import sys
import wave
from functools import cache
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

ENGLISH = ("the", "man", "woman", "child", "house", "day", "sees", "hears", "comes", "goes", "and", "not", "to", "from")
GERMAN = ("der", "die", "das", "Mann", "Frau", "Kind", "Haus", "Tag", "und", "nicht", "kommt", "geht")
WORDS = (*ENGLISH, *GERMAN)
SPECIAL = ("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>",
           "<|notimestamps|>")  # fmt: skip
VOCABULARY = (*WORDS, *SPECIAL)
IDS = {word: number for number, word in enumerate(VOCABULARY)}
END, START, EN, DE, TRANSLATE, TRANSCRIBE, NO_TIMES = range(len(WORDS), len(VOCABULARY))

RATE, MELS, ROWS, HALF = 16_000, 80, 400, 128
"""Samples a second, mel bands, encoder's rows of 20 ms, and numbers of each half of a row: its features, its place."""
SAMPLES, ROWS_PER_WORD, PROMPT = RATE // 10, 5, 4
"""Samples and rows of a word, and tokens before the first."""
BANDS = {word: 8 + 2 * number for number, word in enumerate(WORDS)}
THRESHOLD = MELS
"""Number of a row that is always the same: above it a band counts."""


@cache
def tone(word: str) -> float:
    """Return the frequency of a word in Hz: that at which its mel band is most sensitive."""
    filters = WhisperFeatureExtractor(feature_size=MELS).mel_filters
    return float(filters[:, BANDS[word]].argmax()) * RATE / 400


def speak(words: list[str]) -> np.ndarray:
    """Return the sound of some words, float32 samples."""
    times = np.arange(SAMPLES) / RATE
    return np.concatenate([0.5 * np.sin(2 * np.pi * tone(word) * times) for word in words]).astype(np.float32)


def write_sound(words: list[str], file: Path) -> None:
    """Write the sound of some words as a WAV file of 16 bits."""
    with wave.open(str(file), "wb") as opened:
        opened.setnchannels(1)
        opened.setsampwidth(2)
        opened.setframerate(RATE)
        opened.writeframes((speak(words) * 32767).astype("<i2").tobytes())


@torch.no_grad()
def make_listener(folder: Path) -> Path:
    """Write the listener and its tokenizer into a folder, and return it."""
    model = WhisperForConditionalGeneration(_config()).eval()
    for name, weight in model.named_parameters():
        if "norm" not in name:
            weight.zero_()
    encoder, decoder, one = model.model.encoder, model.model.decoder, torch.eye(HALF)
    for convolution in (encoder.conv1, encoder.conv2):
        size = min(convolution.weight.shape[1], THRESHOLD + 1)
        convolution.weight[:size, :size, 1] = torch.eye(size)
    encoder.conv1.bias[THRESHOLD] = 1.0
    codes = _codes(ROWS)
    encoder.embed_positions.weight[:, HALF:] = codes
    for place in range(decoder.embed_positions.weight.shape[0]):
        word = max(0, place - PROMPT + 1)  # the start token, whose successor is the language, hears the first word
        decoder.embed_positions.weight[place, HALF:] = codes[min(ROWS_PER_WORD * word + 2, ROWS - 1)]
    attention = decoder.layers[0].encoder_attn
    attention.q_proj.weight[:HALF, HALF:], attention.k_proj.weight[:HALF, HALF:] = 4 * one, one
    attention.v_proj.weight[:HALF, :HALF], attention.out_proj.weight[:HALF, :HALF] = one, one
    head = model.proj_out.weight
    for word, band in BANDS.items():
        head[IDS[word], band] = 1.0
        head[EN if word in ENGLISH else DE, band] = 0.5
    head[END, THRESHOLD] = 1.0
    _save(model, folder)
    return folder


def _codes(count: int) -> torch.Tensor:
    """Return rows with as many ones as minus ones, so that no norm moves them."""
    random = torch.Generator().manual_seed(0)
    return torch.where(torch.rand(count, HALF, generator=random).argsort(1) < HALF // 2, 1.0, -1.0)


def _config() -> WhisperConfig:
    return WhisperConfig(
        vocab_size=len(VOCABULARY), d_model=2 * HALF, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
        decoder_attention_heads=1, encoder_ffn_dim=16, decoder_ffn_dim=16, num_mel_bins=MELS, max_source_positions=ROWS,
        max_target_positions=96, pad_token_id=END, bos_token_id=END, eos_token_id=END, decoder_start_token_id=START,
        suppress_tokens=None, begin_suppress_tokens=None, tie_word_embeddings=False,
    )  # fmt: skip


def _save(model: WhisperForConditionalGeneration, folder: Path) -> None:
    rules = {
        "suppress_tokens": list(range(START, NO_TIMES + 1)), "begin_suppress_tokens": [END], "is_multilingual": True,
        "no_timestamps_token_id": NO_TIMES, "lang_to_id": {"<|en|>": EN, "<|de|>": DE},
        "task_to_id": {"translate": TRANSLATE, "transcribe": TRANSCRIBE}, "return_timestamps": False,
        "max_length": 96, "forced_decoder_ids": None, "eos_token_id": END, "decoder_start_token_id": START,
        "pad_token_id": END, "max_initial_timestamp_index": 1,
    }  # fmt: skip
    model.generation_config._from_model_config = False  # else transformers drops what is Whisper's alone
    for key, value in rules.items():
        setattr(model.generation_config, key, value)
    model.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=MELS, chunk_length=ROWS // 50).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel(IDS, unk_token=SPECIAL[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))


if __name__ == "__main__":
    make_listener(Path(sys.argv[1]))
    if sys.argv[2:]:
        write_sound(sys.argv[3:], Path(sys.argv[2]))
