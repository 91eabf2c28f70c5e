// Lists of words in messages.
#pragma once

#include <string>
#include <vector>

namespace spc {

inline std::string joined(const std::vector<std::string>& words, const std::string& between = ", ") {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i ? between : "") + words[i];
  return text;
}

}  // namespace spc
