"""A published-size head over an 8 B target: planned from headers alone, whose data are holes in files."""

import json

from speccompile.recipe import load_recipe, make_plan
from tests.heads.sparse import llama_shapes, write_sparse

TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
}  # fmt: skip
HEAD = TARGET | {"num_hidden_layers": 1, "draft_vocab_size": 32000, "max_position_embeddings": 2048}
DRAFTED, WIDTH = 32000, 4096


def test_an_8b_target_with_its_eagle3_head_is_planned_from_headers(tmp_path):
    for name in ("target", "head"):
        (tmp_path / name).mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(TARGET))
    (tmp_path / "head" / "config.json").write_text(json.dumps(HEAD))
    write_sparse(tmp_path / "target" / "model.safetensors", llama_shapes(TARGET), "BF16")
    layer = llama_shapes(HEAD, inputs=2 * WIDTH)
    own = {name.replace("model.layers.0", "midlayer"): shape for name, shape in layer.items() if ".layers.0." in name}
    own |= {"midlayer.hidden_norm.weight": (WIDTH,), "norm.weight": (WIDTH,), "fc.weight": (WIDTH, 3 * WIDTH)}
    own |= {"lm_head.weight": (DRAFTED, WIDTH)}
    write_sparse(tmp_path / "head" / "model.safetensors", own, "F16", {"d2t": ("I64", (DRAFTED,))})
    recipe = tmp_path / "recipe.yaml"
    tree = "{depth: 8, top_k: 10, nodes: 59}"
    recipe.write_text(f"name: big\ntarget: {{model: target}}\ndrafter: {{model: head, tree: {tree}}}\n")
    plan = make_plan(load_recipe(recipe))  # nothing is read but headers
    head = plan.drafter.head
    assert (head.dialect, head.taps) == ("SafeAILab", ("layers.2.input", "layers.16.input", "layers.29.input"))
    assert (head.draft_vocabulary_size, head.vocabulary_size, plan.drafter.tokens) == (DRAFTED, 128256, 59)
    assert 0.7e9 < head.weight_bytes < 1.0e9
