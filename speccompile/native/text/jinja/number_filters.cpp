// Filters that make numbers, which read texts as Python's int() and float() do.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "../unicode.h"
#include "filters.h"

namespace spc::jinja {
namespace {

[[noreturn]] void too_large() { throw TemplateError{"it makes an integer of more than 64 bits, which is not supported here"}; }

// A text without blanks around it. Throws TemplateError for digits of other scripts, which Python reads as well.
std::string number_text(const Value& value) {
  static const unicode::Set digits = unicode::category("Nd");
  const std::string text = stripped(value.text(), nullptr, true, true);
  for (const std::string_view each : characters_of(text))
    if (each.size() > 1 && digits.has(unicode::decode(each, 0).code)) throw TemplateError{"it reads a number in digits beyond ASCII, which is not supported here"};
  return text;
}

// A text without the single underscores between its digits; none where others are.
std::optional<std::string> without_underscores(const std::string& text) {
  std::string found;
  const auto is_digit = [&](size_t at) { return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])); };
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '_')
      found += text[at];
    else if (at == 0 || !is_digit(at - 1) || !is_digit(at + 1))
      return std::nullopt;
  }
  return found;
}

// int(text, base); none where Python raises ValueError.
std::optional<int64_t> parsed_integer(std::string text, int64_t base) {
  bool is_negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    is_negative = text[0] == '-';
    text.erase(0, 1);
  }
  const auto prefix = [&](char letter, int64_t of) {
    if (text.size() > 1 && text[0] == '0' && (text[1] | 32) == letter && (base == of || base == 0)) {
      base = of;
      text.erase(0, text.size() > 2 && text[2] == '_' ? 3 : 2);
    }
  };
  prefix('x', 16);
  prefix('o', 8);
  prefix('b', 2);
  const std::optional<std::string> digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  if (base == 0 && (*digits)[0] == '0' && digits->find_first_not_of('0') != std::string::npos) return std::nullopt;
  if (base == 0) base = 10;
  int64_t found = 0;
  bool is_over = false;
  for (const char c : *digits) {
    const int64_t digit = c >= '0' && c <= '9' ? c - '0' : std::isalpha(static_cast<unsigned char>(c)) ? (c | 32) - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    is_over = is_over || __builtin_mul_overflow(found, base, &found) || __builtin_sub_overflow(found, digit, &found);  // below zero there is room for one more
  }
  if (is_over || (!is_negative && __builtin_sub_overflow(int64_t{0}, found, &found))) too_large();
  return found;
}

// float(text); none where Python raises ValueError.
std::optional<double> parsed_real(const std::string& text) {
  const std::optional<std::string> plain = without_underscores(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string word;
  for (const char c : plain->substr((*plain)[0] == '-' || (*plain)[0] == '+' ? 1 : 0)) word += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  const bool is_word = word == "inf" || word == "infinity" || word == "nan";
  if (!is_word && (word.empty() || word.find_first_not_of("0123456789.e+-") != std::string::npos)) return std::nullopt;
  char* end = nullptr;
  const double found = std::strtod(plain->c_str(), &end);
  return *end ? std::nullopt : std::optional<double>(found);
}

std::optional<int64_t> truncated(double value) {
  if (std::isnan(value)) return std::nullopt;
  if (std::fabs(value) >= 9.2e18) too_large();
  return static_cast<int64_t>(value);
}

Value integer(const Value& value, const Arguments& given, Budget& /*budget*/) {
  const Value* const own = given.find(0, "default");
  const Value otherwise = own ? *own : Value(int64_t{0});
  const int64_t base = integer_argument(given, 1, "base", 10);
  if (defined(value).calculable().is_whole()) return value.integer();
  if (value.is(Value::Kind::kReal)) {
    if (std::isinf(value.real())) throw TemplateError{"cannot convert float infinity to integer"};
    const std::optional<int64_t> found = truncated(value.real());
    return found ? Value(*found) : otherwise;
  }
  if (!value.is_text()) return otherwise;
  const std::string text = number_text(value);
  const bool is_base = base == 0 || (base >= 2 && base <= 36);
  if (const std::optional<int64_t> found = is_base ? parsed_integer(text, base) : std::nullopt) return *found;
  const std::optional<double> real = parsed_real(text);
  if (!real || std::isinf(*real)) return otherwise;
  const std::optional<int64_t> found = truncated(*real);
  return found ? Value(*found) : otherwise;
}

Value real(const Value& value, const Arguments& given, Budget& /*budget*/) {
  const Value* const otherwise = given.find(0, "default");
  if (defined(value).calculable().is_number()) return value.real();
  const std::optional<double> found = value.is_text() ? parsed_real(number_text(value)) : std::nullopt;
  if (found) return *found;
  return otherwise ? *otherwise : Value(0.0);
}

Value round(const Value& value, const Arguments& given, Budget& /*budget*/) {
  const int64_t digits = std::max<int64_t>(-15, std::min<int64_t>(integer_argument(given, 0, "precision", 0), 15));
  const Value* const way = given.find(1, "method");
  const double by = std::pow(10.0, static_cast<double>(digits)), number = defined(value).calculable().real() * by;
  const std::string name = !way ? "common" : way->is_text() ? way->text() : "";
  if (name != "common" && name != "ceil" && name != "floor") throw TemplateError{"method must be common, ceil or floor"};
  if (!value.is_number()) throw TemplateError{std::string("type ") + value.type() + " doesn't define __round__ method"};
  if (name == "common" && digits >= 0) {  // as in Python: the decimal that is closest to the number itself, integers stay such
    if (value.is_whole()) return value.integer();
    char written[400];
    std::snprintf(written, sizeof written, "%.*f", static_cast<int>(digits), value.real());
    return std::strtod(written, nullptr);
  }
  if (name == "common" && value.is_whole()) return static_cast<int64_t>(std::nearbyint(number) / by);
  return (name == "ceil" ? std::ceil(number) : name == "floor" ? std::floor(number) : std::nearbyint(number)) / by;
}

Value absolute(const Value& value, const Arguments& /*given*/, Budget& budget) {
  if (!defined(value).calculable().is_number()) throw TemplateError{std::string("bad operand type for abs(): '") + value.type() + "'"};
  if (!value.is_whole()) return std::fabs(value.real());
  return value.integer() < 0 ? binary("-", int64_t{0}, value, budget) : Value(value.integer());
}

}  // namespace

const Filters& number_filters() {
  static const Filters known = {
      {"abs", {absolute}}, {"int", {integer, "default,base"}}, {"float", {real, "default"}}, {"round", {round, "precision,method"}}};
  return known;
}

}  // namespace spc::jinja
