#include "words.h"

#include <algorithm>
#include <utility>

namespace spc {
namespace {

struct Block {
  size_t one = 0, other = 0, size = 0;
};

// Return the longest block of characters that two words share, the first of several.
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

// Return the number of characters in the longest shared block, and in those on both sides of it.
size_t shared(std::string_view one, std::string_view other) {
  const Block found = longest_block(one, other);
  if (!found.size) return 0;
  return found.size + shared(one.substr(0, found.one), other.substr(0, found.other)) +
         shared(one.substr(found.one + found.size), other.substr(found.other + found.size));
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::vector<std::string> split_words(std::string_view text, std::string_view blanks) {
  std::vector<std::string> words;
  for (size_t at = text.find_first_not_of(blanks); at < text.size();) {
    const size_t end = std::min(text.find_first_of(blanks, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = std::min(text.find_first_not_of(blanks, end), text.size());
  }
  return words;
}

std::string trimmed(std::string_view text, const char* blanks) {
  const size_t first = text.find_first_not_of(blanks);
  return first == std::string_view::npos ? "" : std::string(text.substr(first, text.find_last_not_of(blanks) - first + 1));
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
}

void remove_byte_order_mark(std::string& text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (starts_with(text, kMark)) text.erase(0, kMark.size());
}

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
