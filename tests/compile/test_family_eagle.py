"""EAGLE: its reference against transformers' own layer, whose drafter `test_family_rounds` checks."""

from functools import partial

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.drafters.eagle import reference
from tests import zoo
from tests.compile.eager_rounds import plan_of
from tests.heads.eagle import eagle


@torch.no_grad()
def test_the_reference_is_a_layer_of_transformers_without_its_first_norm(tmp_path):
    plan = plan_of(tmp_path, partial(eagle, dialect="vllm", qkv_bias=True), "tokens: 3")
    (teacher,) = reference.teachers(drafter_context(open_round(plan).draft))
    random = np.random.default_rng(1)
    text, drafts = random.integers(zoo.VOCABULARY, size=12).tolist(), [5, 6]
    features = random.standard_normal((11, 64)).astype(np.float32)

    weights = load_file(tmp_path / "head" / "model.safetensors")
    shape = plan.drafter.head.layers
    config = LlamaConfig(
        hidden_size=64, intermediate_size=shape.intermediate_size, num_attention_heads=shape.heads, rms_norm_eps=1e-5,
        num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, attention_bias=True, attn_implementation="eager",
    )  # fmt: skip
    layer, rotary = LlamaDecoderLayer(config, 0), LlamaRotaryEmbedding(config)
    layer.input_layernorm, layer.self_attn.o_proj.bias = torch.nn.Identity(), None
    layer.load_state_dict({n[len("layers.0.") :]: t for n, t in weights.items() if n.startswith("layers.0.")})
    target = AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    x, following, expected = torch.tensor(features), text[1:], []
    for draft in [*drafts, None]:
        embedded = target.get_input_embeddings()(torch.tensor(following))
        z = functional.linear(torch.cat([embedded, x], -1), weights["fc.weight"], weights["fc.bias"])[None]
        places = torch.arange(z.shape[1])[None]
        mask = torch.full((z.shape[1], z.shape[1]), -torch.inf).triu(1)[None, None]
        hidden = layer(z, attention_mask=mask, position_ids=places, position_embeddings=rotary(z, places))[0]
        expected.append(target.lm_head(hidden[-1]))
        x, following = torch.cat([x, hidden[-1:]]), [*following, draft]
    np.testing.assert_allclose(
        teacher(DrafterInputs(text, features, text[1:]), drafts), torch.stack(expected), rtol=1e-4, atol=1e-4
    )
