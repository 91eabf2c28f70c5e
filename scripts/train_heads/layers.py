"""The transformer layer which heads have in common, as wide as the target's."""

import torch
from target import EPSILON, GROUPS, HEADS, HIDDEN, INNER, SIZE
from torch import Tensor, nn
from torch.nn import functional


def linear(given: int, made: int) -> nn.Linear:
    return nn.Linear(given, made, bias=False)


def norm(width: int) -> nn.RMSNorm:
    return nn.RMSNorm(width, EPSILON)


def split(x: Tensor) -> Tensor:
    """[B, N, heads * SIZE] to [B, heads, N, SIZE]."""
    return x.unflatten(-1, (-1, SIZE)).transpose(1, 2)


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """RoPE. x [B, heads, N, SIZE], positions [B or 1, N]."""
    frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2) / SIZE)
    angles = (positions[..., None].float() * frequencies).repeat(1, 1, 2)[:, None]
    left, right = x.float().chunk(2, -1)
    return x.float() * angles.cos() + torch.cat([-right, left], -1) * angles.sin()


class Attention(nn.Module):
    """The projections of attention. width: of what they read; normed: whether queries and keys are."""

    def __init__(self, width: int, normed: bool) -> None:
        super().__init__()
        self.q_proj, self.o_proj = linear(width, HEADS * SIZE), linear(HEADS * SIZE, HIDDEN)
        self.k_proj, self.v_proj = linear(width, GROUPS * SIZE), linear(width, GROUPS * SIZE)
        self.q_norm, self.k_norm = (norm(SIZE), norm(SIZE)) if normed else (nn.Identity(), nn.Identity())

    def queries(self, x: Tensor, positions: Tensor) -> Tensor:
        return rotated(self.q_norm(split(self.q_proj(x))), positions)

    def keys(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, HEADS, N, SIZE]."""
        keys = rotated(self.k_norm(split(self.k_proj(x))), positions)
        copies = HEADS // GROUPS
        return keys.repeat_interleave(copies, 1), split(self.v_proj(x)).float().repeat_interleave(copies, 1)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = linear(HIDDEN, INNER), linear(HIDDEN, INNER)
        self.down_proj = linear(INNER, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A layer without its reading, which is the family's own: of rows of some width, normed or raw."""

    def __init__(self, width: int = HIDDEN, normed: bool = False, raw: bool = False) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(width, normed), MLP()
        self.post_attention_layernorm = norm(HIDDEN)
        if not raw:
            self.input_layernorm = norm(HIDDEN)
        if width > HIDDEN:
            self.hidden_norm = norm(HIDDEN)  # of the features beside the tokens

    def finished(self, x: Tensor, read: Tensor) -> Tensor:
        x = x + self.self_attn.o_proj(read.transpose(1, 2).flatten(2))
        return x + self.mlp(self.post_attention_layernorm(x))

    def over(self, x: Tensor, read: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """The layer over rows which are all there: residual x, attention over what is read of them."""
        keys, values = self.self_attn.keys(read, positions)
        queries = self.self_attn.queries(read, positions)
        return self.finished(x, functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask))
