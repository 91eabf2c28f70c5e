// Lists of words in messages, and the nearest of several words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spc {

inline std::string joined(const std::vector<std::string>& words, const std::string& between = ", ") {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i ? between : "") + words[i];
  return text;
}

// Return the one that is nearest to a word, "" where none is near: the first of Python's difflib.get_close_matches.
std::string close_match(std::string_view word, const std::vector<std::string>& possibilities);

}  // namespace spc
