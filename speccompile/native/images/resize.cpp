#include <algorithm>
#include <cmath>

#include "pixels.h"

namespace spc::images {
namespace {

constexpr int kBits = 22;
constexpr double kPi = 3.141592653589793;

double bilinear(double x) {
  x = std::fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// Bicubic convolution with a = -0.5 (Keys 1981).
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

double sinc(double x) {
  const double turned = x * kPi;
  return x == 0.0 ? 1.0 : std::sin(turned) / turned;
}

double lanczos(double x) { return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

// A filter, and its support in pixels of the smaller picture.
struct Filter {
  const char* name;
  double (*kernel)(double);
  double support;
};
constexpr Filter kFilters[] = {{"bilinear", bilinear, 1.0}, {"bicubic", bicubic, 2.0}, {"lanczos", lanczos, 3.0}};

const Filter* filter_named(const std::string& name) {
  const auto found = std::find_if(std::begin(kFilters), std::end(kFilters), [&](const Filter& each) { return name == each.name; });
  return found == std::end(kFilters) ? nullptr : found;
}

// Input pixels of an output pixel, from `first` on, and their weights in units of 2^-bits.
struct Taps {
  int64_t first;
  std::vector<int32_t> weights;
};

struct Coefficients {
  std::vector<Taps> taps;
  int bits;
};

// Return the number of bits of torch's weights: the largest with which they fit 16.
int torch_bits(double most) {
  for (int bits = 0; bits < kBits; ++bits)
    if (0.5 + most * static_cast<double>(int64_t{2} << bits) >= 1 << 15) return bits;
  return kBits;
}

Coefficients coefficients(int64_t before, int64_t after, const Filter& filter, bool like_torch) {
  const double scale = static_cast<double>(before) / static_cast<double>(after), stretch = std::max(scale, 1.0);
  const double support = filter.support * stretch;
  std::vector<std::pair<int64_t, std::vector<double>>> found;
  double most = 0;
  for (int64_t place = 0; place < after; ++place) {
    const double center = (static_cast<double>(place) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t stop = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), before);
    std::vector<double> weights;
    double total = 0;
    for (int64_t step = 0; step < stop - first; ++step) {
      weights.push_back(filter.kernel((static_cast<double>(step + first) - center + 0.5) * (1.0 / stretch)));
      total += weights.back();
    }
    for (double& weight : weights) most = std::max(most, weight /= total == 0.0 ? 1.0 : total);
    found.emplace_back(first, std::move(weights));
  }
  Coefficients made{{}, like_torch ? torch_bits(most) : kBits};
  for (const auto& [first, weights] : found) {
    Taps taps{first, {}};
    for (const double weight : weights) {
      const double scaled = weight * (1 << made.bits);
      taps.weights.push_back(static_cast<int32_t>(weight < 0 ? std::ceil(scaled - 0.5) : std::floor(scaled + 0.5)));
    }
    made.taps.push_back(std::move(taps));
  }
  return made;
}

uint8_t rounded(int32_t sum, int bits) { return static_cast<uint8_t>(std::clamp(sum >> bits, 0, 255)); }

Pixels across(const Pixels& image, int64_t width, const Coefficients& made) {
  Pixels found = Pixels::black(image.height, width);
  for (int64_t row = 0; row < image.height; ++row)
    for (int64_t column = 0; column < width; ++column) {
      const Taps& taps = made.taps[static_cast<size_t>(column)];
      const uint8_t* from = image.at(row, taps.first);
      int32_t sums[3] = {1 << (made.bits - 1), 1 << (made.bits - 1), 1 << (made.bits - 1)};
      for (const int32_t weight : taps.weights)
        for (int32_t& sum : sums) sum += *from++ * weight;
      for (size_t channel = 0; channel < 3; ++channel) found.at(row, column)[channel] = rounded(sums[channel], made.bits);
    }
  return found;
}

Pixels down(const Pixels& image, int64_t height, const Coefficients& made) {
  Pixels found = Pixels::black(height, image.width);
  const size_t line = static_cast<size_t>(image.width) * 3;
  std::vector<int32_t> sums(line);
  for (int64_t row = 0; row < height; ++row) {
    const Taps& taps = made.taps[static_cast<size_t>(row)];
    std::fill(sums.begin(), sums.end(), 1 << (made.bits - 1));
    for (size_t tap = 0; tap < taps.weights.size(); ++tap) {
      const uint8_t* const from = image.at(taps.first + static_cast<int64_t>(tap), 0);
      for (size_t i = 0; i < line; ++i) sums[i] += from[i] * taps.weights[tap];
    }
    for (size_t i = 0; i < line; ++i) found.at(row, 0)[i] = rounded(sums[i], made.bits);
  }
  return found;
}

}  // namespace

Pixels Pixels::part(int64_t top, int64_t left, int64_t part_height, int64_t part_width) const {
  Pixels found = black(part_height, part_width);
  for (int64_t row = 0; row < part_height; ++row) std::copy_n(at(top + row, left), part_width * 3, found.at(row, 0));
  return found;
}

bool is_filter(const std::string& name) { return filter_named(name) != nullptr; }

Pixels resize(const Pixels& image, int64_t height, int64_t width, const std::string& resample, bool like_torch) {
  const Filter& filter = *filter_named(resample);
  const Pixels* present = &image;
  Pixels wide, whole;
  if (image.width != width) {
    wide = across(image, width, coefficients(image.width, width, filter, like_torch));
    present = &wide;
  }
  if (image.height != height) {
    whole = down(*present, height, coefficients(image.height, height, filter, like_torch));
    present = &whole;
  }
  return *present;
}

}  // namespace spc::images
