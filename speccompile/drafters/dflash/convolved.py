"""DFlash2's layers: convolutions mix inputs and outputs of attention and MLP with those of earlier block positions."""

import torch
from torch import Tensor, nn

from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.draft.layers import Layer, Turn
from speccompile.plan.layers import LayerShape


class Convolution(nn.Module):
    """Two causal convolutions over the positions of a block, before and after a part of a layer. The kernels of a
    position are the module's plus a term of its hidden state, which all channels of a group share."""

    def __init__(self, width: int, kernel: int, group: int) -> None:
        super().__init__()
        self.kernel, self.group = kernel, group
        self.base_kernel = nn.Parameter(torch.zeros(2, kernel, width))
        self.kernel_projection = nn.Linear(width, 2 * kernel * (width // group), bias=False)

    def before(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input [B, S, h] of the part, and the positions' terms of the second convolution's kernels."""
        added = self.kernel_projection(x).unflatten(-1, (2, self.kernel, -1))
        return self._mixed(x, added[:, :, 0], self.base_kernel[0]), added[:, :, 1]

    def behind(self, x: Tensor, added: Tensor) -> Tensor:
        """Return the convolved output of the part."""
        return self._mixed(x, added, self.base_kernel[1])

    def _mixed(self, x: Tensor, added: Tensor, base: Tensor) -> Tensor:
        """Convolve x [B, S, h] with kernels base [kernel, h] + added [B, S, kernel, groups]."""
        mixed = torch.zeros_like(x)
        for back in range(self.kernel):
            shifted = x if back == 0 else torch.cat([torch.zeros_like(x[:, :back]), x[:, :-back]], 1)
            factors = base[back] + added[:, :, back].repeat_interleave(self.group, -1)
            mixed = mixed + shifted * factors
        return mixed


class ConvolvedLayer(Layer):
    """A decoder layer with convolutions of the block; the rows of the context are not convolved."""

    def __init__(self, layers: LayerShape, index: int, kernel: int, group: int) -> None:
        super().__init__(layers, index)
        self.attention_conv = Convolution(layers.hidden_size, kernel, group)
        self.mlp_conv = Convolution(layers.hidden_size, kernel, group)

    def forward(self, x: Tensor, current: CachedPass, turn: Turn) -> Tensor:
        read, added = self.attention_conv.before(self.input_layernorm(x))
        x = x + self.attention_conv.behind(self.self_attn(read, current, turn), added)
        read, added = self.mlp_conv.before(self.post_attention_layernorm(x))
        return x + self.mlp_conv.behind(self.mlp(read), added)
