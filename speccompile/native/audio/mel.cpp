#include "mel.h"

#include <algorithm>
#include <cmath>
#include <complex>

namespace spc::audio {
namespace {

using Complex = std::complex<double>;

constexpr double kPi = 3.14159265358979323846;
constexpr double kHighest = 8000.0;  // Hz at which the last band ends
constexpr float kFloor = 1e-10f, kRange = 8.0f;
constexpr double kLinearMel = 15.0, kLinearHz = 1000.0;  // Slaney's scale: 15 mels up to 1000 Hz, and a logarithm above
const double kStep = 27.0 / std::log(6.4);

double to_mel(double hz) { return hz >= kLinearHz ? kLinearMel + std::log(hz / kLinearHz) * kStep : 3.0 * hz / 200.0; }

double to_hz(double mel) { return mel >= kLinearMel ? kLinearHz * std::exp((mel - kLinearMel) / kStep) : 200.0 * mel / 3.0; }

// Fourier transform of any size: by its smallest factors (Cooley and Tukey).
class Fourier {
 public:
  explicit Fourier(size_t size) : roots_(size), room_(size) {
    for (size_t i = 0; i < size; ++i) roots_[i] = std::polar(1.0, -2.0 * kPi * static_cast<double>(i) / static_cast<double>(size));
    for (size_t left = size, factor = 2; left > 1; ++factor) {
      if (factor * factor > left) factor = left;
      for (; left % factor == 0; left /= factor) factors_.push_back(factor);
    }
  }

  // Transform `values`, of this size, in place.
  void run(std::vector<Complex>& values) {
    std::copy(values.begin(), values.end(), room_.begin());
    transform(room_.data(), values.data(), roots_.size(), 1, 0);
  }

 private:
  // Write the transform of in[0], in[stride], .., `size` numbers, to `out`, by the factors from `depth` on.
  void transform(const Complex* in, Complex* out, size_t size, size_t stride, size_t depth) {
    if (size == 1) {
      out[0] = in[0];
      return;
    }
    const size_t factor = factors_[depth], part = size / factor;
    for (size_t i = 0; i < factor; ++i) transform(in + i * stride, out + i * part, part, stride * factor, depth + 1);
    std::vector<Complex> column(factor);
    for (size_t k = 0; k < part; ++k) {
      for (size_t i = 0; i < factor; ++i) column[i] = out[i * part + k] * roots_[i * k * stride];
      for (size_t j = 0; j < factor; ++j) {
        Complex sum = column[0];
        for (size_t i = 1; i < factor; ++i) sum += column[i] * roots_[i * j % factor * part * stride];
        out[j * part + k] = sum;
      }
    }
  }

  std::vector<Complex> roots_, room_;
  std::vector<size_t> factors_;
};

// The sample at a place of a sound that is mirrored at its ends.
float mirrored(const Samples& samples, int64_t place) {
  const auto size = static_cast<int64_t>(samples.size());
  if (size == 1) return samples[0];
  const int64_t period = 2 * (size - 1), at = ((place % period) + period) % period;
  return samples[static_cast<size_t>(at < size ? at : period - at)];
}

// A band's share of the frequencies from `first` on.
struct Band {
  size_t first;
  std::vector<float> shares;
};

std::vector<Band> bands_of(const AudioSection& about) {
  const std::vector<float> filters = mel_filters(about);
  const auto mels = static_cast<size_t>(about.mels), count = filters.size() / mels;
  std::vector<Band> bands(mels);
  for (size_t mel = 0; mel < mels; ++mel) {
    size_t first = 0, last = count;
    while (first < count && filters[first * mels + mel] == 0) ++first;
    while (last > first && filters[(last - 1) * mels + mel] == 0) --last;
    bands[mel].first = first;
    for (size_t i = first; i < last; ++i) bands[mel].shares.push_back(filters[i * mels + mel]);
  }
  return bands;
}

}  // namespace

std::vector<float> mel_filters(const AudioSection& about) {
  const auto count = static_cast<size_t>(about.window / 2 + 1), mels = static_cast<size_t>(about.mels);
  const double highest = to_mel(kHighest), border = static_cast<double>(about.sampling_rate / 2);
  std::vector<double> corners(mels + 2);
  for (size_t i = 0; i < corners.size(); ++i) corners[i] = to_hz(highest * static_cast<double>(i) / static_cast<double>(mels + 1));
  std::vector<float> found(count * mels);
  for (size_t i = 0; i < count; ++i) {
    const double frequency = count > 1 ? border * static_cast<double>(i) / static_cast<double>(count - 1) : 0;
    for (size_t mel = 0; mel < mels; ++mel) {
      const double low = corners[mel], middle = corners[mel + 1], high = corners[mel + 2];
      const double share = std::max(0.0, std::min((frequency - low) / (middle - low), (high - frequency) / (high - middle)));
      found[i * mels + mel] = static_cast<float>(share * (2.0 / (high - low)));
    }
  }
  return found;
}

Features log_mel(Samples samples, const AudioSection& about) {
  samples.resize(static_cast<size_t>(about.frames * about.hop), 0.0f);
  return long_log_mel(samples, about);
}

Features long_log_mel(const Samples& samples, const AudioSection& about) {
  const auto window = static_cast<size_t>(about.window), mels = static_cast<size_t>(about.mels), frames = samples.size() / static_cast<size_t>(about.hop);
  std::vector<double> hann(window);
  for (size_t i = 0; i < window; ++i) hann[i] = 0.5 - 0.5 * std::cos(2.0 * kPi * static_cast<double>(i) / static_cast<double>(window));
  const std::vector<Band> bands = bands_of(about);
  Features found{about.mels, static_cast<int64_t>(frames), std::vector<float>(mels * frames)};
  Fourier fourier(window);
  std::vector<Complex> both(window);
  std::vector<float> power(window / 2 + 1);
  const auto sample = [&](size_t frame, size_t i) {
    return hann[i] * static_cast<double>(mirrored(samples, static_cast<int64_t>(frame) * about.hop + static_cast<int64_t>(i) - about.window / 2));
  };
  for (size_t frame = 0; frame < frames; frame += 2) {  // two at once: one real, one imaginary
    const bool is_pair = frame + 1 < frames;
    for (size_t i = 0; i < window; ++i) both[i] = {sample(frame, i), is_pair ? sample(frame + 1, i) : 0.0};
    fourier.run(both);
    for (size_t part = 0; part < (is_pair ? 2u : 1u); ++part) {
      for (size_t k = 0; k < power.size(); ++k) {
        const Complex one = both[k], other = std::conj(both[(window - k) % window]);
        power[k] = static_cast<float>(std::norm(part ? one - other : one + other) / 4.0);
      }
      for (size_t mel = 0; mel < mels; ++mel) {
        double sum = 0;
        for (size_t i = 0; i < bands[mel].shares.size(); ++i) sum += static_cast<double>(power[bands[mel].first + i]) * static_cast<double>(bands[mel].shares[i]);
        found.values[mel * frames + frame + part] = std::log10(std::max(static_cast<float>(sum), kFloor));
      }
    }
  }
  const float least = *std::max_element(found.values.begin(), found.values.end()) - kRange;
  for (float& value : found.values) value = (std::max(value, least) + 4.0f) / 4.0f;
  return found;
}

}  // namespace spc::audio
