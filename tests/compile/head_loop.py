"""A bundle's own loop beside an oracle: what a head drafts in a round is what its formula gives over the whole text.

Nothing is kept from round to round on the other side: features by transformers' hidden states, rows for all positions,
drafts one after the other. So every mistake of a cache, a chunk, a catch-up or a position shows.
"""

from pathlib import Path

import numpy as np
from transformers import AutoModelForCausalLM

from speccompile.compiler.build import build
from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.graphs import eager_taps
from speccompile.drafters import module_of
from speccompile.recipe import Plan
from speccompile.runtime import Bundle
from speccompile.runtime.generation import SequenceState
from tests import zoo


def check_loop(plan: Plan, folder: Path, prompt_length: int = 45, new_tokens: int = 24) -> int:
    """Build the plan, a greedy chain for one sequence, and compare the drafts of every round. Returns how many."""
    bundle = Bundle.open(build(plan, folder / "loop", prove=False), threads=1)
    target = AutoModelForCausalLM.from_pretrained(plan.target.folder, attn_implementation="eager").eval()
    (teacher,) = module_of(plan.drafter.kind, "reference").teachers(drafter_context(open_round(plan).draft))
    prompt = np.random.default_rng(4).integers(3, zoo.VOCABULARY, prompt_length).tolist()
    sequence, engine, compared = (
        SequenceState(prompt, new_tokens, plan.max_length, [], None),
        bundle._loop.rounds.engine,
        0,
    )
    for _ in bundle._loop.generate([sequence], True):
        if sequence.is_active:
            window = engine.host_view("window", (plan.batch_size, plan.drafter.tokens + 1))[0].tolist()
            text = prompt + sequence.token_ids
            assert window[0] == text[-1]
            taps = plan.drafter.head.taps
            features = eager_taps(target, text[:-1], taps) if taps else None
            compared += _compare(window[1:], DrafterInputs(text, features, text[1:]), teacher)
    return compared


def _compare(drafts: list[int], inputs: DrafterInputs, teacher: ReferenceLogits) -> int:
    """Check that every draft is the best token after those before it, or as good as that."""
    for index, (draft, logits) in enumerate(zip(drafts, teacher(inputs, drafts[:-1]), strict=True)):
        best = int(logits.argmax())
        assert logits[best] - logits[draft] < 1e-4 * max(1, abs(logits[best])), (index, draft, best)
    return len(drafts)
