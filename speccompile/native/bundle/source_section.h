// The section `source` of a manifest, which bundles of targets with an encoder have (speccompile/bundle/source_section.py).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "../contract.h"
#include "../json.h"

namespace spc {

// Audio of a target. sampling_rate, window, hop, mels, frames: of its features; the rest are tokens.
struct AudioSection {
  int64_t sampling_rate = 0, window = 0, hop = 0, mels = 0, frames = 0;
  std::vector<int64_t> suppressed, begin_suppressed, prompt;
  std::map<std::string, int64_t> tasks;
  std::optional<int64_t> no_timestamps, max_initial_timestamp, previous;

  // Return the token of the time 0.00; none if the target writes no times.
  std::optional<int64_t> first_timestamp(int64_t vocabulary_size) const;
};

// The longest source in tokens, or the rows of an encoder that hears, and the tokens with which answers begin.
struct SourceSection {
  int64_t max_length = 0, start_token_id = 0;
  std::optional<int64_t> forced_bos_token_id;
  std::map<std::string, int64_t> languages;
  bool language_is_start = false;
  std::optional<AudioSection> audio;

  // Throws Error(kBundle) naming `where` for a field that is missing, unknown or of another type.
  static SourceSection from_json(const Json& data, const std::string& where);
};

// Return whether a graph encodes a source, and is no part of a round.
bool is_encoder(const Graph& graph);
// Return the graphs of a round, without those that encode a source before it.
std::vector<Graph> round_only(const std::vector<Graph>& graphs);
// Throws Error(kBundle) where a section, null for none, contradicts the graphs of its manifest.
void check_source_section(const std::optional<SourceSection>& section, const std::vector<Graph>& graphs, int64_t vocabulary_size);

}  // namespace spc
