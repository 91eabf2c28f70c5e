"""Values of `GenerationOptions`: check them and make one `SamplingParams` for each sequence."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from os import PathLike
from typing import Any

import numpy as np

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sampling import (
    LARGEST_BIAS,
    LOGIT_BIAS,
    MIN_TEMPERATURE,
    MOST_BIASES,
    SAMPLING_OPTIONS,
    SamplingParams,
)
from speccompile.errors import PromptError, UsageError

MOST_THREADS = 1024
"""Largest number of threads of an engine: more than machines have cores; each takes memory."""

NEW_TOKENS = 128
"""`max_new_tokens` by default."""


def check_sequences(value: object, prompts: int, manifest: Manifest | None) -> int:
    """Return `num_return_sequences`, checked. manifest: of the bundle that needs a batch slot for each sequence at
    once; None if they run in turn. Raise UsageError or PromptError if it is no count or the slots are too few."""
    if not _is(Integral, value) or value < 1:  # type: ignore[operator]
        raise UsageError(
            f"num_return_sequences: received {value!r}, expected a whole number from 1 on", hint="give 1 or more"
        )
    if not prompts:
        raise PromptError("received no prompts, expected at least one", hint="write [prompt]")
    count = int(value)  # type: ignore[call-overload]
    if manifest is not None and not 1 <= prompts * count <= manifest.batch_size:
        each = f" with {count} sequences each" if count > 1 else ""
        raise PromptError(
            f"{prompts} prompts{each} at once: expected 1 to {manifest.batch_size}",
            hint="build the bundle with a larger cache.batch_size",
        )
    return int(count)


_COUNTS = {name for name, option in SAMPLING_OPTIONS.items() if option.kind == "count"}
_SEQUENCES = (list, tuple, Sequence, np.ndarray)


def check_single(num_return_sequences: object) -> None:
    """Raise UsageError unless one sequence is asked for."""
    if num_return_sequences != 1 or isinstance(num_return_sequences, bool):
        raise UsageError(
            f"num_return_sequences: received {num_return_sequences!r}, expected 1 where one generation comes back",
            hint="use generate_batch, which gives a list",
        )


def check_prompts(value: object) -> None:
    """Raise UsageError unless this is a sequence that may hold prompts."""
    if not isinstance(value, _SEQUENCES) or isinstance(value, str):
        raise UsageError(
            f"received the prompts {str(value)[:80]!r}, expected a list of them", hint="write [prompt], or use generate"
        )


def check_threads(value: object) -> None:
    """Raise UsageError unless this is a number of threads, or None."""
    if value is not None and (not _is(Integral, value) or value < 1):  # type: ignore[operator]
        raise UsageError(f"threads: received {value!r}, expected at least 1", hint="leave it out for one each core")
    if value is not None and value > MOST_THREADS:  # type: ignore[operator]
        raise UsageError(
            f"threads: received {value!r}, expected at most {MOST_THREADS}", hint="leave it out for one each core"
        )


def check_image_cache(value: object) -> None:
    """Raise UsageError unless this is a number of MiB, or None."""
    if value is not None and (not _is(Integral, value) or value < 0):  # type: ignore[operator]
        raise UsageError(
            f"image_cache: received {value!r}, expected a number of MiB from 0 on",
            hint="leave it out for 256",
        )


def check_opening(folder: object, *, verify: object, threads: object, image_cache: object, signed_by: object) -> None:
    """Raise UsageError for values with which no bundle can be opened."""
    if not isinstance(folder, str | PathLike):
        raise UsageError(
            f"folder: received {folder!r}, expected the path of a bundle", hint='write load("build/demo"), for example'
        )
    if signed_by is not None and not isinstance(signed_by, str | PathLike):
        raise UsageError(
            f"signed_by: received {signed_by!r}, expected the path of a public key",
            hint="leave it out where no signature is needed",
        )
    check_flags([("verify", verify)])
    check_threads(threads)
    check_image_cache(image_cache)


def check_flags(asked: Iterable[tuple[str, object]]) -> None:
    """Raise UsageError for a value that is neither true nor false. asked: names and values."""
    for name, value in asked:
        if value is not True and value is not False and not isinstance(value, np.bool_):
            raise UsageError(f"{name}: received {value!r}, expected True or False", hint="give one of them")


def check_truncate(value: object) -> bool:
    """Return whether prompts are truncated. Raise UsageError for a value that is neither "left" nor None."""
    if value is not None and value != "left":
        raise UsageError(f"truncate: received {value!r}, expected 'left' or None", hint="left drops the first tokens")
    return value is not None


def check_stop(value: Any) -> tuple[str, ...]:
    """Return the texts of `stop`, one or several. Raise UsageError for other things."""
    if value == ():
        return ()
    texts = _several(value)
    wrong = [text for text in texts if not isinstance(text, str)]
    if wrong:
        raise UsageError(
            f"stop: received {wrong[0]!r}, expected a text, or several", hint="give token ids as stop_token_ids"
        )
    return texts


def _several(value: Any) -> tuple[Any, ...]:
    """Return the parts of a list and the like; a text, bytes or a mapping is one value."""
    one = isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable)
    return (value,) if one else tuple(value)


def check_new_tokens(value: object) -> int:
    """Return `max_new_tokens`, checked. Raise UsageError if it is no count."""
    if not _is(Integral, value) or value < 1:  # type: ignore[operator]
        raise UsageError(f"max_new_tokens is {value!r}: expected at least 1", hint="give a whole number")
    return int(value)  # type: ignore[call-overload,no-any-return]


def resolve_stop_token_ids(stop_token_ids: Any, ignore_eos: bool, manifest: Manifest) -> frozenset[int]:
    """Return the tokens that end a generation: `stop_token_ids`, and the target's own unless `ignore_eos`. Raise
    UsageError for an invalid token."""
    asked = _several(stop_token_ids)
    wrong = [token for token in asked if not (_is(Integral, token) and 0 <= token < manifest.vocabulary_size)]
    if wrong:
        raise UsageError(
            f"stop_token_ids: received {wrong[0]!r}, expected token ids from 0 to {manifest.vocabulary_size - 1}",
            hint="give texts as stop",
        )
    return frozenset(map(int, asked)) | frozenset(() if ignore_eos else manifest.eos_token_ids)


def check_top_logprobs(value: Any, manifest: Manifest) -> int:
    """Return `top_logprobs`, checked. Raise UsageError if it is no count, or larger than the vocabulary."""
    if not _is(Integral, value) or not 0 <= value <= manifest.vocabulary_size:
        raise UsageError(
            f"top_logprobs: received {value!r}, expected a whole number from 0 to {manifest.vocabulary_size}",
            hint="0 keeps none",
        )
    return int(value)


def row_samplings(
    manifest: Manifest, prompts: int, sequences: int, asked: Mapping[str, Any], logit_bias: Any = None
) -> list[SamplingParams]:
    """Return the sampling parameters of every sequence: those of the first prompt, of the second, ..

    asked: the options of `generate_batch` by name, None for one that was not given; logit_bias: that option. Raise
    UsageError for an option that is out of range, or that the bundle does not have.
    """
    values = {name: _values(name, value, prompts) for name, value in asked.items()}
    biases = logit_biases(logit_bias, prompts, manifest.vocabulary_size)
    if manifest.decoding == "greedy":
        _refuse(values, {**asked, LOGIT_BIAS: logit_bias} if any(biases) else asked, sequences)
    elif not manifest.adjusts_logits:
        _refuse_adjustments(values, biases)
    rows = []
    for prompt in range(prompts):
        given = {name: each[prompt] for name, each in values.items() if each[prompt] is not None}
        for name in given.keys() & _COUNTS:
            given[name] = min(given[name], manifest.vocabulary_size)  # what int64 can hold
        if given.get("temperature"):
            given.setdefault("seed", fresh_seed())
        given["logit_bias"] = biases[prompt]
        rows += [SamplingParams(**given, sequence=number) for number in range(sequences)]
    return rows


def fresh_seed() -> int:
    """Return a random seed of 53 bits from the system: programs that read JSON numbers as floats preserve it."""
    return secrets.randbits(53)


def logit_biases(value: Any, prompts: int, vocabulary: int) -> list[tuple[tuple[int, float], ...]]:
    """Return each prompt's biases, in the order of their tokens and without those of 0. Raise UsageError for wrong
    ones."""
    if value is None or isinstance(value, Mapping):
        return [_biases(LOGIT_BIAS, value, vocabulary)] * prompts
    if not isinstance(value, list | tuple):
        raise _wrong_bias(LOGIT_BIAS, value, "a mapping of token ids to numbers, or one for each prompt")
    if len(value) != prompts:
        raise UsageError(
            f"{LOGIT_BIAS}: received {len(value)} values, expected one, or one for each of {prompts} prompts",
            hint="give a single value for all prompts",
        )
    return [_biases(f"{LOGIT_BIAS} of prompt {number}", each, vocabulary) for number, each in enumerate(value, 1)]


def _biases(where: str, value: Any, vocabulary: int) -> tuple[tuple[int, float], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise _wrong_bias(where, value, "a mapping of token ids to numbers")
    if len(value) > MOST_BIASES:
        raise _wrong_bias(where, f"{len(value)} tokens", f"at most {MOST_BIASES}")
    for token, bias in value.items():
        if not (_is(Integral, token) and 0 <= token < vocabulary):
            raise _wrong_bias(where, repr(token), f"token ids from 0 to {vocabulary - 1}")
        if not (_is(Real, bias) and -LARGEST_BIAS <= bias <= LARGEST_BIAS):
            raise _wrong_bias(
                f"{where} of token {token}", repr(bias), f"a number from -{LARGEST_BIAS} to {LARGEST_BIAS}"
            )
    return tuple(sorted((int(token), float(bias)) for token, bias in value.items() if bias))


def _wrong_bias(where: str, received: object, expected: str) -> UsageError:
    return UsageError(
        f"{where}: received {str(received)[:80]}, expected {expected}",
        hint="as in {262: -100}, which keeps token 262 out",
    )


def _values(name: str, asked: Any, prompts: int) -> list[Any]:
    """Return one checked value for each prompt; None for an option that was not given."""
    if isinstance(asked, str | bytes) or not isinstance(asked, Sequence | np.ndarray) or np.ndim(asked) == 0:
        return [_checked(name, name, asked)] * prompts
    if len(asked) != prompts:
        raise UsageError(
            f"{name}: received {len(asked)} values, expected one, or one for each of {prompts} prompts",
            hint="give a single value for all prompts",
        )
    return [_checked(name, f"{name} of prompt {number}", value) for number, value in enumerate(asked, 1)]


def _checked(name: str, where: str, value: Any) -> int | float | None:
    option = SAMPLING_OPTIONS[name]
    if value is None:
        return None
    if isinstance(value, np.generic):  # float16 cannot represent the limits
        value = value.item()
    kind = Real if option.kind == "number" else Integral
    if not (_is(kind, value) and option.least <= value <= option.greatest):
        raise UsageError(f"{where}: received {value!r}, expected {option.expected}", hint=option.hint)
    if name == "temperature" and 0 < value < MIN_TEMPERATURE:
        raise UsageError(f"{where}: received {value!r}, expected 0, or {MIN_TEMPERATURE} or more", hint=option.hint)
    return float(value) if kind is Real else int(value)


def _is(kind: type, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _refuse_adjustments(values: Mapping[str, list[Any]], biases: Sequence[Any]) -> None:
    """Raise UsageError for options that a bundle without inputs for them would have to ignore."""
    added = {name: values[name] for name, option in SAMPLING_OPTIONS.items() if name in values and not option.is_input}
    for name, each in (added | {LOGIT_BIAS: biases}).items():
        if any(each):
            raise UsageError(
                f"received {name}, but the bundle was built by an earlier version, without inputs for it",
                hint="leave it out, or build the bundle again",
            )


def _refuse(values: Mapping[str, list[Any]], asked: Mapping[str, Any], sequences: int) -> None:
    """Raise UsageError for options that a greedy bundle would have to ignore."""
    accepted = {name: option.neutral if option.changes_greedy else None for name, option in SAMPLING_OPTIONS.items()}
    refused = {
        name: asked[name] for name, each in values.items() if any(value not in (None, accepted[name]) for value in each)
    }
    if LOGIT_BIAS in asked:
        refused[LOGIT_BIAS] = asked[LOGIT_BIAS]
    if sequences > 1:
        refused["num_return_sequences"] = sequences
    if refused:
        received = ", ".join(f"{name} {value}" for name, value in refused.items())
        raise UsageError(
            f"received {received}, but the bundle was compiled for greedy decoding: sampling is not available",
            hint="leave these options out, or build the bundle with decoding: sampling",
        )
