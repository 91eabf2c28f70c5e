// Escapes and classes of regular expressions.
#include <algorithm>
#include <string>

#include "../text/pattern_tree.h"
#include "regex.h"
#include "regex_tree.h"

namespace spc::constraints {
namespace {

using unicode::Set;

constexpr int kDeepest = 100;

Set cased(const Set& set, bool caseless) { return caseless ? with_cases(set) : set; }

}  // namespace

bool RegexClasses::next(std::string_view text) {
  if (source_.substr(at_, text.size()) != text) return false;
  at_ += text.size();
  return true;
}

uint32_t RegexClasses::character() {
  if (!more()) throw Refused{"it ends too early"};
  const auto [code, size] = unicode::decode(source_, at_);
  at_ += size;
  return code;
}

uint32_t RegexClasses::hexadecimal(size_t digits) {
  std::string_view found;
  if (next("{")) {
    const size_t end = source_.find('}', at_);
    if (end == std::string_view::npos) throw Refused{"{ without }"};
    found = source_.substr(at_, end - at_);
    at_ = end + 1;
  } else {
    found = source_.substr(at_, digits);
    at_ += found.size();
    if (found.size() < digits) found = {};
  }
  uint32_t code = 0;
  for (const char each : found) {
    const std::string_view known = "0123456789abcdef";
    const size_t digit = known.find(each >= 'A' && each <= 'F' ? static_cast<char>(each + 32) : each);
    if (digit == std::string_view::npos || code > unicode::kLast) throw Refused{"no hexadecimal number of a character"};
    code = code << 4 | static_cast<uint32_t>(digit);
  }
  if (found.empty() || code > unicode::kLast || (code >= 0xD800 && code <= 0xDFFF)) throw Refused{"no hexadecimal number of a character"};
  return code;
}

uint32_t RegexClasses::escaped_character() {
  const uint32_t code = character();
  switch (code) {
    case 't': return '\t';
    case 'n': return '\n';
    case 'r': return '\r';
    case 'f': return '\f';
    case 'v': return '\v';
    case 'a': return '\a';
    case 'x': return hexadecimal(2);
    case 'u': return hexadecimal(4);
    case 'U': return hexadecimal(8);
    default: break;
  }
  const bool is_letter = (code | 0x20) - 'a' < 26u || code - '0' < 10u;
  if (is_letter || code == '<' || code == '>' || code >= 0x80 || code <= ' ')
    throw Refused{"\\" + std::string(source_.substr(at_ - 1, code < 0x80)) + " is not known here"};
  return code;
}

Set RegexClasses::escaped_set() {
  if (!more()) return {};
  const char letter = source_[at_];
  if (letter == 'p' || letter == 'P') {
    ++at_;
    return property(letter == 'P');
  }
  static const std::string_view kLetters = "dDwWsS";
  if (kLetters.find(letter) == std::string_view::npos) return {};
  ++at_;
  const char small = static_cast<char>(letter | 0x20);
  Set found;
  if (ascii_ && small == 'd')
    found = Set({{'0', '9'}});
  else if (ascii_ && small == 'w')
    found = Set({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  else
    found = spc::escaped_set(small, true);
  return letter == small ? found : ~found;
}

Set RegexClasses::property(bool negative) {
  std::string name;
  if (next("{")) {
    const size_t end = source_.find('}', at_);
    if (end == std::string_view::npos) throw Refused{"{ without }"};
    if (next("^")) negative = !negative;
    name = source_.substr(at_, end - at_);
    at_ = end + 1;
  } else {
    const size_t begin = at_;
    character();
    name = source_.substr(begin, at_ - begin);
  }
  const Set found = unicode::category(name);
  if (found.empty()) throw Refused{"\\p{" + name + "} is not known here: general categories are, by their short names"};
  return negative ? ~found : found;
}

// Behind [:, where such a name follows; empty where not.
Set RegexClasses::posix() {
  const size_t end = source_.find(":]", at_);
  if (end == std::string_view::npos) return {};
  std::string name(source_.substr(at_, end - at_));
  const bool negative = !name.empty() && name[0] == '^';
  if (negative) name.erase(0, 1);
  const Set found = name == "word" ? Set({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}) : posix_set(name) & Set({{0, 0x7F}});
  if (found.empty()) return {};
  at_ = end + 2;
  return negative ? ~found : found;
}

Set RegexClasses::brackets(bool caseless, int depth) {
  if (depth > kDeepest) throw Refused{"brackets nested too deeply"};
  const bool negative = next("^");
  const Set found = cased(items(caseless, depth), caseless);
  if (!next("]")) throw Refused{"[ without ]"};
  return negative ? ~found : found;
}

// The union of what stands up to ], and of it and what stands behind && or -- or ~~ what these say.
Set RegexClasses::items(bool caseless, int depth) {
  std::vector<Set::Range> ranges;
  Set sets;
  const auto all = [&] { return Set(ranges) | sets; };
  for (bool first = true; more() && (first || source_[at_] != ']'); first = false) {
    if (next("&&")) return all() & items(caseless, depth);
    if (next("--")) return all() & ~items(caseless, depth);
    if (next("~~")) throw Refused{"~~ in brackets is not known here"};
    if (next("[")) {
      const size_t begin = at_;
      const Set named = next(":") ? posix() : Set();
      if (named.empty()) at_ = begin;
      sets = sets | (named.empty() ? brackets(caseless, depth + 1) : named);
      continue;
    }
    uint32_t from = 0;
    if (next("\\")) {
      const Set escaped = escaped_set();
      if (!escaped.empty()) {
        sets = sets | escaped;
        continue;
      }
      from = escaped_character();
    } else {
      from = character();
    }
    uint32_t to = from;
    const std::string_view rest = source_.substr(at_);
    if (rest.size() > 1 && rest[0] == '-' && rest[1] != ']' && rest[1] != '-') {
      ++at_;
      to = next("\\") ? escaped_character() : character();
      if (to < from) throw Refused{"a range of characters whose end is before its begin"};
    }
    ranges.emplace_back(from, to);
  }
  return all();
}

}  // namespace spc::constraints
