"""How many tokens a round brings with a head, on the demo's prompts."""

import json
from collections import Counter

import torch
from head import Head
from target import RECIPES, Target
from transformers import PreTrainedTokenizerFast

MOST = 8  # drafts that some head makes at once, or one more


@torch.no_grad()
def measure(head: Head, target: Target, tokenizer: PreTrainedTokenizerFast, wanted: int = 64) -> dict[str, float]:
    """New tokens per round over all prompts, as a run counts them: the first token comes with the prompt."""
    made, rounds = 0, Counter()
    for line in (RECIPES / "demo" / "prompts.jsonl").read_text().splitlines():
        prompt = torch.tensor([tokenizer(json.loads(line)["prompt"])["input_ids"]])
        first = prompt.shape[1]
        seen = target.read(target.continued(prompt, first + wanted + MOST))
        new = seen.tokens[0, first : first + wanted].tolist()
        end = new.index(0) if 0 in new else wanted - 1
        made += end
        for name, lengths in head.accepted(seen, first, wanted - 1).items():
            place = 0
            while place < end:
                place, rounds[name] = place + int(lengths[place]) + 1, rounds[name] + 1
    return {name: round(made / count, 3) for name, count in rounds.items()}
