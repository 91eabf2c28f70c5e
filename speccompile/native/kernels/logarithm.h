// The natural logarithm, by the same operations everywhere.
#pragma once

#include <cstdint>
#include <cstring>

namespace speccompile {

// Return the logarithm of a float64, rounded to float32: minus infinity of 0, NaN below it.
//
// x = 2^n m with m from sqrt(1/2) to sqrt(2); log m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172.
inline float logarithm(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? -__builtin_inff() : __builtin_nanf("");
  if (x > 3.4028234e38f) return x;
  double m = static_cast<double>(x);
  uint64_t bits;
  std::memcpy(&bits, &m, sizeof m);
  int n = static_cast<int>(bits >> 52) - 1023;  // no float is subnormal as a float64
  bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
  std::memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) m *= 0.5, ++n;
  const double s = (m - 1.0) / (m + 1.0), square = s * s;
  double y = 1.0 / 17;
  for (int odd = 15; odd > 1; odd -= 2) y = y * square + 1.0 / odd;
  return static_cast<float>(n * 0.69314718055994531 + 2.0 * (s + s * square * y));
}

}  // namespace speccompile
