"""Transcription window by window: Whisper's sequential algorithm, with fallback to higher temperatures.

It is that of transformers' `WhisperForConditionalGeneration.generate` for one sound. A window is as long as the encoder
hears at once; the next one begins at the last time that the text before says.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.source_section import NO_TIMES, PREVIOUS, first_timestamp
from speccompile.bundle.sources import AUDIO
from speccompile.errors import PromptError, UsageError
from speccompile.runtime.audio.mel import Features
from speccompile.runtime.audio.reader import TRANSCRIBE, HeardSound, transcript_start
from speccompile.runtime.audio.rules import RuleMatcher, TokenRules
from speccompile.runtime.generation import Generation
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.options import check_flags, check_new_tokens, check_single
from speccompile.runtime.text.tokenizer import Tokenizer
from speccompile.runtime.transcription.segments import Segment, compression_ratio, cut_at_times, previous_tokens
from speccompile.runtime.transcription.transcript import Transcript, joined

Decode = Callable[[list[int], GenerationOptions, RuleMatcher], Generation]
"""Generation from a prompt of token ids and a sound in the options, by rules."""

_COOL = 0.5
"""Temperature from which on a window's text is no context of the next one."""
_THRESHOLDS = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")


@dataclass(frozen=True, kw_only=True)
class LongForm:
    """Options of a transcript besides those of a generation. Raise UsageError for a wrong value."""

    timestamps: bool = False
    """Write segments with times. Sounds that are longer than a window always have them."""
    initial_prompt: str | None = None
    """Text before the sound, such as names that are spoken. Its last tokens, at most half of the bundle's capacity,
    stand before every window, or before the first one with `condition_on_previous_text`."""
    condition_on_previous_text: bool = False
    """Let the text of a window depend on that of the windows before it."""
    compression_ratio_threshold: float | None = 1.35
    """Compression ratio by zlib above which the tokens of a window are decoded again at the next temperature."""
    logprob_threshold: float | None = -1.0
    """Mean log-probability of its tokens below which a window is decoded again at the next temperature."""
    no_speech_threshold: float | None = 0.6
    """Probability of silence above which a window has no text, if its mean log-probability is below its threshold."""

    def __post_init__(self) -> None:
        check_flags([(name, getattr(self, name)) for name in ("timestamps", "condition_on_previous_text")])
        for name in _THRESHOLDS:
            value = getattr(self, name)
            if value is not None and (not isinstance(value, Real) or isinstance(value, bool) or value != value):
                raise UsageError(f"{name}: received {value!r}, expected a number or None", hint="None switches it off")
        if self.initial_prompt is not None and not isinstance(self.initial_prompt, str):
            raise UsageError(f"initial_prompt: received {self.initial_prompt!r}, expected a text", hint="leave it out")


class Attempt(NamedTuple):
    """Text of a window. ratio, logprob: see `Segment`."""

    tokens: list[int]
    temperature: float
    ratio: float
    logprob: float


