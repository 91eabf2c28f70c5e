"""EAGLE-3: a layer over three hidden states of the target and the embedding of the next token."""

from typing import Any, Self

import torch
from head import Texts
from layers import Layer, linear, norm
from recycled import Recycled
from target import HIDDEN, LLAMA, TAPS, VOCABULARY, Seen, Target
from texts import SEQUENCE
from torch import Tensor

DRAFT_VOCABULARY = 2048


class Eagle3(Recycled):
    """kept [DRAFT_VOCABULARY]: the tokens that can be drafted, in ascending order."""

    def __init__(self, target: Target, kept: Tensor) -> None:
        super().__init__(target)
        self.fc, self.midlayer = linear(len(TAPS) * HIDDEN, HIDDEN), Layer(2 * HIDDEN)
        self.norm, self.lm_head = norm(HIDDEN), linear(HIDDEN, len(kept))
        self.lm_head.weight.data = target.embedding[kept].clone()
        self.norm.weight.data = target.model.model.norm.weight.data.clone()
        self.keep(kept)

    @classmethod
    def new(cls, target: Target, texts: Texts) -> Self:
        written = texts["tokens"][torch.arange(SEQUENCE) >= texts["prompts"][:, None]]
        return cls(target, written.bincount(minlength=VOCABULARY).topk(DRAFT_VOCABULARY).indices.sort().values)

    @classmethod
    def found(cls, target: Target, config: dict[str, Any], tensors: Texts, report: dict[str, Any]) -> Self:
        return cls(target, tensors["d2t"] + torch.arange(len(tensors["d2t"])))

    def features(self, seen: Seen) -> Tensor:
        return self.fc(seen.taps)

    def entered(self, x: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.cat([self.midlayer.input_layernorm(embedded), self.midlayer.hidden_norm(x)], -1)

    def logits(self, x: Tensor) -> Tensor:
        return self.lm_head(self.norm(x))

    def extra(self) -> Texts:
        return {"d2t": self.kept - torch.arange(len(self.kept)), "t2d": self.places >= 0}

    def config(self) -> dict[str, Any]:
        aux = {"eagle_aux_hidden_state_layer_ids": TAPS, "use_aux_hidden_state": True}
        return {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
                "draft_vocab_size": len(self.kept), "eagle_config": aux, **LLAMA}  # fmt: skip
