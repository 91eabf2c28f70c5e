"""Segments of a transcript: parts of a text with the times at which they are spoken."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import log2
from typing import Any

from speccompile.bundle.sources import FRAMES_PER_ROW


@dataclass(frozen=True)
class Segment:
    """Part of a transcript, with Whisper's fields. start, end: in seconds from the beginning of the audio; text: mostly
    with a leading space, None without a tokenizer; token_ids: timestamps included; seek: start of its window in
    seconds; temperature: at which it was decoded; avg_logprob, compression_ratio: of all tokens of its window;
    no_speech_prob: probability that its window has no speech, None unless requested."""

    start: float
    end: float
    text: str | None
    token_ids: list[int]
    seek: float
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float | None

    def to_json(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)


def cut_at_times(
    tokens: Sequence[int], first: int | None, frames: int
) -> tuple[list[tuple[int, int, Sequence[int]]], int]:
    """Split a window's tokens at timestamps, as transformers' `_retrieve_segment`. Return the parts, each with its
    first and last encoder row, and the number of frames after which the next window begins.

    first: token of the timestamp 0.00, None for a text without timestamps; frames: length of the window's audio. A part
    ends between two adjacent timestamps. The audio after the last such pair is part of the next window, unless the text
    ends in a single timestamp.
    """
    is_time = [first is not None and token >= first for token in tokens]
    ends = [place + 1 for place in range(len(tokens) - 1) if is_time[place] and is_time[place + 1]]
    if first is None or not ends:
        times = [token - first for token, known in zip(tokens, is_time, strict=True) if known and first is not None]
        last = times[-1] if times and times[-1] else frames // FRAMES_PER_ROW
        return [(0, last, tokens)], frames
    is_whole = is_time[-2:] == [False, True]
    if is_whole:
        ends.append(len(tokens))
    else:
        ends[-1] += 1  # the second time of the last pair says that the part is not the end
    parts = [tokens[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    found = [(part[0] - first, part[-1] - first, part) for part in parts]
    if is_whole:
        return found, frames
    start, _, part = found[-1]
    found[-1] = (start, part[-2] - first, part)
    return found, (part[-2] - first) * FRAMES_PER_ROW


def previous_tokens(segments: Sequence[Sequence[int]], first: int | None) -> Iterator[int]:
    """Yield the tokens of segments as the prompt of the next window: of two timestamps at an end only the first."""
    for tokens in segments:
        is_doubled = first is not None and len(tokens) > 2 and tokens[-2] >= first
        yield from tokens[:-1] if is_doubled else tokens


def compression_ratio(tokens: Sequence[int], vocabulary_size: int) -> float:
    """Return the size of tokens over their size compressed by zlib. Repetitive text has a large ratio. tokens: one or
    more."""
    width = int(log2(vocabulary_size) / 8) + 1
    plain = b"".join(token.to_bytes(width, "little") for token in tokens)
    return len(plain) / len(zlib.compress(plain))
