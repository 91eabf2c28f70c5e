// Words of a command line: numbers as Python reads them, and the nearest of several words.
#include <algorithm>
#include <charconv>
#include <limits>
#include <tuple>

#include "options.h"

namespace spc::cli {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Without blanks around it, a sign in front and underscores between digits; "" for what Python reads as no number.
std::string plain_number(std::string_view text, bool& is_negative) {
  constexpr std::string_view kBlanks = " \t\n\r\v\f";
  const size_t first = std::min(text.find_first_not_of(kBlanks), text.size());
  text = text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
  is_negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_')
      plain += text[i];
    else if (!i || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1]))
      return "";
  }
  return plain;
}

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

std::optional<Value> read_whole(std::string_view text) {
  bool is_negative = false;
  const std::string digits = plain_number(text, is_negative);
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return std::nullopt;
  uint64_t whole = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), whole).ec == std::errc())
    return is_negative && whole ? Value::of(-static_cast<double>(whole)) : Value::of(whole);
  const std::optional<double> real = read_real(text);  // of more than 64 bits: nothing takes it
  return real ? std::optional<Value>(Value::of(*real)) : std::nullopt;
}

std::optional<double> read_real(std::string_view text) {
  bool is_negative = false;
  const std::string plain = plain_number(text, is_negative);
  const bool is_odd = plain.empty() || plain[0] == '-' || plain.back() == ')';  // from_chars knows nan(..)
  double value = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (is_odd || end != plain.data() + plain.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {  // which does not say of which end
    const size_t e = plain.find_first_of("eE");
    const bool is_small = e == std::string::npos ? plain[0] == '0' || plain[0] == '.' : plain[e + 1] == '-';
    value = is_small ? 0 : std::numeric_limits<double>::infinity();
  }
  return is_negative ? -value : value;
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

}  // namespace spc::cli
