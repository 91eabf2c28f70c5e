"""The objects `usage` and `metrics` of responses."""

from collections.abc import Sequence
from typing import Any

from speccompile.runtime import Generation


def usage(prompt_tokens: int, new_tokens: int) -> dict[str, Any]:
    """Return the usage while an answer comes."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": new_tokens,
        "total_tokens": prompt_tokens + new_tokens,
    }


def final_usage(generations: Sequence[Generation], sequences: int) -> dict[str, Any]:
    """Return the usage of all choices of a request, those of the first prompt first. Predictions in it are draft
    tokens, accepted and rejected."""
    prompts = generations[::sequences]
    accepted = sum(map(accepted_drafts, generations))
    drafts = sum(sum(each.draft_lengths) for each in generations)
    found = usage(sum(each.prompt_tokens for each in prompts), sum(len(each.token_ids) for each in generations))
    return found | {
        "prompt_tokens_details": {"cached_tokens": sum(each.cached_tokens for each in prompts), "audio_tokens": 0},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafts - accepted,
            "reasoning_tokens": 0,
            "audio_tokens": 0,
        },
    }


def accepted_drafts(generation: Generation) -> int:
    """Return the number of accepted draft tokens in the answer: those that its end cut off do not count."""
    return sum(generation.draft_mask)


def metrics(generation: Generation, drafts: int) -> dict[str, Any]:
    """Return the metrics of one sequence under vLLM's names; times in milliseconds. drafts: maximum in a round."""
    first, later = generation.first_token_seconds, len(generation.token_ids) - 1
    decoding = sum(generation.round_seconds)
    return {
        "time_to_first_token_ms": _milliseconds(first),
        "generation_time_ms": _milliseconds(generation.seconds),
        "queue_time_ms": _milliseconds(generation.queue_seconds),
        "mean_itl_ms": _milliseconds(decoding / later) if later > 0 else None,
        "tokens_per_second": round(generation.tokens_per_second, 3),
        "speculative_decoding": _speculation(generation, drafts) if generation.mode == "speculative" else None,
    }


def _speculation(generation: Generation, most: int) -> dict[str, Any]:
    """Return statistics of the rounds with drafts. acceptance_histogram: number of rounds that accepted 0, 1, ..
    drafts. Without such a round, the values are those of decoding without drafts: readers of vLLM's metrics accept no
    null."""
    paired = zip(generation.path_lengths, generation.draft_lengths, strict=True)
    accepted = [path - 1 for path, drafts in paired if drafts]
    drafts, steps = sum(generation.draft_lengths), len(accepted)
    return {
        "mean_acceptance_length": round(1 + sum(accepted) / max(1, steps), 4),
        "draft_acceptance_rate": round(sum(accepted) / max(1, drafts), 4),
        "acceptance_histogram": [accepted.count(count) for count in range(most + 1)],
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": drafts,
        "num_spec_tokens": most,
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)
