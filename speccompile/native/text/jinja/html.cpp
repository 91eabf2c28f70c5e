// The filter striptags: texts of HTML without their tags, as markupsafe, and with characters in place of their names, as Python's html.
#include <algorithm>
#include <unordered_map>

#include "../html_names.h"
#include "../unicode.h"
#include "filters.h"

namespace spc::jinja {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;

// Characters by their names, which end with a semicolon; some have another one without it.
const std::unordered_map<std::string, std::string>& characters_by_name() {
  static const std::unordered_map<std::string, std::string> known = [] {
    std::unordered_map<std::string, std::string> found;
    const std::string names = unicode::kHtmlNames;
    unicode::Packed codes(unicode::kHtmlCharacters);
    for (size_t at = 0; at < names.size();) {
      const size_t end = std::min(names.find(' ', at), names.size());
      const bool may_be_open = names[end - 1] == '!';
      const std::string name = names.substr(at, end - at - (may_be_open ? 1 : 0));
      std::string text;
      for (uint32_t left = codes.number(); left > 0; --left) unicode::append(text, codes.number());
      if (may_be_open) found[name] = text;
      found[name + ";"] = std::move(text);
      at = end + 1;
    }
    return found;
  }();
  return known;
}

// Characters that the numbers of control characters mean: those of Windows 1252.
const std::unordered_map<uint32_t, uint32_t>& replaced_numbers() {
  static const std::unordered_map<uint32_t, uint32_t> known = [] {
    std::unordered_map<uint32_t, uint32_t> found;
    for (unicode::Packed numbers(unicode::kHtmlNumbers); numbers.more();) {
      const uint32_t number = numbers.number();
      found[number] = numbers.number();
    }
    return found;
  }();
  return known;
}

// Numbers of no character that a document may have.
bool is_forbidden(uint32_t code) {
  return (code < 0x20 && code != '\t' && code != '\n' && code != '\f' && code != '\r') || (code >= 0x7F && code < 0xA0) || (code >= 0xFDD0 && code < 0xFDF0) ||
         (code & 0xFFFE) == 0xFFFE;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : 16;
}

// Add the character whose number stands behind "&#" at a place. Returns its end, `at` where no number stands there.
size_t add_number(std::string& found, const std::string& text, size_t at) {
  const bool is_hex = at < text.size() && (text[at] == 'x' || text[at] == 'X');
  const int base = is_hex ? 16 : 10;
  uint32_t code = 0;
  size_t end = at + is_hex;
  for (; end < text.size() && digit_of(text[end]) < base; ++end) code = std::min<uint32_t>(code * static_cast<uint32_t>(base) + static_cast<uint32_t>(digit_of(text[end])), 0x110000);
  if (end == at + is_hex) return at;
  const auto other = replaced_numbers().find(code);
  if (other != replaced_numbers().end())
    unicode::append(found, other->second);
  else if (code > unicode::kLast || (code >= 0xD800 && code < 0xE000))
    unicode::append(found, kReplacement);
  else if (!is_forbidden(code))
    unicode::append(found, code);
  return end + (end < text.size() && text[end] == ';');
}

// Add the character whose name, or the longest beginning that is one, stands behind "&" at a place. Returns its end, `at` without one.
size_t add_name(std::string& found, const std::string& text, size_t at) {
  constexpr size_t kLongest = 32;
  size_t end = at;
  for (size_t count = 0; count < kLongest && end < text.size() && std::string_view("\t\n\f <&#;").find(text[end]) == std::string_view::npos; ++count) end += unicode::length(text[end]);
  if (end > at && end < text.size() && text[end] == ';') ++end;
  for (size_t size = end - at; size > 1; --size) {
    const auto known = characters_by_name().find(text.substr(at, size));
    if (known == characters_by_name().end()) continue;
    found += known->second;
    return at + size;
  }
  return at;
}

std::string unescaped(const std::string& text) {
  std::string found;
  for (size_t at = 0; at < text.size();) {
    const bool is_number = text.compare(at, 2, "&#") == 0;
    const size_t begin = at + (is_number ? 2 : 1);
    const size_t end = text[at] != '&' ? begin : is_number ? add_number(found, text, begin) : add_name(found, text, begin);
    if (end == begin) {
      found += text[at++];
    } else {
      at = end;
    }
  }
  return found;
}

// Tags and comments are left out, up to the first that has no end.
std::string without_markup(const std::string& text) {
  std::string found;
  size_t at = 0;
  for (size_t start; (start = text.find('<', at)) != std::string::npos;) {
    const bool is_comment = text.compare(start, 4, "<!--") == 0;
    const size_t end = is_comment ? text.find("-->", start + 4) : text.find('>', start);
    if (end == std::string::npos) break;
    found += text.substr(at, start - at);
    at = end + (is_comment ? 3 : 1);
  }
  return found + text.substr(at);
}

// Blanks become one space, and none at the ends.
std::string with_single_spaces(const std::string& text) {
  std::string found;
  bool was_blank = false;
  for (const std::string_view each : characters_of(text)) {
    const bool is_now = is_blank(each);
    if (!is_now && was_blank && !found.empty()) found += ' ';
    if (!is_now) found += each;
    was_blank = is_now;
  }
  return found;
}

}  // namespace

Value without_tags(const Value& value, const Arguments& /*given*/, Budget& budget) {
  std::string found = unescaped(with_single_spaces(without_markup(value.str())));
  budget.text(found.size());
  return found;
}

}  // namespace spc::jinja
