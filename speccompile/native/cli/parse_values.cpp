// Numbers of a command line, as Python reads them.
#include <algorithm>
#include <charconv>
#include <limits>

#include "../words.h"
#include "options.h"

namespace spc::cli {
namespace {

// Return a number without blanks around it, a sign in front and underscores between digits; "" for what Python reads as no number.
std::string plain_number(std::string_view given, bool& is_negative) {
  std::string text = trimmed(given);
  is_negative = starts_with(text, "-");
  if (is_negative || starts_with(text, "+")) text.erase(0, 1);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_')
      plain += text[i];
    else if (!i || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1]))
      return "";
  }
  return plain;
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

std::string plain_whole(std::string_view text) {
  bool is_negative = false;
  std::string digits = plain_number(text, is_negative);
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return (is_negative && digits != "0" ? "-" : "") + digits;
}

}  // namespace spc::cli