class Transcription:
    """Iterator over the segments of one sound, which are written as they are asked for. `language` and `generations`
    are complete at its end."""

    def __init__(
        self, decode: Decode, manifest: Manifest, text: Tokenizer | None, sound: HeardSound, language: str | None,
        options: GenerationOptions, form: LongForm,
    ) -> None:  # fmt: skip
        """language: None to detect it. options: those of every window; several temperatures are tried in turn. Raise
        UsageError for options that the bundle cannot take."""
        assert manifest.source is not None, "a target that hears"
        self._decode, self._manifest, self._text, self.sound = decode, manifest, text, sound
        self._about, self._audio = manifest.source, manifest.source[AUDIO]
        check_single(options.num_return_sequences)
        self.language, self.task, self._form = language, options.task or TRANSCRIBE, form
        self._is_timed = form.timestamps or sound.features.shape[1] > self._audio["frames"]
        if not form.timestamps and self._is_timed and first_timestamp(self._audio, manifest.vocabulary_size) is None:
            longest = self._audio["frames"] * self._audio["hop"] / self._audio["sampling_rate"]
            raise PromptError(
                f"audio: received {sound.seconds:.1f} s, expected at most {longest:g} s, which the encoder hears at "
                "once: this target writes no times, at which a longer sound is cut",
                hint="cut it into pieces, in pauses, and transcribe each",
            )
        rules = TokenRules.of(manifest, timestamps=self._is_timed)
        assert rules is not None, "a target that hears"
        self._rules, self._first = rules, None if rules.times is None else rules.times.first
        any_language = min(manifest.source["languages"], default=None)
        transcript_start(manifest.source, language or any_language, options.task)  # refuses an unknown task
        check_new_tokens(options.max_new_tokens)
        self._options, self._temperatures = options, _temperatures(options.temperature)
        self._cut = max(0, manifest.max_length // 2 - 1)
        self._prompt = self._initial_prompt()
        self.generations: list[Generation] = []
        """Generations of all windows, without those that were written again."""
        self._found: list[Segment] = []
        self._last_words: list[int] = []
        self._segments = self._write()

    def __iter__(self) -> Iterator[Segment]:
        return self._segments

    def __next__(self) -> Segment:
        return next(self._segments)

    def result(self) -> Transcript:
        """Write the rest of the segments, and return the whole transcript."""
        for _ in self._segments:
            pass
        text = None if self._text is None else "".join(each.text or "" for each in self._found).strip()
        generation = joined(self.generations)
        return Transcript(text, self.language, self.task, generation, tuple(self._found), self.sound.seconds)

    def _initial_prompt(self) -> list[int]:
        """Return the tokens of the initial prompt. Raise UsageError where the target has no place for them."""
        text, asked = self._text, self._form.initial_prompt
        if not asked or not asked.strip():
            return []
        if text is None or self._audio[PREVIOUS] is None:
            lacks = "tokenizer" if text is None else "token for the text before a sound"
            raise UsageError(f"initial_prompt: this bundle has no {lacks}", hint="leave initial_prompt out")
        return text.encode(" " + asked.strip(), special_tokens=False)

    def _write(self) -> Iterator[Segment]:
        seek, depends = 0, self._form.condition_on_previous_text
        total, longest = self.sound.features.shape[1], int(self._audio["frames"])
        while seek < total:
            frames = min(longest, total - seek)
            part = np.zeros((len(self.sound.features), longest), np.float32)
            part[:, :frames] = self.sound.features[:, seek : seek + frames]
            options = replace(self._options, audio=part)
            before = self._before(depends=depends)
            if self.language is None and self._about["languages"]:
                self.language = self._detected(options)
            silence = self._silence(before, options)
            found, is_silent = self._attempt(before, options, silence)
            depends = self._form.condition_on_previous_text and found.temperature < _COOL
            if is_silent:
                seek += frames
                continue
            parts, step = cut_at_times(found.tokens, self._first, frames)
            for start, end, tokens in parts:
                self._found.append(self._segment(seek, (start, end), list(tokens), found, silence))
                yield self._found[-1]
            seek += step

    def _before(self, *, depends: bool) -> list[int]:
        """Return the tokens of the text before a window."""
        start = [] if self._audio[PREVIOUS] is None else [self._audio[PREVIOUS]]
        texts = [self._prompt] * bool(self._prompt) + [each.token_ids for each in self._found]
        if depends and texts:
            tokens = list(previous_tokens(texts, self._first or self._manifest.vocabulary_size))
        elif self._prompt:
            tokens = self._prompt
        else:
            return []
        return [*start, *tokens[max(0, len(tokens) - self._cut) :]]

    def _probe(self, before: Sequence[int], options: GenerationOptions) -> tuple[int, Features]:
        """Return the most probable language behind the start token, and the logits float32 [V] of all tokens there."""
        rules = TokenRules.only(self._about["languages"].values(), self._manifest.vocabulary_size)
        matcher = RuleMatcher(rules, keeps_scores=True)
        alone = replace(options, temperature=0.0, max_new_tokens=1, autoregressive=True, ignore_eos=True)
        found = self._decode([*before, self._about["start_token_id"]], alone, matcher)
        assert matcher.first_logits is not None, "one token was written"
        return found.token_ids[0], matcher.first_logits

    def _detected(self, options: GenerationOptions) -> str:
        token, _ = self._probe((), options)
        names: dict[int, str] = {known: name for name, known in self._about["languages"].items()}
        return names[token]

    def _silence(self, before: Sequence[int], options: GenerationOptions) -> float | None:
        """Return the probability that nothing is spoken in a window; None unless a threshold needs it."""
        if self._form.no_speech_threshold is None:
            return None
        if first_timestamp(self._audio, self._manifest.vocabulary_size) is None:
            return None  # the token of silence stands before those of times
        _, logits = self._probe(before, options)
        shares = np.exp(logits - logits.max())
        return float(shares[self._audio[NO_TIMES] - 1] / shares.sum())

    def _attempt(
        self, before: Sequence[int], options: GenerationOptions, silence: float | None
    ) -> tuple[Attempt, bool]:
        """Return the text of a window, at the first temperature at which it is plausible or at the last, and whether it
        is silent."""
        form, start = self._form, transcript_start(self._about, self.language, self._options.task, timed=self._is_timed)
        prompt = [*before, *start]
        most = max(1, self._manifest.max_length - len(prompt))
        for temperature in self._temperatures:
            matcher = RuleMatcher(self._rules, keeps_scores=True)
            asked = replace(options, temperature=temperature, max_new_tokens=min(options.max_new_tokens, most))
            generation = self._decode(prompt, asked, matcher)
            tokens = generation.token_ids
            ratio = compression_ratio(tokens, self._manifest.vocabulary_size) if tokens else 0.0
            logprob = float(np.mean(matcher.scores[: len(tokens)])) if tokens else 0.0
            is_unlikely = form.logprob_threshold is not None and logprob < form.logprob_threshold
            repeats = form.compression_ratio_threshold is not None and ratio > form.compression_ratio_threshold
            is_silent = silence is not None and silence > (form.no_speech_threshold or 0.0)
            is_silent = is_silent and (is_unlikely or form.logprob_threshold is None)
            if is_silent or not (is_unlikely or repeats):
                break
        self.generations.append(generation)
        ends = set(self._manifest.eos_token_ids)
        text = tokens[:-1] if tokens and tokens[-1] in ends else tokens
        return Attempt(text, temperature, ratio, logprob), is_silent

    def _segment(
        self, seek: int, rows: tuple[int, int], tokens: list[int], found: Attempt, silence: float | None
    ) -> Segment:
        frame = self._audio["hop"] / self._audio["sampling_rate"]
        start, end = (seek * frame + 2 * frame * row for row in rows)
        text = None if self._text is None else self._decoded(self._text, tokens)
        values: Any = (found.temperature, found.logprob, found.ratio, silence)
        return Segment(round(start, 3), round(end, 3), text, tokens, round(seek * frame, 3), *values)

    def _decoded(self, text: Tokenizer, tokens: Sequence[int]) -> str:
        """Return the text of a segment behind that of the last one: some tokenizers write spaces between words."""
        words = [token for token in tokens if self._first is None or token < self._first]
        before = self._last_words
        self._last_words = words or before
        return text.decode([*before, *words]).removeprefix(text.decode(before))


def _temperatures(value: Any) -> list[float]:
    """Return the temperatures to try in turn, at least one: their values are checked by the generation."""
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        if not len(value):
            raise UsageError("temperature: received no number, expected one or several", hint="0 is greedy")
        return list(value)
    return [0.0 if value is None else value]
