// Segments of a transcript as text with times, and as subtitles: SubRip (srt) and WebVTT (vtt) (runtime/transcription/subtitles.py).
#pragma once

#include <string>

#include "segments.h"

namespace spc::audio {

constexpr const char* kVttStart = "WEBVTT\n\n";  // beginning of a WebVTT file

// Return a time as hh:mm:ss and milliseconds behind a mark. hours: also where there are none.
std::string clock_of(double seconds, char mark, bool hours);
// Return a segment as a line of text with its times.
std::string timed_line(const Segment& segment);
// Return a segment in a form of subtitles, srt or vtt. number: its own, from 1 on.
std::string subtitle(const std::string& form, size_t number, const Segment& segment);
// Return the text of a segment, without spaces around it; without a tokenizer its token ids.
std::string shown(const Segment& segment);
// Return a text without blanks around it, or at its start alone, as Python's strip and lstrip.
std::string stripped(const std::string& text);
std::string stripped_left(const std::string& text);

}  // namespace spc::audio
