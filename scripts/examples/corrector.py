"""A corrector of words made by hand: a BART that copies its source word by word, and replaces wrong forms.

    python scripts/examples/corrector.py FOLDER

The answer's word at a place depends on the source's word there alone: encoder and decoder add equal codes of their
positions, cross-attention looks for the same code, and the head reads the code of the word that it finds.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BartConfig, BartForConditionalGeneration

WORDS = (
    *("a", "and", "are", "as", "at", "be", "because", "before", "bought", "but", "by", "can", "caught", "children"),
    *("could", "day", "feet", "for", "from", "good", "have", "he", "her", "home", "house", "I", "in", "is", "it"),
    *("letter", "many", "men", "mice", "my", "new", "no", "not", "of", "on", "one", "people", "said", "see", "she"),
    *("some", "taught", "that", "the", "their", "then", "there", "they", "this", "thought", "time", "to", "two"),
    *("very", "was", "we", "went", "were", "when", "who", "will", "with", "women", "word", "wrote", "year", "you"),
)
WRONG_FORMS = {
    "buyed": "bought", "catched": "caught", "childs": "children", "foots": "feet", "goed": "went", "mans": "men",
    "mouses": "mice", "teached": "taught", "thinked": "thought", "womans": "women", "writed": "wrote",
}  # fmt: skip
SPECIAL = ["<s>", "</s>", "<unk>"]
VOCABULARY = [*SPECIAL, *WORDS, *WRONG_FORMS]
IDS = {word: number for number, word in enumerate(VOCABULARY)}
START, END, FIRST, WRONG = 0, 1, len(SPECIAL), len(SPECIAL) + len(WORDS)
"""Tokens from FIRST on are right, from WRONG on wrong forms."""
WIDTH, LONGEST = 256, 128


def corrected(source: list[int]) -> list[int]:
    """Return what the corrector writes: the end of the source ends the answer."""
    return [IDS[WRONG_FORMS.get(VOCABULARY[token], VOCABULARY[token])] for token in source]


@torch.no_grad()
def copying_model(written: list[int], width: int, layers: int, heads: int, ffn: int) -> BartForConditionalGeneration:
    """Return a model that writes the token `written[t]` for a token t of its source. All layers but the decoder's first
    cross-attention add nothing."""
    config = BartConfig(
        vocab_size=len(written), d_model=width, encoder_layers=layers, decoder_layers=layers,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=ffn, decoder_ffn_dim=ffn,
        max_position_embeddings=LONGEST, pad_token_id=START, bos_token_id=START, eos_token_id=END,
        decoder_start_token_id=START, forced_eos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    model = BartForConditionalGeneration(config).eval()
    half, random = width // 2, torch.Generator().manual_seed(0)

    def codes(count: int) -> torch.Tensor:
        """Return rows with as many ones as minus ones, so that no norm moves them."""
        return torch.where(torch.rand(count, half, generator=random).argsort(1) < half // 2, 1.0, -1.0)

    words, places, one = codes(len(written)), codes(LONGEST + 2), torch.eye(half)
    for name, weight in model.named_parameters():
        if "norm" not in name:
            weight.zero_()
    inner = model.model
    for side in (inner.encoder, inner.decoder):
        side.embed_positions.weight[:, half:] = places
    inner.encoder.embed_tokens.weight[:, :half] = words
    attention = inner.decoder.layers[0].encoder_attn
    attention.q_proj.weight[:half, half:], attention.k_proj.weight[:half, half:] = one, one
    attention.v_proj.weight[:half, :half], attention.out_proj.weight[:half, :half] = one, one
    model.lm_head.weight[:, :half].index_add_(0, torch.tensor(written), words)
    return model


def make_corrector(folder: Path) -> Path:
    """Write the corrector and its tokenizer into a folder, and return it."""
    copying_model(corrected(list(range(len(VOCABULARY)))), WIDTH, layers=1, heads=1, ffn=16).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel(IDS, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", END)])
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    return folder


if __name__ == "__main__":
    make_corrector(Path(sys.argv[1]))
