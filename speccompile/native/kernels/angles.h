// Sine and cosine of angles in float32, by operations in double that give the same bits on every processor.
#pragma once

namespace speccompile {

struct SineCosine {
  float sine, cosine;
};

// x = n pi / 2 + r by three parts of pi / 2 (Cody and Waite), then the polynomials of fdlibm (Sun Microsystems 1993), whose
// errors lie far below the precision of float32. For |x| < 2^20 pi / 2; larger angles and NaN give NaN.
inline SineCosine sine_cosine(float angle) {
  constexpr double kFirst = 1.57079632673412561417, kSecond = 6.07710050630396597660e-11, kThird = 2.02226624879595063154e-21;
  constexpr double kLargest = 1647099.0;
  const double x = angle;
  if (!(x > -kLargest && x < kLargest)) return {__builtin_nanf(""), __builtin_nanf("")};
  const double n = __builtin_rint(x * 0.636619772367581343076);
  const double r = ((x - n * kFirst) - n * kSecond) - n * kThird, z = r * r;
  const double sine =
      r + r * z * (-1.66666666666666324348e-01 +
                   z * (8.33333333332248946124e-03 +
                        z * (-1.98412698298579493134e-04 +
                             z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))));
  const double cosine =
      1.0 - 0.5 * z +
      z * z * (4.16666666666666019037e-02 +
               z * (-1.38888888888741095749e-03 +
                    z * (2.48015872894767294178e-05 +
                         z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
  switch (static_cast<long>(n) & 3) {
    case 0:
      return {static_cast<float>(sine), static_cast<float>(cosine)};
    case 1:
      return {static_cast<float>(cosine), static_cast<float>(-sine)};
    case 2:
      return {static_cast<float>(-sine), static_cast<float>(-cosine)};
    default:
      return {static_cast<float>(-cosine), static_cast<float>(sine)};
  }
}

}  // namespace speccompile
