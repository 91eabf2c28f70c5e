"""A corrector made by hand: a BART that copies its source token by token, and replaces those that are wrong.

The answer's token at a place depends on the source's token there alone: encoder and decoder add equal codes of their
positions, cross-attention looks for the same code, and the head reads the code of the token that it finds.
"""

from pathlib import Path

import torch
from transformers import BartConfig, BartForConditionalGeneration

START, END = 0, 1
FIRST, WRONG, SIZE = 2, 48, 56
"""Tokens from FIRST to WRONG are right, those behind them wrong: each has one that replaces it."""
WIDTH, LONGEST = 256, 128


def corrected(source: list[int]) -> list[int]:
    """Return what the corrector writes: the end of the source ends the answer."""
    return [token if token < WRONG else FIRST + 3 * (token - WRONG) for token in source]


def make_sources(count: int, length: int, share: float, seed: int) -> list[list[int]]:
    """Return texts in which this share of the tokens is wrong, each with its end."""
    random = torch.Generator().manual_seed(seed)
    texts = torch.randint(FIRST, WRONG, (count, length), generator=random)
    wrong = torch.randint(WRONG, SIZE, (count, length), generator=random)
    is_wrong = torch.rand(count, length, generator=random) < share
    return [[*row, END] for row in torch.where(is_wrong, wrong, texts).tolist()]


@torch.no_grad()
def make_corrector(folder: Path) -> Path:
    """Write the corrector into a folder, without a tokenizer."""
    config = BartConfig(
        vocab_size=SIZE, d_model=WIDTH, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
        decoder_attention_heads=1, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=LONGEST,
        pad_token_id=START, bos_token_id=START, eos_token_id=END, decoder_start_token_id=START,
        forced_eos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    model = BartForConditionalGeneration(config).eval()
    half = WIDTH // 2
    random = torch.Generator().manual_seed(0)

    def codes(count: int) -> torch.Tensor:
        """Return rows of ones and minus ones, as many of each, so that no norm moves them."""
        order = torch.rand(count, half, generator=random).argsort(1)
        return torch.where(order < half // 2, 1.0, -1.0)

    tokens, places = codes(SIZE), codes(LONGEST + 2)
    for name, weight in model.named_parameters():
        if "norm" not in name:
            weight.zero_()
    inner = model.model
    for side in (inner.encoder, inner.decoder):
        side.embed_positions.weight[:, half:] = places
    inner.encoder.embed_tokens.weight[:, :half] = tokens
    attention, one = inner.decoder.layers[0].encoder_attn, torch.eye(half)
    attention.q_proj.weight[:half, half:], attention.k_proj.weight[:half, half:] = one, one
    attention.v_proj.weight[:half, :half], attention.out_proj.weight[:half, :half] = one, one
    for token in range(SIZE):
        model.lm_head.weight[corrected([token])[0], :half] += tokens[token]
    model.generation_config.pad_token_id = START
    model.save_pretrained(folder)
    return folder
