// Texts: their parts, their ends, lists of words in messages, and the nearest of several words.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace spc {

inline std::string joined(const std::vector<std::string>& words, const std::string& between = ", ") {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i ? between : "") + words[i];
  return text;
}

// Return the parts between separators: one, empty or not, where there is none.
std::vector<std::string> split(std::string_view text, char separator);
// Return a text without blanks at its ends.
std::string trimmed(std::string_view text, const char* blanks = " \t\n\r\v\f");
bool ends_with(std::string_view text, std::string_view end);
void replace_all(std::string& text, std::string_view from, std::string_view to);
void remove_byte_order_mark(std::string& text);
// Return the number of characters of a text in UTF-8.
inline size_t character_count(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Return the one that is nearest to a word, "" where none is near: the first of Python's difflib.get_close_matches.
std::string close_match(std::string_view word, const std::vector<std::string>& possibilities);

}  // namespace spc
