// Splits of a text at the matches of a pattern.
#pragma once

#include <string_view>
#include <vector>

#include "../json.h"
#include "pattern.h"

namespace spc {

struct Part {
  size_t begin, end;
  bool matches;
};

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Throws NoTokenizer.
Behavior read_behavior(const Json& value);

// Return the matches and the parts between them, which cover a text of `size` bytes. invert: the parts between matches count as
// matches, and the matches do not.
std::vector<Part> parts_of(const std::vector<Match>& matches, size_t size, bool invert);
// Return the pieces that the behavior makes of the parts.
std::vector<Match> pieces_of(const std::vector<Part>& parts, Behavior behavior);

}  // namespace spc
