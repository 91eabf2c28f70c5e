// exp, and functions of it, by the same operations on every path.
#pragma once

#include "kernels.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

// x times 2^n in two steps, since 2^n alone may be no number. A path may have one instruction for it.
template <class V>
SPC_INLINE V scaled(V x, V n) {
  const V half = round(multiply(n, broadcast(0.5f)));
  return multiply(multiply(x, power_of_two(half)), power_of_two(subtract(n, half)));
}

// e^x to 2 units in the last place; 0 below -87, infinity above 88.7, NaN for NaN.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by the polynomial of Cephes' expf (Moshier), then times 2^n.
SPC_INLINE Vector exponential(Vector x) {
  const Vector low = broadcast(-87.0f), high = broadcast(89.0f);
  const Vector bounded = smallest(high, largest(low, x));
  const Vector n = round(multiply(bounded, broadcast(1.44269504088896341f)));
  Vector r = fma_less(n, broadcast(0.693359375f), bounded);
  r = fma_less(n, broadcast(-2.12194440e-4f), r);
  Vector y = broadcast(1.9875691500e-4f);
  y = fma(y, r, broadcast(1.3981999507e-3f));
  y = fma(y, r, broadcast(8.3334519073e-3f));
  y = fma(y, r, broadcast(4.1665795894e-2f));
  y = fma(y, r, broadcast(1.6666665459e-1f));
  y = fma(y, r, broadcast(5.0000001201e-1f));
  y = add(fma(y, multiply(r, r), r), broadcast(1.0f));
  return choose_less(x, low, zero(), scaled(y, n));
}

// 1 / (1 + e^-x)
SPC_INLINE Vector logistic(Vector x) {
  const Vector one = broadcast(1.0f);
  return divide(one, add(one, exponential(subtract(zero(), x))));
}

// log(1 + e^x) = max(x, 0) + log(1 + z) with z = e^-|x|, to 2 units in the last place.
//
// log(1 + z) = 2 artanh(s) = 2 (s + s^3 / 3 + s^5 / 5 + ..), s = z / (2 + z) <= 1 / 3.
SPC_INLINE Vector log_one_plus_exponential(Vector x) {
  const Vector z = exponential(smallest(x, subtract(zero(), x)));
  const Vector s = divide(z, add(broadcast(2.0f), z)), square = multiply(s, s);
  Vector y = broadcast(1.0f / 15);
  for (int odd = 13; odd > 1; odd -= 2) y = fma(y, square, broadcast(1.0f / static_cast<float>(odd)));
  const Vector small = fma(multiply(y, square), s, s);
  return add(largest(x, zero()), add(small, small));
}

SPC_INLINE Vector silu(Vector x) { return multiply(x, logistic(x)); }

// tanh: Cephes' tanhf (Moshier): a polynomial below 0.625, else 1 - 2 / (1 + e^2x).
SPC_INLINE Vector tangent(Vector x) {
  const Vector magnitude = largest(x, subtract(zero(), x)), z = multiply(x, x);
  Vector y = broadcast(-5.70498872745e-3f);
  y = fma(y, z, broadcast(2.06390887954e-2f));
  y = fma(y, z, broadcast(-5.37397155531e-2f));
  y = fma(y, z, broadcast(1.33314422036e-1f));
  y = fma(y, z, broadcast(-3.33332819422e-1f));
  const Vector small = fma(multiply(y, z), x, x);
  const Vector grown = add(exponential(multiply(broadcast(2.0f), magnitude)), broadcast(1.0f));
  const Vector large = subtract(broadcast(1.0f), divide(broadcast(2.0f), grown));
  const Vector with_sign = choose_less(x, zero(), subtract(zero(), large), large);
  return choose_less(magnitude, broadcast(0.625f), small, with_sign);
}

// The approximation of GELU by tanh (Hendrycks and Gimpel 2016): x / 2 (1 + tanh u) = x / (1 + e^-2u).
SPC_INLINE Vector gelu_tanh(Vector x) {
  const Vector cubed = multiply(multiply(x, x), x);
  const Vector u = multiply(broadcast(0.797884560802865f), fma(broadcast(0.044715f), cubed, x));
  return multiply(x, logistic(multiply(broadcast(2.0f), u)));
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
