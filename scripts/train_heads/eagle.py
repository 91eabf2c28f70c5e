"""EAGLE: a layer over the target's last hidden state and the embedding of the next token, and the target's head."""

from typing import Any

import torch
from layers import Layer, linear
from recycled import Recycled
from target import HIDDEN, LLAMA, VOCABULARY, Seen, Target
from torch import Tensor
from torch.nn import functional


class Eagle(Recycled):
    """It has no norm before the attention, and none behind the layer."""

    unroll = 3  # all tokens can be drafted: that makes a step dear

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.fc, self.midlayer = linear(2 * HIDDEN, HIDDEN), Layer(raw=True)
        # At first the features, which stand last, pass as they are.
        self.fc.weight.data = torch.eye(HIDDEN, 2 * HIDDEN).roll(HIDDEN, 1)
        self.keep(torch.arange(VOCABULARY))

    def features(self, seen: Seen) -> Tensor:
        return seen.final

    def entered(self, x: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        x = self.fc(torch.cat([embedded, x], -1))
        return x, x

    def logits(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.embedding)

    def tensors(self) -> dict[str, Tensor]:
        return {name.replace("midlayer.", "layers.0."): value for name, value in super().tensors().items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        super().restore({name.replace("layers.0.", "midlayer."): value for name, value in tensors.items()})

    def config(self) -> dict[str, Any]:
        return {"architectures": ["EagleLlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1,
                "bias": False, **LLAMA}  # fmt: skip
