"""Sequences of one call: its options checked, and the state of each sequence before its first token."""

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sampling import SAMPLING_OPTIONS
from speccompile.errors import PromptError
from speccompile.progress import LOGGER
from speccompile.runtime.constraints import GrammarCompiler
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.options import (
    check_flags,
    check_new_tokens,
    check_sequences,
    check_stop,
    check_top_logprobs,
    check_truncate,
    resolve_stop_token_ids,
    row_samplings,
)
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer, Tokenizer

FLAGS = tuple(option.name for option in fields(GenerationOptions) if option.type is bool)
_FLAGS, _SAMPLING = attrgetter(*FLAGS), attrgetter(*SAMPLING_OPTIONS)


def make_sequences(
    prompts: Sequence[list[int]],
    options: GenerationOptions,
    manifest: Manifest,
    text: Tokenizer | None,
    grammars: GrammarCompiler,
    *,
    side_by_side: bool,
) -> list[SequenceState]:
    """Return the sequences of all prompts, those of the first prompt first. side_by_side: whether all of them need a
    batch slot of the bundle at once. Raise UsageError for a wrong option, PromptError for too many sequences."""
    sequences = check_sequences(options.num_return_sequences, len(prompts), manifest if side_by_side else None)
    samplings = row_samplings(
        manifest,
        len(prompts),
        sequences,
        dict(zip(SAMPLING_OPTIONS, _SAMPLING(options), strict=True)),
        options.logit_bias,
    )
    check_flags(zip(FLAGS, _FLAGS(options), strict=True))
    stop, top = check_stop(options.stop), check_top_logprobs(options.top_logprobs, manifest)
    if stop and text is None:
        raise PromptError("this bundle has no tokenizer, so no text to stop at", hint="leave out --stop (stop=..)")
    ends = resolve_stop_token_ids(options.stop_token_ids, options.ignore_eos, manifest)
    room = (check_new_tokens(options.max_new_tokens), manifest.max_length, ends)
    imposed = [each for each in grammars.per_prompt(options.constraint, len(prompts)) for _ in range(sequences)]
    dropped = [0] * len(prompts)
    if check_truncate(options.truncate):
        prompts, dropped = truncate_left(prompts, max(1, manifest.max_length - room[0]))
    all_ids = [ids for ids in prompts for _ in range(sequences)]
    all_dropped = [count for count in dropped for _ in range(sequences)]
    rows = []
    for ids, count, sampling, constraint in zip(all_ids, all_dropped, samplings, imposed, strict=True):
        stream = None if text is None else IncrementalDetokenizer(text, ids, stop)
        rows.append(SequenceState(ids, *room, stream, sampling, options.logprobs, top, constraint))
        rows[-1].truncated_tokens = count
    return rows


def truncate_left(prompts: Sequence[list[int]], most: int) -> tuple[list[list[int]], list[int]]:
    """Return the last `most` tokens of each prompt, and the number of tokens that it loses. Warn where it loses any."""
    dropped = [max(0, len(ids) - most) for ids in prompts]
    for ids, count in zip(prompts, dropped, strict=True):
        if count:
            note = "note: the first %d of %d prompt tokens are dropped, so that the new ones fit"
            LOGGER.warning(note, count, len(ids))
    return [ids[count:] for ids, count in zip(prompts, dropped, strict=True)], dropped
