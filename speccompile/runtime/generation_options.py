"""Options of a generation: their names, types, units and defaults, in one place."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypedDict

from speccompile.machine.keywords import checks_keywords, unknown_keyword
from speccompile.runtime.constraints import ConstraintOption
from speccompile.runtime.options import NEW_TOKENS

Number = float | Sequence[float | None] | None
"""A sampling option: one value for all prompts, or a sequence with one, or None, for each."""
Whole = int | Sequence[int | None] | None
"""The same, for whole numbers."""
Biases = Mapping[int, float] | Sequence[Mapping[int, float] | None] | None
"""The same, for numbers by token."""
Name = str | Sequence[str | None] | None
"""The same, for names."""


@checks_keywords("GenerationOptions")
@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Options of one call of `Bundle.generate`, `generate_batch`, `stream`, `chat`, `stream_chat` or `Service.submit`.

    Values are checked by the call, as some of their ranges depend on the bundle: UsageError for one that is wrong.
    Greedy bundles refuse the sampling options, from `temperature` to `seed`, unless they change nothing, and bundles of
    earlier versions the last three before it. Each of these is one value for all prompts, or a sequence with one for
    each; None is the default.
    """

    max_new_tokens: int = NEW_TOKENS
    """Maximum number of new tokens of each sequence, from 1 on. The bundle's capacity ends it as well."""
    stop: str | Sequence[str] = ()
    """Texts before which a sequence ends, one or several, none of them empty. Needs a tokenizer."""
    stop_token_ids: int | Sequence[int] = ()
    """Tokens that end a sequence, like an end token of the target's: the sequence keeps it."""
    ignore_eos: bool = False
    """Go on after the target's own end tokens."""
    chat: bool = False
    """Write a text prompt as one user's message into the chat template. Token ids are taken as they are."""
    autoregressive: bool = False
    """One token a round, without drafts."""
    adaptive: bool = True
    """Verify fewer draft tokens in a round, or none, while more would not pay by the times measured on this engine.
    Otherwise every round verifies all of them. It never changes a token, and therefore does nothing where it could:
    with sampled drafts at a temperature above 0, and if the bundle's drafting method is approximate."""
    logprobs: bool = False
    """Keep the log-probability of every new token."""
    top_logprobs: int = 0
    """Number of most probable tokens to keep with their log-probabilities at each position, from 0 to the vocabulary's
    size. Above 0, `logprobs` are kept too."""
    constraint: ConstraintOption = None
    """Form of the new text, made by `Bundle.constraint`: one for all prompts, or a sequence with one, or None, for
    each."""
    temperature: Number = 0.0
    """0 is greedy decoding, where of the other sampling options only penalties and the logit bias make a difference; 1
    draws from the target's own probabilities. 0, or from 0.0001 on."""
    top_k: Whole = None
    """Draw from the k most probable tokens; 0, the default, is all. Limits apply together."""
    top_p: Number = None
    """Draw from the fewest tokens that have this probability together, above 0 and at most 1, the default."""
    min_p: Number = None
    """Draw from tokens with at least this share of the best one's probability, from 0, the default, to 1."""
    repetition_penalty: Number = 1.0
    """Penalty of tokens that occurred before, as in transformers, from 0.001 to 1000; 1 is none."""
    frequency_penalty: Number = 0.0
    """Subtracted from the logit of a token once for each time that the new text has it, as in OpenAI's API, from -2 to
    2; 0 is none. Tokens of the prompt do not count."""
    presence_penalty: Number = 0.0
    """Subtracted once from the logits of all tokens that the new text has, from -2 to 2; 0 is none."""
    logit_bias: Biases = None
    """Token -> what is added to its logit, from -100 to 100, for up to 1024 tokens: before the penalties and the
    temperature. -100 mostly keeps a token out, 100 mostly allows no other."""
    seed: Whole = None
    """From 0 to 2**64 - 1. Equal seeds give equal tokens, independent of the rest of the batch. By default the system
    chooses one for each prompt, and the generation reports it."""
    num_return_sequences: int = 1
    """Sequences of each prompt, each in its own batch slot: they share the prompt's seed and differ by their number.
    Only `generate_batch` and `Service.submit` take more than 1; their results have those of the first prompt first."""
    truncate: str | None = None
    """"left" drops the first tokens of a prompt that leaves no room for `max_new_tokens` in the bundle's capacity; a
    warning says how many. By default a prompt beyond the capacity is refused."""
    images: Any = None
    """Pictures of the prompt, for a target that sees them: a list of paths, bytes of files or arrays uint8 [height,
    width, 3]. With several prompts a list of pictures for each. A text has the target's placeholder once for each
    picture, or none at all: then they come first. See docs/how-to/images.md."""
    source: str | Sequence[Any] | None = None
    """Source that a target with an encoder reads, a text or token ids: one for all prompts, or a sequence with one for
    each. Such a target needs one, and others have no use for it. The prompt is then the beginning of the answer: None
    for the tokens with which every answer begins, a text that follows these, or token ids that replace them."""
    source_language: str | None = None
    """Language of the source, of those that a target for several languages knows: see `speccompile inspect`."""
    target_language: str | None = None
    """Language of the answer, as `source_language`."""
    audio: Any = None
    """Sound for a target that hears, in place of `source`: the path of a WAV file, its bytes, samples float32 [n] in
    [-1, 1] at the target's rate, or features float32 [mels, frames]; a list with one for each prompt. `source_language`
    is then what is spoken. See docs/how-to/speech.md."""
    task: str | None = None
    """Task of a target that hears: transcribe, the default, or translate, into English."""
    adapter: Name = None
    """Name of an adapter of the target that `Bundle.load_adapter` has loaded: one for all prompts, or a sequence with
    one, or None, for each. By default the target is the base."""
    session: str | Path | None = None
    """Session file of one sequence: go on from the prefix that it shares with the prompt, if the file exists, and write
    it at the end. No token depends on it. See `Bundle.save_session`."""


