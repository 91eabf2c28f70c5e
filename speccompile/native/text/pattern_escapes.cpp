// Escapes of patterns, and the names of sets of characters.
#include <charconv>
#include <map>

#include "pattern_tree.h"

namespace spc {
namespace {

using unicode::Set;

// Return a name as Oniguruma compares it: in lower case, without spaces, - and _.
std::string plain(std::string_view name) {
  std::string found;
  for (const char c : name)
    if (c != ' ' && c != '-' && c != '_') found += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return found;
}

// The long names of general categories that patterns use.
std::string short_name(const std::string& name) {
  static const std::map<std::string, std::string> kShort = {
      {"letter", "L"}, {"uppercaseletter", "Lu"}, {"lowercaseletter", "Ll"}, {"titlecaseletter", "Lt"},
      {"modifierletter", "Lm"}, {"otherletter", "Lo"}, {"mark", "M"}, {"nonspacingmark", "Mn"},
      {"spacingmark", "Mc"}, {"enclosingmark", "Me"}, {"number", "N"}, {"decimalnumber", "Nd"},
      {"letternumber", "Nl"}, {"othernumber", "No"}, {"punctuation", "P"}, {"connectorpunctuation", "Pc"},
      {"dashpunctuation", "Pd"}, {"openpunctuation", "Ps"}, {"closepunctuation", "Pe"}, {"initialpunctuation", "Pi"},
      {"finalpunctuation", "Pf"}, {"otherpunctuation", "Po"}, {"symbol", "S"}, {"mathsymbol", "Sm"},
      {"currencysymbol", "Sc"}, {"modifiersymbol", "Sk"}, {"othersymbol", "So"}, {"separator", "Z"},
      {"spaceseparator", "Zs"}, {"lineseparator", "Zl"}, {"paragraphseparator", "Zp"}, {"other", "C"},
      {"control", "Cc"}, {"format", "Cf"}, {"privateuse", "Co"}, {"unassigned", "Cn"}};
  const auto found = kShort.find(name);
  if (found != kShort.end()) return found->second;
  std::string letters = name.size() <= 2 ? name : "";
  if (!letters.empty()) letters[0] = static_cast<char>(letters[0] - 32);
  return letters;
}

// Empty for another name.
Set named(const std::string& name) {
  if (name.empty() || name == "word") return {};  // \p{word} is \w or, in brackets, [:word:]: nobody writes it
  if (name == "any") return ~Set();
  if (name == "punct") return unicode::category("P");  // fewer than [:punct:]
  if (Set found = posix_set(name); !found.empty()) return found;
  const bool letters = name[0] >= 'a' && name[0] <= 'z';
  if (Set found = letters ? unicode::category(short_name(name)) : Set(); !found.empty()) return found;
  return unicode::property(name);
}

uint32_t hexadecimal(std::string_view source, size_t& at, size_t least, size_t most) {
  uint32_t value = 0;
  size_t digits = 0;
  for (; digits < most && at < source.size(); ++digits, ++at) {
    uint32_t digit = 0;
    if (std::from_chars(&source[at], &source[at] + 1, digit, 16).ec != std::errc()) break;
    value = value << 4 | digit;
  }
  if (digits < least) unknown("too few hexadecimal digits");
  if (value > unicode::kLast || (value >= 0xD800 && value < 0xE000)) unknown("a number that is no character");
  return value;
}

}  // namespace

Set posix_set(const std::string& name) {
  using namespace unicode;
  if (name == "alnum") return property("alpha") | category("Nd");
  if (name == "ascii") return Set({{0, 127}});
  if (name == "blank") return category("Zs") | Set({{'\t', '\t'}});
  if (name == "cntrl") return category("Cc");
  if (name == "digit") return category("Nd");
  if (name == "graph") return ~(category("Cn") | category("Cc") | category("Z"));
  if (name == "print") return posix_set("graph") | category("Zs");
  if (name == "xdigit") return Set({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  static constexpr const char* kOwn[] = {"alpha", "lower", "punct", "space", "upper", "word"};
  for (const char* own : kOwn)
    if (name == own) return property(own);
  return {};
}

Set parse_property(std::string_view source, size_t& at, bool negative) {
  if (source.substr(at, 1) != "{") unknown("\\p without {");
  const size_t end = source.find('}', at);
  if (end == std::string_view::npos) broken("\\p{ without }");
  std::string_view name = source.substr(at + 1, end - at - 1);
  at = end + 1;
  if (name.substr(0, 1) == "^") {
    negative = !negative;
    name.remove_prefix(1);
  }
  const Set set = named(plain(name));
  if (set.empty()) unknown("\\p{" + std::string(name) + "}");
  return negative ? ~set : set;
}

Set escaped_set(char letter, bool in_brackets) {
  switch (letter) {
    case 's': return unicode::property("space");
    case 'd': return unicode::category("Nd");
    case 'w': return unicode::property(in_brackets ? "word" : "word_escape");
    case 'h': return posix_set("xdigit");
    case 'S': case 'D': case 'W': case 'H': return ~escaped_set(static_cast<char>(letter + 32), in_brackets);
    default: return {};
  }
}

uint32_t parse_escape(std::string_view source, size_t& at) {
  if (at >= source.size()) broken("a backslash at the end");
  const auto [code, size] = unicode::decode(source, at);
  at += size;
  switch (code) {
    case 't': return '\t';
    case 'n': return '\n';
    case 'r': return '\r';
    case 'f': return '\f';
    case 'v': return '\v';
    case 'a': return '\a';
    case 'e': return 0x1B;
    case 'u': return hexadecimal(source, at, 4, 4);
    case 'x': break;
    default:
      if ((code | 0x20) - 'a' < 26u || code - '0' < 10u) unknown(std::string("\\") + static_cast<char>(code));
      return code;
  }
  if (at < source.size() && source[at] == '{') {
    const uint32_t value = hexadecimal(source, ++at, 1, 6);
    if (at >= source.size() || source[at] != '}') unknown("\\x{ without } behind its digits");
    ++at;
    return value;
  }
  const uint32_t value = hexadecimal(source, at, 1, 2);
  if (value >= 0x80) unknown("a byte that is no character");
  return value;
}

}  // namespace spc
