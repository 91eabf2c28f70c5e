"""The demo's target, which stays as it is: what it makes of a text, and how it goes on."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaForCausalLM

RECIPES = Path(__file__).parents[2] / "recipes"
FOLDER = RECIPES / "demo" / "target"
VOCABULARY, HIDDEN, HEADS, GROUPS, SIZE, INNER, EPSILON = 4096, 256, 4, 2, 64, 480, 1e-6
TAPS = [0, 2, 4]  # the residual stream that leaves these layers
EXIT = 2  # so many layers are before the place where Kangaroo leaves the target
# What the config.json of a head says alike.
LLAMA = {"hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "head_dim": SIZE,
         "intermediate_size": INNER, "hidden_act": "silu", "rms_norm_eps": EPSILON, "rope_theta": 10000.0,
         "vocab_size": VOCABULARY, "max_position_embeddings": 2048, "attention_bias": False, "torch_dtype": "bfloat16",
         "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}  # fmt: skip


class Seen(NamedTuple):
    """What the target made of tokens [B, T]: taps [B, T, 3 H], norm's output [B, T, H], logits [B, T, V], and what
    leaves the layer before the exit, [B, T, H]."""

    tokens: Tensor
    taps: Tensor
    final: Tensor
    logits: Tensor
    exit: Tensor


class Target:
    """The frozen model. The hooks keep, in found, what leaves the tapped layers."""

    def __init__(self) -> None:
        self.model = LlamaForCausalLM.from_pretrained(FOLDER).eval().requires_grad_(False)
        self.embedding = self.model.get_input_embeddings().weight
        self.found: dict[int, Tensor] = {}
        for tap in {*TAPS, EXIT - 1}:
            self.model.model.layers[tap].register_forward_hook(
                lambda module, given, out, tap=tap: self.found.__setitem__(tap, out)
            )

    @torch.no_grad()
    def read(self, tokens: Tensor) -> Seen:
        final = self.model.model(tokens, use_cache=False).last_hidden_state
        taps = torch.cat([self.found[tap] for tap in TAPS], -1)
        return Seen(
            tokens, taps.float(), final.float(), self.model.lm_head(final).float(), self.found[EXIT - 1].float()
        )

    @torch.no_grad()
    def continued(self, tokens: Tensor, length: int, temperature: Tensor | None = None) -> Tensor:
        """[B, length]: the tokens and what follows, greedily or (where temperature [B, 1] is not 0) drawn."""
        cache, rows, given = DynamicCache(), [tokens], tokens
        while sum(row.shape[1] for row in rows) < length:
            logits = self.model(given, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
            given = logits.argmax(-1, keepdim=True)
            if temperature is not None:
                drawn = torch.multinomial((logits / temperature.clamp(min=0.1)).softmax(-1), 1)
                given = torch.where(temperature > 0, drawn, given)
            rows.append(given)
        return torch.cat(rows, 1)
