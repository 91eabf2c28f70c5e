#include "splits.h"

#include <algorithm>

#include "reading.h"

namespace spc {
namespace {

// A match joins the part before it unless that is a match as well.
std::vector<Match> merged(const std::vector<Part>& parts) {
  std::vector<Match> pieces;
  bool previous = false;
  for (const auto& [begin, end, matches] : parts) {
    if (matches && !previous && !pieces.empty())
      pieces.back().end = end;
    else
      pieces.push_back({begin, end});
    previous = matches;
  }
  return pieces;
}

std::vector<Match> merged_backwards(const std::vector<Part>& parts) {
  std::vector<Match> pieces;
  bool previous = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->matches && !previous && !pieces.empty())
      pieces.back().begin = part->begin;
    else
      pieces.push_back({part->begin, part->end});
    previous = part->matches;
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<Match> contiguous(const std::vector<Part>& parts) {
  std::vector<Match> pieces;
  bool previous = false;
  for (const auto& [begin, end, matches] : parts) {
    if (matches == previous && !pieces.empty())
      pieces.back().end = end;
    else
      pieces.push_back({begin, end});
    previous = matches;
  }
  return pieces;
}

}  // namespace

Behavior read_behavior(const Json& value) {
  static constexpr const char* kNames[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  for (int i = 0; i < 5; ++i)
    if (value == Json(kNames[i])) return static_cast<Behavior>(i);
  throw InvalidTokenizer{"no behavior " + value.repr()};
}

std::vector<Part> parts_of(const std::vector<Match>& matches, size_t size, bool invert) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  size_t last = 0;
  for (const auto& [begin, end] : matches) {
    if (last != begin) parts.push_back({last, begin, invert});
    parts.push_back({begin, end, !invert});
    last = end;
  }
  if (last != size) parts.push_back({last, size, invert});
  return parts;
}

std::vector<Match> pieces_of(const std::vector<Part>& parts, Behavior behavior) {
  switch (behavior) {
    case Behavior::kMergedWithPrevious: return merged(parts);
    case Behavior::kMergedWithNext: return merged_backwards(parts);
    case Behavior::kContiguous: return contiguous(parts);
    default: break;
  }
  std::vector<Match> pieces;
  pieces.reserve(parts.size());
  for (const auto& [begin, end, matches] : parts)
    if (!matches || behavior == Behavior::kIsolated) pieces.push_back({begin, end});
  return pieces;
}

}  // namespace spc
