// Segments of a transcript: parts of a text with the times at which they are spoken (runtime/transcription/segments.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../json.h"
#include "../text/text.h"

namespace spc::audio {

// Part of a transcript. start, end: in seconds from the beginning of the sound; text: as the tokenizer writes it, mostly with a space before
// it, none without one; token_ids: times included; seek: start of its window in seconds; temperature: with which it was written;
// avg_logprob, compression_ratio: of all tokens of its window; no_speech_prob: probability that nothing is spoken in its window, none
// unless it was asked for.
struct Segment {
  double start = 0, end = 0;
  std::optional<std::string> text;
  TokenIds token_ids;
  double seek = 0, temperature = 0, avg_logprob = 0, compression_ratio = 0;
  std::optional<double> no_speech_prob;

  Json to_json() const;
};

// Return seconds in whole milliseconds, as Python's round(seconds, 3).
double rounded(double seconds);

// Part of a window's tokens, with its first and last row of the encoder.
struct TimedPart {
  int64_t start, end;
  TokenIds tokens;
};

// Parts of a window's tokens, and the number of frames after which the next window begins.
struct CutWindow {
  std::vector<TimedPart> parts;
  int64_t step;
};

// Cut a window's tokens where two times follow each other; what is behind the last such pair is heard again, unless the text ends in one
// time. first: token of the time 0.00, none for a text without times; frames: of the window's sound.
CutWindow cut_at_times(const TokenIds& tokens, std::optional<int64_t> first, int64_t frames);
// Return the tokens of segments as the text before the next window: of two times at an end one.
TokenIds previous_tokens(const std::vector<TokenIds>& segments, int64_t first);
// Return how much shorter zlib makes the bytes of some tokens, at least one. Throws Error(kEngine) without zlib.
double compression_ratio(const TokenIds& tokens, int64_t vocabulary_size);

}  // namespace spc::audio
