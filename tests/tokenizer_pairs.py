"""Two tokenizers of different kinds, trained on different texts, and models for them."""

import json
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from speccompile.drafters.token_map import Tokenizer as Side
from speccompile.drafters.token_map import TokenizerPair, make_token_map
from tests.json_files import merge_json

ENGLISH = [
    "the quick brown fox jumps over the lazy dog and the other dogs jump over the fox",
    "a reader of books returns the book to the reader who lent it, and reads another",
    "import numpy as np\n\ndef main(self):\n    return self.main()\n",
] * 4
CODE = [
    "def quick(self, other):\n    return self.other(other) if other else self\n",
    "class Reader:\n    def __init__(self, book):\n        self.book = book\n",
    "for each in the_list: print(each, the_list[0], book, dog)\n",
] * 4
SIZE = 340
"""Rows of both models: more than either tokenizer has tokens."""


@cache
def byte_level() -> Tokenizer:
    """Train a byte-level BPE as of GPT-2, on English."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(ENGLISH, trainer)
    return tokenizer


def with_signs() -> Tokenizer:
    """Train a BPE as of Llama 2, with SentencePiece's spaces and bytes for what it has no tokens for, on code."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator(CODE, trainers.BpeTrainer(vocab_size=332, special_tokens=special))
    return as_llama(tokenizer)


def as_llama(tokenizer: Tokenizer) -> Tokenizer:
    """Return it with its bytes as plain tokens: only those are added ones that stand for no text."""
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [each for each in data["added_tokens"] if not each["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(data))


def pair_in(folder: Path) -> TokenizerPair:
    """Return the tokenizers of `save_pair`."""
    return TokenizerPair(Side(folder / "target", SIZE, (), (0,)), Side(folder / "drafter", SIZE, (), (2,)))


def save_pair(folder: Path) -> None:
    """Write `target` and `drafter` into a folder: byte-level and SentencePiece-like. The drafter is the target with
    noise, its rows of common tokens under its own ids: it drafts tokens that the target accepts."""
    target = _model(0)
    _saved(target, byte_level(), folder / "target", eos=0)
    drafter, other = _model(0), _model(1)
    tokenizer = with_signs()
    _saved(drafter, tokenizer, folder / "drafter", eos=2)
    tables = make_token_map(pair_in(folder))
    ours, its = torch.from_numpy(tables.target_ids), torch.from_numpy(tables.drafter_ids)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(2)
        for get in (LlamaForCausalLM.get_input_embeddings, LlamaForCausalLM.get_output_embeddings):
            weight = get(other).weight.clone()
            weight[its] = get(target).weight[ours]
            get(drafter).weight.copy_(weight)
        for parameter in drafter.parameters():
            parameter += 0.02 * parameter.std() * torch.randn(parameter.shape)
    _saved(drafter, tokenizer, folder / "drafter", eos=2)
    merge_json(folder / "drafter" / "config.json", {"pard_token": SIZE - 1})


def _model(seed: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=SIZE, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.5 / parameter.shape[-1] ** 0.5)
        model.get_input_embeddings().weight.normal_()
        for layer in model.model.layers:  # the last token counts most: texts that both read differently agree
            layer.self_attn.o_proj.weight *= 0.1
    return model


def _saved(model: PreTrainedModel, tokenizer: Tokenizer, folder: Path, eos: int) -> None:
    model.config.eos_token_id = eos
    model.generation_config.eos_token_id = eos
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
