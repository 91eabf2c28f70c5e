"""Attention of layers that expand their cache's rows to keys and values: changes of the query and the context in place
of that, against transformers' own layers and plain torch."""

import pytest
import torch
from torch import Tensor
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

from speccompile.compiler.step import ops
from speccompile.compiler.step.latent import absorb_query, is_latent
from speccompile.compiler.step.repeated import grouped_heads, of_half, repeated_heads

BATCH, TOKENS, ROWS = 2, 3, 7


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def plain(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attend over all rows, by heads that read the key heads in turn."""
    shared = query.shape[1] // keys.shape[1]
    keys, values = (each.repeat_interleave(shared, 1) for each in (keys, values))
    return torch.softmax(query @ keys.transpose(2, 3) * scale, -1) @ values


def attend(query: Tensor, keys: Tensor, values: Tensor, scale: float, *, latent: bool = False) -> Tensor:
    """Return the neutral op, half of the rows committed."""
    committed = ROWS // 2
    rows = [part for each in (keys, values) for part in (each[:, :, committed:], each[:, :, :committed])]
    bias = torch.zeros(BATCH, 1, TOKENS, ROWS - committed)
    length, positions = torch.full((BATCH,), committed), torch.full((BATCH, TOKENS), ROWS)
    ordered = (rows[0], rows[2], rows[1], rows[3])
    return ops.attend(query, *ordered, length, positions, bias, scale, 0.0, 0, None, latent)


@pytest.fixture(scope="module")
def layer() -> DeepseekV3Attention:
    torch.manual_seed(0)
    sizes = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 6, "qk_nope_head_dim": 12, "v_head_dim": 10}
    config = DeepseekV3Config(hidden_size=32, num_attention_heads=4, num_key_value_heads=4, **sizes)
    made = DeepseekV3Attention(config, 0).requires_grad_(False)
    made.kv_b_proj.weight.normal_()
    return made


def test_absorbed_attention_is_attention_over_what_transformers_expands(layer):
    rows, turned = random(BATCH, 1, ROWS, 16), random(BATCH, 1, ROWS, 6)
    query = random(BATCH, 4, TOKENS, 18)
    assert is_latent(layer, rows, turned)
    latent_query, outwards = absorb_query(layer, query)
    assert latent_query.shape == (BATCH, 4, TOKENS, 16 + 6)
    got = attend(latent_query, rows, turned, 0.2, latent=True) @ outwards
    torch.testing.assert_close(got, plain(query, *layer.expand_kv(rows, turned), 0.2), atol=1e-5, rtol=0)


def test_what_is_no_latent_row_is_not_taken_for_one(layer):
    rows, turned = random(BATCH, 1, ROWS, 16), random(BATCH, 1, ROWS, 6)
    assert not is_latent(layer, rows.expand(-1, 2, -1, -1), turned)
    assert not is_latent(layer, rows[..., :-1], turned)
    assert not is_latent(torch.nn.Linear(16, 88), rows, turned)


@pytest.mark.parametrize(("groups", "times", "shared"), [(2, 3, 1), (2, 2, 2), (1, 4, 1)])
def test_keys_that_are_repeated_are_read_where_they_lie(groups, times, shared):
    keys, values = random(BATCH, groups, ROWS, 8), random(BATCH, groups, ROWS, 5)
    query = random(BATCH, groups * times * shared, TOKENS, 8)
    expected = plain(query, keys.repeat(1, times, 1, 1), values.repeat(1, times, 1, 1), 0.3)
    got = repeated_heads(attend(grouped_heads(query, groups, times), keys, values, 0.3), groups, times)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("groups", [2, 4])
def test_differential_attention_reads_half_of_the_values_twice(groups, half):
    """Compare with DiffLlama's chunk(values, 2)[half].repeat(1, 2, 1, 1)."""
    keys, values, query = random(BATCH, groups, ROWS, 8), random(BATCH, groups, ROWS, 5), random(BATCH, 8, TOKENS, 8)
    expected = plain(query, keys, values.chunk(2, 1)[half].repeat(1, 2, 1, 1), 0.3)
    own, other = (attend(query, keys, values.roll(shift, 1), 0.3) for shift in (0, groups // 2))
    torch.testing.assert_close(of_half(own, other, half), expected, atol=1e-5, rtol=0)
