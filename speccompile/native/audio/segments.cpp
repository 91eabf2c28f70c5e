#include "segments.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "../contract_table.h"
#include "zlib.h"

namespace spc::audio {

Json Segment::to_json() const {
  return Json::Object{{"start", start},
                      {"end", end},
                      {"text", text ? Json(*text) : Json()},
                      {"token_ids", list_of(token_ids)},
                      {"seek", seek},
                      {"temperature", temperature},
                      {"avg_logprob", avg_logprob},
                      {"compression_ratio", compression_ratio},
                      {"no_speech_prob", no_speech_prob ? Json(*no_speech_prob) : Json()}};
}

double rounded(double seconds) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3f", seconds);
  return std::strtod(text, nullptr);
}

CutWindow cut_at_times(const TokenIds& tokens, std::optional<int64_t> first, int64_t frames) {
  const size_t size = tokens.size();
  const auto is_time = [&](size_t place) { return first && tokens[place] >= *first; };
  std::vector<size_t> ends;
  for (size_t place = 1; place < size; ++place)
    if (is_time(place - 1) && is_time(place)) ends.push_back(place);
  if (ends.empty()) {
    int64_t last = 0;
    for (size_t place = 0; place < size; ++place)
      if (is_time(place)) last = tokens[place] - *first;
    return {{{0, last ? last : frames / kFramesPerRow, tokens}}, frames};
  }
  const bool is_whole = is_time(size - 1) && !is_time(size - 2);
  if (is_whole) {
    ends.push_back(size);
  } else {
    ++ends.back();  // the second time of the last pair says that the part is not the end
  }
  std::vector<TimedPart> parts;
  size_t start = 0;
  for (const size_t end : ends) {
    const TokenIds part(tokens.begin() + static_cast<std::ptrdiff_t>(start), tokens.begin() + static_cast<std::ptrdiff_t>(end));
    parts.push_back({part.front() - *first, part.back() - *first, part});
    start = end;
  }
  if (is_whole) return {parts, frames};
  TimedPart& last = parts.back();
  last.end = last.tokens[last.tokens.size() - 2] - *first;
  return {parts, last.end * kFramesPerRow};
}

TokenIds previous_tokens(const std::vector<TokenIds>& segments, int64_t first) {
  TokenIds found;
  for (const TokenIds& tokens : segments) {
    const bool is_doubled = tokens.size() > 2 && tokens[tokens.size() - 2] >= first;
    found.insert(found.end(), tokens.begin(), tokens.end() - (is_doubled ? 1 : 0));
  }
  return found;
}

double compression_ratio(const TokenIds& tokens, int64_t vocabulary_size) {
  const int width = static_cast<int>(std::log2(static_cast<double>(vocabulary_size)) / 8) + 1;
  std::string plain;
  for (const int64_t token : tokens)
    for (int byte = 0; byte < width; ++byte) plain += static_cast<char>(token >> (8 * byte) & 0xFF);
  return static_cast<double>(plain.size()) / static_cast<double>(compressed_size(plain));
}

}  // namespace spc::audio
