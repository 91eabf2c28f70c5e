#include "numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "../json.h"
#include "regex.h"

namespace spc::constraints {
namespace {

using Whole = std::optional<int64_t>;
using Real = std::optional<double>;

std::string either(const std::vector<std::string>& parts) {
  if (parts.size() == 1) return parts[0];
  std::string found;
  for (const std::string& part : parts) found += (found.empty() ? "(" : "|") + part;
  return found + ")";
}

size_t digits_of(int64_t value) { return std::to_string(value).size() - (value < 0); }

// Return a number as Rust writes it: without exponent.
std::string written(double value) {
  std::string text = python_repr(value);
  if (const size_t at = text.find('e'); at != std::string::npos) {
    const int exponent = std::atoi(text.c_str() + at + 1);
    std::string sign = text[0] == '-' ? "-" : "", digits = text.substr(sign.size(), at - sign.size());
    const size_t point = std::min(digits.find('.'), digits.size());
    if (point < digits.size()) digits.erase(point, 1);
    const int place = static_cast<int>(point) + exponent;
    if (place <= 0) return sign + "0." + std::string(static_cast<size_t>(-place), '0') + digits;
    if (digits.size() < static_cast<size_t>(place)) digits.append(static_cast<size_t>(place) - digits.size(), '0');
    const std::string behind = digits.substr(static_cast<size_t>(place));
    return sign + digits.substr(0, static_cast<size_t>(place)) + (behind.empty() ? "" : "." + behind);
  }
  if (text.size() > 2 && text.compare(text.size() - 2, 2, ".0") == 0) text.erase(text.size() - 2);
  return text;
}

std::string escaped(const std::string& number) {
  std::string found;
  for (const char each : number) found += each == '.' || each == '-' ? std::string("\\") + each : std::string(1, each);
  return found;
}

int64_t to_whole(const std::string& text) {
  if (text.empty()) return 0;
  const Json value = Json::parse(text);
  if (value.type() != Json::Type::kInteger) throw Refused{"a number of too many digits: " + text};
  return value.integer();
}

std::string between(Whole least, Whole most);

std::string same_digits(int64_t least, int64_t most) {
  const std::string left = std::to_string(least), right = std::to_string(most);
  if (least == most) return "(" + left + ")";
  const std::string left_before = left.substr(0, left.size() - 1), right_before = right.substr(0, right.size() - 1);
  const char left_last = left.back(), right_last = right.back();
  if (left_before == right_before) return "(" + left_before + "[" + left_last + "-" + right_last + "])";
  int64_t from = to_whole(left_before), to = to_whole(right_before);
  std::vector<std::string> parts;
  if (left_last != '0') {
    ++from;
    parts.push_back(left_before + "[" + left_last + "-9]");
  }
  if (right_last != '9') {
    --to;
    parts.push_back(right_before + "[0-" + right_last + "]");
  }
  if (from <= to) parts.push_back(between(from, to) + "[0-9]");
  return either(parts);
}

std::string between(Whole least, Whole most) {
  if (!least && !most) return "-?(0|[1-9][0-9]*)";
  if (!most) {
    if (*least < 0) return either({between(least, -1), between(0, std::nullopt)});
    const size_t digits = digits_of(*least);
    if (digits > 18) throw Refused{"a bound of more than 18 digits"};
    return either({between(least, to_whole(std::string(digits, '9'))), "[1-9][0-9]{" + std::to_string(digits) + ",}"});
  }
  if (!least) return *most >= 0 ? either({between(0, most), between(std::nullopt, -1)}) : "-" + between(-*most, std::nullopt);
  if (*least > *most) throw Refused{"a range whose end is before its begin"};
  if (*least < 0) {
    if (*most < 0) return "(-" + between(-*most, -*least) + ")";
    return "(-" + between(0, -*least) + "|" + between(0, most) + ")";
  }
  if (digits_of(*least) == digits_of(*most)) return same_digits(*least, *most);
  if (digits_of(*least) > 18) throw Refused{"a bound of more than 18 digits"};
  const int64_t nines = to_whole(std::string(digits_of(*least), '9'));
  return either({between(least, nines), between(nines + 1, most)});
}

// Digits behind a point, from these on.
std::string digits_from(const std::string& digits, bool inclusive) {
  if (digits.empty()) return inclusive ? "[0-9]*" : "[0-9]*[1-9]";
  if (inclusive && digits.size() == 1) return "[" + digits + "-9][0-9]*";
  std::vector<std::string> parts = {digits[0] + digits_from(digits.substr(1), inclusive)};
  if (digits[0] < '9') parts.push_back(std::string("[") + static_cast<char>(digits[0] + 1) + "-9][0-9]*");
  return either(parts);
}

// Digits behind a point, up to these.
std::string digits_to(const std::string& digits, bool inclusive) {
  if (digits.empty()) {
    if (!inclusive) throw Refused{"an empty range"};
    return "";
  }
  const auto below = [&] { return std::string("[0-") + static_cast<char>(digits[0] - 1) + "][0-9]*"; };
  if (!inclusive && digits.size() == 1) {
    if (digits[0] == '0') throw Refused{"an empty range"};
    return below();
  }
  std::vector<std::string> parts = {digits[0] + digits_to(digits.substr(1), inclusive)};
  if (digits[0] > '0') parts.push_back(below());
  return either(parts);
}

std::string without_zeros(std::string digits) {
  while (!digits.empty() && digits.back() == '0') digits.pop_back();
  return digits;
}

// Digits behind a point between digits of equal number.
std::string digits_between(const std::string& left, const std::string& right, bool has_left, bool has_right) {
  if (left == right) {
    if (!has_left || !has_right) throw Refused{"an empty range"};
    return left;
  }
  if (left[0] == right[0]) return left[0] + digits_between(left.substr(1), right.substr(1), has_left, has_right);
  if (left[0] > right[0]) throw Refused{"an empty range"};
  std::vector<std::string> parts = {left[0] + digits_from(without_zeros(left.substr(1)), has_left)};
  if (left[0] + 1 < right[0]) parts.push_back(std::string("[") + static_cast<char>(left[0] + 1) + "-" + static_cast<char>(right[0] - 1) + "][0-9]*");
  const std::string rest = without_zeros(right.substr(1));
  if (!rest.empty() || has_right) parts.push_back(right[0] + digits_to(rest, has_right));
  return either(parts);
}

std::string positive(double left, double right, bool has_left, bool has_right) {
  if (!std::isfinite(left) || !std::isfinite(right)) throw Refused{"a number that is not finite"};
  const auto parts_of = [](double value) {
    const std::string text = written(value);
    const size_t point = std::min(text.find('.'), text.size());
    return std::pair(to_whole(text.substr(0, point)), point < text.size() ? text.substr(point + 1) : "");
  };
  auto [from, left_digits] = parts_of(left);
  auto [to, right_digits] = parts_of(right);
  if (from == to) {
    const size_t size = std::max(left_digits.size(), right_digits.size());
    left_digits.append(size - left_digits.size(), '0');
    right_digits.append(size - right_digits.size(), '0');
    const std::string behind = "\\." + digits_between(left_digits, right_digits, has_left, has_right), whole = std::to_string(from);
    return without_zeros(left_digits).empty() ? "(" + whole + "(" + behind + ")?)" : "(" + whole + behind + ")";
  }
  std::vector<std::string> parts;
  if (!left_digits.empty() || !has_left) {
    parts.push_back("(" + std::to_string(from) + "\\." + digits_from(left_digits, has_left) + ")");
    ++from;
  }
  if (to > from) parts.push_back("(" + between(from, to - 1) + "(\\.[0-9]+)?)");
  if (!right_digits.empty())
    parts.push_back("(" + std::to_string(to) + "(\\." + digits_to(right_digits, has_right) + ")?)");
  else if (has_right)
    parts.push_back(std::to_string(to) + "(\\.0+)?");
  return either(parts);
}

std::string reals(Real left, Real right, bool has_left, bool has_right) {
  if (!left && !right) return "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?";
  if (!right) {
    if (*left < 0) return either({reals(left, 0.0, has_left, false), reals(0.0, std::nullopt, true, false)});
    if (*left >= 1e18) throw Refused{"a bound of more than 18 digits"};
    const size_t digits = digits_of(static_cast<int64_t>(*left));
    return either({reals(left, std::pow(10.0, static_cast<double>(digits)), has_left, false), "[1-9][0-9]{" + std::to_string(digits) + ",}(\\.[0-9]+)?"});
  }
  if (!left) {
    const auto negative = [] { return "-" + reals(0.0, std::nullopt, false, false); };
    if (*right == 0) return has_right ? either({negative(), "0"}) : negative();
    if (*right > 0) return either({negative(), reals(0.0, right, true, has_right)});
    return "-" + reals(-*right, std::nullopt, has_right, false);
  }
  if (*left > *right || (*left == *right && !(has_left && has_right))) throw Refused{"an empty range"};
  if (*left == *right) return "(" + escaped(written(*left)) + ")";
  if (*left >= 0) return positive(*left, *right, has_left, has_right);
  if (*right < 0) return "(-" + reals(-*right, -*left, has_right, has_left) + ")";
  std::vector<std::string> parts = {"(-" + reals(0.0, -*left, false, has_left) + ")"};
  if (*right > 0 || has_right) parts.push_back(reals(0.0, right, true, has_right));
  return either(parts);
}

// The stricter of two bounds, and whether it is exclusive. sign: 1 for lower ones, -1 for upper ones.
std::pair<Real, bool> bound(const Real& plain, const Real& exclusive, double sign) {
  if (exclusive && (!plain || sign * *exclusive >= sign * *plain)) return {exclusive, true};
  return {plain, false};
}

Whole saturated(double value) {
  constexpr double kMost = 9.2233720368547758e18;
  if (value >= kMost) return std::numeric_limits<int64_t>::max();
  return value <= -kMost ? -std::numeric_limits<int64_t>::max() : static_cast<int64_t>(value);  // which has a negative
}

}  // namespace

Decimal decimal_of(double value) {
  uint32_t digits = 0;
  for (; value != std::floor(value); ++digits) value *= 10;
  if (value > std::numeric_limits<uint32_t>::max() || digits > 9) throw Refused{"multipleOf has too many digits"};
  auto whole = static_cast<uint32_t>(value);
  for (; digits > 0 && whole % 10 == 0; --digits) whole /= 10;
  if (whole == 0) throw Refused{"multipleOf 0"};
  return {whole, digits};
}

Decimal common_multiple(const Decimal& left, const Decimal& right) {
  const uint32_t digits = std::max(left.digits, right.digits);
  const auto scaled = [&](const Decimal& each) { return each.coefficient * static_cast<uint64_t>(std::llround(std::pow(10.0, digits - each.digits))); };
  const uint64_t a = scaled(left), b = scaled(right), found = a / std::gcd(a, b);
  if (found > std::numeric_limits<uint32_t>::max() / b) throw Refused{"multipleOf has too many digits"};
  return decimal_of(static_cast<double>(found * b) / std::pow(10.0, digits));
}

std::string unsatisfiable(const Bounds& bounds) {
  const auto [least, is_above] = bound(bounds.least, bounds.above, 1);
  const auto [most, is_below] = bound(bounds.most, bounds.below, -1);
  if (!least || !most || *least < *most || (*least == *most && !is_above && !is_below)) return "";
  return "minimum (" + written(*least) + ") is greater than maximum (" + written(*most) + ")";
}

std::string integers_between(const Bounds& bounds) {
  const auto [least, is_above] = bound(bounds.least, bounds.above, 1);
  const auto [most, is_below] = bound(bounds.most, bounds.below, -1);
  Whole from, to;
  if (least) from = saturated(is_above && *least == std::floor(*least) ? *least + 1 : std::ceil(*least));
  if (most) to = saturated(is_below && *most == std::floor(*most) ? *most - 1 : std::floor(*most));
  return between(from, to);
}

std::string numbers_between(const Bounds& bounds) {
  const auto [least, is_above] = bound(bounds.least, bounds.above, 1);
  const auto [most, is_below] = bound(bounds.most, bounds.below, -1);
  return reals(least, most, !is_above, !is_below);
}

}  // namespace spc::constraints
