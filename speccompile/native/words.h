// Texts: their parts, their ends, lists of words in messages, and the nearest of several words.
//
// C++17 has no std::string::starts_with and ends_with, and std::isdigit depends on the locale.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace spc {

inline std::string joined(const std::vector<std::string>& words, const std::string& between = ", ") {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i ? between : "") + words[i];
  return text;
}

// Return the words that `to_text` makes of elements, with commas between them.
template <class Elements, class ToText>
std::string comma_separated(const Elements& elements, ToText to_text) {
  std::vector<std::string> words;
  for (const auto& each : elements) words.emplace_back(to_text(each));
  return joined(words);
}

template <class Elements>
std::string comma_separated(const Elements& elements) {
  return joined(std::vector<std::string>(std::begin(elements), std::end(elements)));
}

// Return the parts between separators: one, empty or not, where there is none.
std::vector<std::string> split(std::string_view text, char separator);
// Return the words between runs of blanks, none of them empty: Python's str.split().
std::vector<std::string> split_words(std::string_view text, std::string_view blanks = " \t\n\r\v\f");
inline std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }
// Return a text without blanks at its ends.
std::string trimmed(std::string_view text, const char* blanks = " \t\n\r\v\f");
inline bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }
bool ends_with(std::string_view text, std::string_view end);
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}
void replace_all(std::string& text, std::string_view from, std::string_view to);
void remove_byte_order_mark(std::string& text);
// Return the number of characters of a text in UTF-8.
inline size_t character_count(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Return the one that is nearest to a word, "" where none is near: the first of Python's difflib.get_close_matches.
std::string close_match(std::string_view word, const std::vector<std::string>& possibilities);

}  // namespace spc