class GenerationKeywords(TypedDict, total=False):
    """Keyword arguments with the names and types of `GenerationOptions`, for type checkers (PEP 692)."""

    max_new_tokens: int
    stop: str | Sequence[str]
    stop_token_ids: int | Sequence[int]
    ignore_eos: bool
    chat: bool
    autoregressive: bool
    adaptive: bool
    logprobs: bool
    top_logprobs: int
    constraint: ConstraintOption
    temperature: Number
    top_k: Whole
    top_p: Number
    min_p: Number
    repetition_penalty: Number
    frequency_penalty: Number
    presence_penalty: Number
    logit_bias: Biases
    seed: Whole
    num_return_sequences: int
    truncate: str | None
    images: Any
    source: str | Sequence[Any] | None
    source_language: str | None
    target_language: str | None
    audio: Any
    task: str | None
    adapter: Name
    session: str | Path | None


DEFAULTS = GenerationOptions()
NAMES = frozenset(field.name for field in fields(GenerationOptions))
CHAT_KEYWORDS = ("chat_template_kwargs",)
"""Keywords of chats beside these options."""


def resolve_options(
    call: str, options: object, keywords: GenerationKeywords, others: Collection[str] = ()
) -> GenerationOptions:
    """Return the options of one call: `options`, or the defaults, with `keywords` in place of theirs.

    call: the public name, for messages, and others: its keywords that are no options of a generation. Raise TypeError
    for an unknown keyword and for options of another type.
    """
    if options is None:
        options = DEFAULTS
    elif not isinstance(options, GenerationOptions):
        hint = "give its entries as keywords, **options" if isinstance(options, Mapping) else "name the keyword"
        raise TypeError(f"{call}() received {options!r} as options, expected GenerationOptions; {hint}")
    if not keywords:
        return options
    if unknown := keywords.keys() - NAMES:
        raise unknown_keyword(call, min(unknown), NAMES.union(others))
    return GenerationOptions(**keywords) if options is DEFAULTS else replace(options, **keywords)
