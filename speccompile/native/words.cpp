#include "words.h"

#include <algorithm>
#include <utility>

namespace spc {
namespace {

struct Block {
  size_t one = 0, other = 0, size = 0;
};

// The longest block that two words share, the first of several.
Block longest_block(std::string_view one, std::string_view other) {
  Block best;
  for (size_t i = 0; i < one.size(); ++i) {
    for (size_t j = 0; j < other.size(); ++j) {
      size_t size = 0;
      while (i + size < one.size() && j + size < other.size() && one[i + size] == other[j + size]) ++size;
      if (size > best.size) best = {i, j, size};
    }
  }
  return best;
}

// Characters in the longest block, and in those on both sides of it.
size_t shared(std::string_view one, std::string_view other) {
  const Block found = longest_block(one, other);
  if (!found.size) return 0;
  return found.size + shared(one.substr(0, found.one), other.substr(0, found.other)) +
         shared(one.substr(found.one + found.size), other.substr(found.other + found.size));
}

}  // namespace

std::string close_match(std::string_view word, const std::vector<std::string>& possibilities) {
  constexpr double kLeast = 0.6;  // of the characters of both
  std::pair<double, std::string> best;
  for (const std::string& each : possibilities) {
    const double ratio = 2.0 * static_cast<double>(shared(each, word)) / static_cast<double>(each.size() + word.size());
    if (ratio >= kLeast) best = std::max(best, {ratio, each});
  }
  return best.second;
}

}  // namespace spc
