// Numbers in ranges as regular expressions, and how schemas write numbers (llguidance's json/numeric.rs).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace spc::constraints {

struct Bounds {
  std::optional<double> least, most, above, below;  // above, below: exclusive
};

// A multiple: coefficient * 10 ** -digits.
struct Decimal {
  uint32_t coefficient, digits;
};

// All throw Refused for what has no such expression.
Decimal decimal_of(double value);
Decimal common_multiple(const Decimal& left, const Decimal& right);
// Return why no number is in the bounds, "" where some may be.
std::string unsatisfiable(const Bounds& bounds);
std::string integers_between(const Bounds& bounds);
std::string numbers_between(const Bounds& bounds);

}  // namespace spc::constraints
