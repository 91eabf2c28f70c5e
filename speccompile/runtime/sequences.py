"""Sequences of one call: its options checked, and the state of each sequence before its first token."""

from collections.abc import Sequence
from operator import attrgetter

from speccompile.bundle.manifest import Manifest
from speccompile.errors import PromptError
from speccompile.runtime.constraints import GrammarCompiler
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.options import (
    SAMPLING,
    check_flags,
    check_new_tokens,
    check_sequences,
    check_stop,
    check_top_logprobs,
    resolve_stop_token_ids,
    row_samplings,
)
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer, Tokenizer

FLAGS = ("chat", "autoregressive", "adaptive", "ignore_eos", "logprobs")
_FLAGS, _SAMPLING = attrgetter(*FLAGS), attrgetter(*SAMPLING)


def make_sequences(
    prompts: Sequence[list[int]],
    asked: GenerationOptions,
    manifest: Manifest,
    text: Tokenizer | None,
    grammars: GrammarCompiler,
    *,
    side_by_side: bool,
) -> list[SequenceState]:
    """Return the sequences of all prompts, those of the first prompt first. side_by_side: whether all of them need a
    batch slot of the bundle at once. Raise UsageError for a wrong option, PromptError for too many sequences."""
    sequences = check_sequences(asked.num_return_sequences, len(prompts), manifest if side_by_side else None)
    samplings = row_samplings(manifest, len(prompts), sequences, dict(zip(SAMPLING, _SAMPLING(asked), strict=True)))
    check_flags(zip(FLAGS, _FLAGS(asked), strict=True))
    stop, top = check_stop(asked.stop), check_top_logprobs(asked.top_logprobs, manifest)
    if stop and text is None:
        raise PromptError("this bundle has no tokenizer, so no text to stop at", hint="leave --stop out")
    ends = resolve_stop_token_ids(asked.stop_token_ids, asked.ignore_eos, manifest)
    room = (check_new_tokens(asked.max_new_tokens), manifest.max_length, ends)
    imposed = [each for each in grammars.per_prompt(asked.constraint, len(prompts)) for _ in range(sequences)]
    all_ids = [ids for ids in prompts for _ in range(sequences)]
    rows = []
    for ids, sampling, constraint in zip(all_ids, samplings, imposed, strict=True):
        stream = None if text is None else IncrementalDetokenizer(text, ids, stop)
        rows.append(SequenceState(ids, *room, stream, sampling, asked.logprobs, top, constraint))
    return rows
