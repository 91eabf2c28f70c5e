"""Segments of a transcript: parts of a text with the times at which they are spoken."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import log2
from typing import Any

from speccompile.bundle.sources import FRAMES_PER_ROW


@dataclass(frozen=True)
class Segment:
    """Part of a transcript. start, end: in seconds from the beginning of the sound; text: as the tokenizer writes it,
    mostly with a space before it, None without one; token_ids: times included; seek: start of its window in seconds;
    temperature: with which it was written; avg_logprob, compression_ratio: of all tokens of its window;
    no_speech_prob: probability that nothing is spoken in its window, None unless it was asked for."""

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
    """Return the parts of a window's tokens, with their first and last row of the encoder, and the number of frames
    after which the next window begins: as transformers' `_retrieve_segment`.

    first: token of the time 0.00, None for a text without times; frames: of the window's sound. A part ends where two
    times follow each other; the sound after the last such pair is heard again, unless the text ends in one time.
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
    """Yield the tokens of segments as the text before the next window: of two times at an end one."""
    for tokens in segments:
        is_doubled = first is not None and len(tokens) > 2 and tokens[-2] >= first
        yield from tokens[:-1] if is_doubled else tokens


def compression_ratio(tokens: Sequence[int], vocabulary_size: int) -> float:
    """Return how much shorter zlib makes the bytes of some tokens, at least one: text that repeats has a large
    ratio."""
    width = int(log2(vocabulary_size) / 8) + 1
    plain = b"".join(token.to_bytes(width, "little") for token in tokens)
    return len(plain) / len(zlib.compress(plain))
