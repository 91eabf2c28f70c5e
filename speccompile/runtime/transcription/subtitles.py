"""Transcripts as text with times, and as subtitles: SubRip (srt) and WebVTT (vtt)."""

from speccompile.runtime.transcription.segments import Segment

VTT_START = "WEBVTT\n\n"
"""Beginning of a WebVTT file."""


def clock(seconds: float, mark: str, *, hours: bool) -> str:
    """Return a time as [hh:]mm:ss, `mark` and milliseconds. hours: write the hours also when there are none."""
    whole, part = divmod(round(1000 * seconds), 1000)
    minutes, second = divmod(whole, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:" * (hours or hour > 0) + f"{minute:02}:{second:02}{mark}{part:03}"


def timed_line(segment: Segment) -> str:
    """Return a segment as a line of text with its times."""
    start, end = (clock(each, ".", hours=False) for each in (segment.start, segment.end))
    return f"[{start} --> {end}] {shown(segment)}\n"


def srt_block(number: int, segment: Segment) -> str:
    """Return a segment as a subtitle of a SubRip file. number: its own, from 1 on."""
    start, end = (clock(each, ",", hours=True) for each in (segment.start, segment.end))
    return f"{number}\n{start} --> {end}\n{_one_block(shown(segment))}\n\n"


def vtt_block(segment: Segment) -> str:
    """Return a segment as a cue of a WebVTT file."""
    start, end = (clock(each, ".", hours=True) for each in (segment.start, segment.end))
    escaped = shown(segment).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"{start} --> {end}\n{_one_block(escaped)}\n\n"


def subtitle(form: str, number: int, segment: Segment) -> str:
    """Return a segment in a form of subtitles, srt or vtt. number: its own, from 1 on."""
    return srt_block(number, segment) if form == "srt" else vtt_block(segment)


def shown(segment: Segment) -> str:
    """Return the text of a segment, without spaces around it; without a tokenizer its token ids."""
    return ",".join(map(str, segment.token_ids)) if segment.text is None else segment.text.strip()


def _one_block(text: str) -> str:
    """Return a text without empty lines, which would end its block, and without arrows, which are times."""
    return "\n".join(line for line in text.replace("-->", "->").splitlines() if line.strip())
