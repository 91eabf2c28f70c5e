#!/usr/bin/env python3
"""Write a random target of 0.35 B parameters and a drafter that agrees with it by construction, and a recipe for them.

scripts/agreeing_pair.py FOLDER [--context FACTOR]      # then: speccompile build FOLDER --skip-prove

For what speculation wins on a large target, where no trained pair of that shape is at hand. How they agree:

- The target's embedding and head are zero beyond the first 256 of its 1024 columns; the drafter, 256 wide, has those
  columns as its own. Without any layer both name the same next token: the row of the head, of 32000 random directions,
  that points most along the last token's embedding. Norms scale rows alone, so the width makes no difference.
- The layers of both are random and unrelated. What each adds (o_proj, down_proj) is scaled by FACTOR, so the target's
  attention and MLPs, at full size and cost, now and then overrule that choice. A larger factor means less agreement.

At the default a round of 4 drafts gave 3.08 tokens in float32 and 3.07 with both in int4, the bonus token included (12
of the prompts, 128 new tokens each). The text hardly loops: most prompts got 128 different tokens, the least varied 50.
Prompts are random tokens, 60 of 128.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import yaml
from random_llama import CONFIG
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

SHARED = 256  # columns of the embedding and the head: the drafter's width
DRAFTER = CONFIG | {
    "num_hidden_layers": 2,
    "hidden_size": SHARED,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 704,
}
PROMPTS, PROMPT_LENGTH = 60, 128


def recipe() -> dict[str, Any]:
    return {
        "name": "agreeing-pair",
        "target": {"model": "target"},
        "drafter": {"kind": "model", "model": "drafter", "tokens": 4},
        "cache": {"max_length": 512},
        "prove": {"prompts": "prompts.jsonl", "max_new_tokens": 128},
    }


def write_model(folder: Path, config: dict[str, Any], embedding: Tensor, head: Tensor, context: float) -> None:
    """Write a random Llama whose layers add `context` times what they would. embedding, head: [vocabulary, SHARED]."""
    model = LlamaForCausalLM(LlamaConfig(**config)).to(torch.float32)
    for layer in model.model.layers:
        for projection in (layer.self_attn.o_proj, layer.mlp.down_proj):
            projection.weight.data *= context
    _set_columns(model.model.embed_tokens, embedding)
    _set_columns(model.lm_head, head)
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    model.save_pretrained(folder)


def _set_columns(module: nn.Embedding | nn.Linear, columns: Tensor) -> None:
    module.weight.data.zero_()
    module.weight.data[:, : columns.shape[1]] = columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--context", type=float, default=0.09, metavar="FACTOR", help="0.09 by default")
    options = parser.parse_args()
    torch.manual_seed(0)
    vocabulary = CONFIG["vocab_size"]
    embedding = torch.randn(vocabulary, SHARED)
    # Rows of one length: a longer one would be named more often, and the text would turn in a few tokens.
    head = nn.functional.normalize(torch.randn(vocabulary, SHARED))
    prompts = torch.randint(vocabulary, (PROMPTS, PROMPT_LENGTH)).tolist()
    write_model(options.folder / "target", CONFIG, embedding, head, options.context)
    write_model(options.folder / "drafter", DRAFTER, embedding, head, options.context)
    lines = [json.dumps({"token_ids": prompt}) + "\n" for prompt in prompts]
    (options.folder / "prompts.jsonl").write_text("".join(lines))
    (options.folder / "recipe.yaml").write_text(yaml.safe_dump(recipe(), sort_keys=False))


if __name__ == "__main__":
    main()
