// Texts written as Python's % writes them.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "../unicode.h"
#include "builtins.h"

namespace spc::jinja {
namespace {

constexpr int64_t kMost = 1000;  // of widths and precisions; published templates pad to ten

// One %.. of a format.
struct Conversion {
  bool is_left = false, has_plus = false, has_blank = false, has_zeros = false, is_alternative = false;
  int64_t width = 0, precision = -1;
  char type = 0;
};

class Formatter {
 public:
  Formatter(const Value& format, const Value& values) : format_(format.text()), is_markup_(format.is_markup()), values_(values) {}

  std::string run(Budget& budget) {
    std::string found;
    for (size_t next; (next = format_.find('%', at_)) != std::string::npos;) {
      found += format_.substr(at_, next - at_);
      at_ = next + 1;
      found += converted();
      budget.text(found.size());
    }
    const bool has_names = values_.is_dict() || values_.is(Value::Kind::kList) || values_.is(Value::Kind::kRange) || values_.is_undefined();
    if (!has_names && taken_ < (values_.is(Value::Kind::kTuple) ? values_.values().size() : 1)) throw TemplateError{"not all arguments converted during string formatting"};
    return found + format_.substr(at_);
  }

 private:
  char look() const {
    if (at_ >= format_.size()) throw TemplateError{"incomplete format"};
    return format_[at_];
  }
  bool skip(char c) {
    if (look() != c) return false;
    ++at_;
    return true;
  }

  int64_t number() {
    int64_t found = 0;
    if (look() == '*') throw TemplateError{"it formats with a width among the values, which is not supported here"};
    for (; look() >= '0' && look() <= '9'; ++at_) found = std::min(found * 10 + (look() - '0'), kMost + 1);
    if (found > kMost) throw TemplateError{"it formats with a width of more than " + std::to_string(kMost)};
    return found;
  }

  // Return the next value, or that of a name in brackets.
  Value value(const std::string* name) {
    if (name) {
      if (!values_.is_dict()) throw TemplateError{"format requires a mapping"};
      const Value* const found = values_.dict().find(*name);
      if (!found) throw TemplateError{python_repr(*name)};
      return *found;
    }
    const bool is_tuple = values_.is(Value::Kind::kTuple);
    if (taken_ >= (is_tuple ? values_.values().size() : 1)) throw TemplateError{"not enough arguments for format string"};
    return is_tuple ? values_.values()[taken_++] : (++taken_, values_);
  }

  std::string converted() {
    Conversion how;
    std::string name;
    const bool has_name = skip('(');
    if (has_name) {
      for (int depth = 1; depth;) {
        const char c = look();
        ++at_;
        depth += c == '(' ? 1 : c == ')' ? -1 : 0;
        if (depth) name += c;
      }
    }
    for (bool is_flag = true; is_flag;) {
      is_flag = false;
      for (const auto& [sign, flag] : {std::pair('-', &how.is_left), std::pair('+', &how.has_plus), std::pair(' ', &how.has_blank), std::pair('0', &how.has_zeros), std::pair('#', &how.is_alternative)})
        if (skip(sign)) *flag = is_flag = true;
    }
    how.width = number();
    if (skip('.')) how.precision = number();
    if (look() == 'h' || look() == 'l' || look() == 'L') ++at_;
    how.type = look();
    ++at_;
    if (how.type == '%') return "%";
    return written(how, value(has_name ? &name : nullptr));
  }

  std::string written(const Conversion& how, const Value& value) const {
    if (how.type != 's' && how.type != 'r') value.calculable();
    switch (how.type) {
      case 's': return padded(how, "", cut(is_markup_ ? escaped(value) : value.str(), how.precision), false);
      case 'r': return padded(how, "", cut(is_markup_ ? escaped(value.repr()) : value.repr(), how.precision), false);
      case 'c': return padded(how, "", character(value), false);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': return whole(how, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': return real(how, value);
      default: throw TemplateError{std::string("it formats with %") + how.type + ", which is not supported here"};
    }
  }

  static std::string cut(const std::string& text, int64_t most) {
    if (most < 0 || length_of(Value(text)) <= most) return text;
    std::string found;
    for (const std::string_view each : characters_of(text)) {
      if (most-- <= 0) break;
      found += each;
    }
    return found;
  }

  static std::string character(const Value& value) {
    if (value.is_text() && length_of(value) == 1) return value.text();
    std::string found;
    if (!value.is_whole()) throw TemplateError{"%c requires int or char"};
    if (value.integer() < 0 || value.integer() > unicode::kLast) throw TemplateError{"%c arg not in range(0x110000)"};
    unicode::append(found, static_cast<uint32_t>(value.integer()));
    return found;
  }

  static std::string whole(const Conversion& how, const Value& value) {
    const bool is_decimal = how.type == 'd' || how.type == 'i' || how.type == 'u';
    const bool fits = is_decimal ? value.is_number() : value.is_whole();
    if (!fits) throw TemplateError{std::string("%") + how.type + " format: " + (is_decimal ? "a real number" : "an integer") + " is required, not " + value.type()};
    if (value.is(Value::Kind::kReal) && !(std::fabs(value.real()) < 9.2e18)) throw TemplateError{"it makes an integer of more than 64 bits, which is not supported here"};
    const int64_t number = value.is_whole() ? value.integer() : static_cast<int64_t>(value.real());
    const uint64_t size = number < 0 ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    char digits[32];
    std::snprintf(digits, sizeof digits, how.type == 'x' ? "%lx" : how.type == 'X' ? "%lX" : how.type == 'o' ? "%lo" : "%lu", static_cast<unsigned long>(size));
    std::string text = digits;
    if (static_cast<int64_t>(text.size()) < how.precision) text.insert(0, static_cast<size_t>(how.precision) - text.size(), '0');
    const std::string prefix = is_decimal || !how.is_alternative ? "" : how.type == 'o' ? "0o" : how.type == 'x' ? "0x" : "0X";
    return padded(how, sign(how, number < 0) + prefix, text, true);
  }

  static std::string real(const Conversion& how, const Value& value) {
    if (!value.is_number()) throw TemplateError{std::string("must be real number, not ") + value.type()};
    const double number = value.real();
    const std::string pattern = std::string("%") + (how.is_alternative ? "#" : "") + ".*" + how.type;
    char text[2048];  // 1,000 digits behind the point, and 309 before it
    std::snprintf(text, sizeof text, pattern.c_str(), static_cast<int>(how.precision < 0 ? 6 : how.precision), std::fabs(number));
    return padded(how, sign(how, std::signbit(number) && !std::isnan(number)), text, true);
  }

  static std::string sign(const Conversion& how, bool is_negative) { return is_negative ? "-" : how.has_plus ? "+" : how.has_blank ? " " : ""; }

  static std::string padded(const Conversion& how, const std::string& before, const std::string& text, bool is_number) {
    const int64_t missing = how.width - length_of(Value(before + text));
    const std::string fill(static_cast<size_t>(std::max<int64_t>(0, missing)), is_number && how.has_zeros && !how.is_left ? '0' : ' ');
    if (how.is_left) return before + text + fill;
    return is_number && how.has_zeros ? before + fill + text : fill + before + text;
  }

  const std::string& format_;
  const bool is_markup_;  // values are escaped then
  const Value& values_;
  size_t at_ = 0, taken_ = 0;
};

}  // namespace

Value formatted(const Value& format, const Value& values, Budget& budget) { return like(format, Formatter(format, values).run(budget)); }

}  // namespace spc::jinja
