#include "resample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spc::audio {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kZeros = 6, kRolloff = 0.99;  // zero crossings on each side; border as a share of the lower Nyquist frequency

double sinc(double x) { return x == 0 ? 1.0 : std::sin(kPi * x) / (kPi * x); }

}  // namespace

Samples resample(Samples samples, int64_t rate, int64_t wanted) {
  if (rate == wanted) return samples;
  const int64_t common = std::gcd(rate, wanted), step = rate / common, phases = wanted / common;
  const double border = static_cast<double>(std::min(step, phases)) * kRolloff;
  const auto size = static_cast<int64_t>(samples.size()), count = (size * phases + step - 1) / step;
  Samples found(static_cast<size_t>(count));
  std::vector<float> weights;
  for (int64_t phase = 0; phase < std::min(phases, count); ++phase) {
    const double place = static_cast<double>(phase) / static_cast<double>(phases);
    const auto first = static_cast<int64_t>(std::ceil((place - kZeros / border) * static_cast<double>(step)));
    const auto last = static_cast<int64_t>(std::floor((place + kZeros / border) * static_cast<double>(step)));
    weights.clear();
    for (int64_t i = first; i <= last; ++i) {
      const double time = std::clamp((static_cast<double>(i) / static_cast<double>(step) - place) * border, -kZeros, kZeros);
      const double window = std::cos(time * kPi / kZeros / 2);
      weights.push_back(static_cast<float>(sinc(time) * window * window * border / static_cast<double>(step)));
    }
    for (int64_t at = phase, begin = first; at < count; at += phases, begin += step) {
      double sum = 0;
      const int64_t stop = std::min<int64_t>(last - first + 1, size - begin);
      for (int64_t i = std::max<int64_t>(0, -begin); i < stop; ++i) sum += static_cast<double>(weights[static_cast<size_t>(i)]) * static_cast<double>(samples[static_cast<size_t>(begin + i)]);
      found[static_cast<size_t>(at)] = static_cast<float>(sum);
    }
  }
  return found;
}

}  // namespace spc::audio
