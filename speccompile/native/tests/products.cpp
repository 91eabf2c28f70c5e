// Products with weights, against plain loops: integers exactly, and floats in the order of the weight's rows.
#include "check.h"

namespace {

using namespace speccompile;

int64_t up(int64_t number, int64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

// Numbers that make the largest sums: of three rows, or columns, one has only the first, one only the second, one either.
template <class T>
T end(Random& random, int64_t row, T first, T second) {
  return row % 3 == 0 || (row % 3 == 2 && random.integer(0, 1)) ? first : second;
}

// x as operators lay it out (operators/linear.cpp), quantized by a path.
struct Quantized {
  Buffer<float> x;
  Buffer<int8_t> numbers;
  Buffer<float> scales, sums;
  QuantizedRows rows;

  Quantized(const Kernels& kernels, Place place, Random random, int64_t count, int64_t depth, int64_t filled, int64_t block, bool ends)
      : x(count * depth, place), numbers(padded(count) * filled, place), scales(padded(count) * (filled / block), place),
        sums(padded(count) * (filled / block), place), rows{padded(count), filled, block, numbers.data, scales.data, sums.data} {
    for (int64_t i = 0; i < x.count; ++i) x[i] = ends ? end(random, i / depth, 1.0f, -1.0f) : random.any_of_row(i / depth);
    std::memset(numbers.data + count * filled, 0, static_cast<size_t>(numbers.count - count * filled));
    scales.fill([] { return 0; });
    sums.fill([] { return 0; });
    in_parts(random, count, [&](int64_t first, int64_t last) { kernels.quantize(x.data, depth, rows, first, last); });
  }

  static int64_t padded(int64_t count) { return count > 8 ? up(count, 16) : count; }
  int64_t number(int64_t row, int64_t k) const { return numbers[row * rows.depth + k]; }
};

// Check the integers of a block of x.
void check_quantized(const Quantized& q, int64_t count, int64_t depth, const char* path) {
  for (int64_t row = 0; row < count; ++row) {
    bool finite = true;
    for (int64_t k = 0; k < depth; ++k) finite = finite && std::isfinite(q.x[row * depth + k]);
    for (int64_t b = 0; b < q.rows.depth / q.rows.block; ++b) {
      float largest = 0;
      int64_t sum = 0;
      for (int64_t k = b * q.rows.block; k < (b + 1) * q.rows.block; ++k) {
        if (k < depth) largest = std::max(largest, std::fabs(q.x[row * depth + k]));
        sum += q.number(row, k);
      }
      const bool used = largest >= 1e-30f;
      const float scale = !finite ? std::nanf("") : used ? largest / 127.0f : 0.0f;
      CHECK(same(q.scales[b * q.rows.rows + row], scale), "%s: the scale of row %lld", path, static_cast<long long>(row));
      for (int64_t k = b * q.rows.block; finite && k < (b + 1) * q.rows.block; ++k) {
        const float share = used && k < depth ? q.x[row * depth + k] * (127.0f / largest) : 0.0f;
        CHECK(q.number(row, k) == static_cast<int64_t>(std::nearbyint(share)), "%s: row %lld", path, static_cast<long long>(row));
      }
      CHECK(!finite || q.sums[b * q.rows.rows + row] == static_cast<float>(sum), "%s: the sum of row %lld", path,
            static_cast<long long>(row));
    }
  }
}

void test_int8(int64_t rows, int64_t depth, int64_t columns, bool ends) {
  const int64_t filled = up(depth, 64), wide = tiles(columns) * kTile;
  Buffer<float> expected(rows * columns, Place::kStart);
  bool is_known = false;
  on_every_path([&](const Kernels& kernels, Place place) {
    Random random(static_cast<uint64_t>(rows * 1000 + depth + columns));
    const Quantized x(kernels, place, random, rows, depth, filled, filled, ends);
    check_quantized(x, rows, depth, kernels.name);
    Buffer<uint8_t> numbers(wide * filled, place);
    Buffer<float> scales(wide, place), bias(columns, place), y(rows * columns, place);
    for (int64_t i = 0; i < numbers.count; ++i)
      numbers[i] = ends ? end<uint8_t>(random, i / 4 % 16, 255, 0) : static_cast<uint8_t>(random.integer(0, 255));
    scales.fill([&] { return random.number(); });
    bias.fill([&] { return random.any(); });
    const bool has_bias = columns % 2;
    const Int8Product product{x.rows, numbers.data, scales.data, {y.data, rows, columns, has_bias ? bias.data : nullptr}};
    in_parts(random, tiles(columns),
             [&](int64_t first, int64_t last) { CHECK(kernels.product_int8(product, first, last), "memory"); });
    for (int64_t row = 0; row < rows && !is_known; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        int64_t sum = 0;
        for (int64_t k = 0; k < filled; ++k)
          sum += x.number(row, k) * (numbers[((column / 16 * filled / 4 + k / 4) * 16 + column % 16) * 4 + k % 4] - 128);
        const float value = static_cast<float>(sum) * (x.scales[row] * scales[column]);
        expected[row * columns + column] = has_bias ? value + bias[column] : value;
      }
    }
    is_known = true;
    check_same(y, expected, kernels.name, "int8 " + sizes({rows, depth, columns}));
  });
}

// The numbers of float16 that scales have here: 1.fraction times a power of two, or a fraction times the least one.
float from_half(uint16_t bits) {
  const float fraction = static_cast<float>(bits & 1023);
  const int exponent = bits >> 10 & 31;
  const float magnitude = exponent ? std::ldexp(1024.0f + fraction, exponent - 25) : std::ldexp(fraction, -24);
  return bits >> 15 ? -magnitude : magnitude;
}

void test_int4(int64_t rows, int64_t depth, int64_t columns, int64_t block, bool ends) {
  const int64_t filled = up(depth, block), blocks = filled / block, wide = tiles(columns) * kTile;
  Buffer<float> expected(rows * columns, Place::kStart);
  bool is_known = false;
  on_every_path([&](const Kernels& kernels, Place place) {
    Random random(static_cast<uint64_t>(rows * 1000 + depth + columns));
    const Quantized x(kernels, place, random, rows, depth, filled, block, ends);
    check_quantized(x, rows, depth, kernels.name);
    Buffer<uint8_t> numbers(wide * filled / 2, place), zero_points(wide * blocks, place);
    Buffer<uint16_t> scales(wide * blocks, place);
    Buffer<float> factors(wide, place), bias(columns, place), y(rows * columns, place);
    for (int64_t i = 0; i < numbers.count; ++i)
      numbers[i] = ends ? end<uint8_t>(random, i / 4 % 16, 255, 0) : static_cast<uint8_t>(random.integer(0, 255));
    zero_points.fill([&] { return ends ? 15 * random.integer(0, 1) : random.integer(0, 15); });
    scales.fill([&] { return random.integer(0, 31743) | (random.integer(0, 1) << 15); });
    factors.fill([&] { return random.number(); });
    bias.fill([&] { return random.any(); });
    const bool has_bias = columns % 2;
    const Output out{y.data, rows, columns, has_bias ? bias.data : nullptr};
    const Int4Product product{x.rows, numbers.data, scales.data, zero_points.data, factors.data, out};
    in_parts(random, tiles(columns),
             [&](int64_t first, int64_t last) { CHECK(kernels.product_int4(product, first, last), "memory"); });
    for (int64_t row = 0; row < rows && !is_known; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        float total = 0;
        for (int64_t b = 0; b < blocks; ++b) {
          const int64_t place_of_block = (column / 16 * blocks + b) * 16 + column % 16;
          int64_t sum = 0;
          for (int64_t k = b * block; k < (b + 1) * block; ++k) {
            const uint8_t both = numbers[((column / 16 * filled / 8 + k / 8) * 16 + column % 16) * 4 + k % 4];
            sum += x.number(row, k) * ((k % 8 < 4 ? both & 15 : both >> 4) - zero_points[place_of_block]);
          }
          total = std::fma(static_cast<float>(sum), from_half(scales[place_of_block]) * x.scales[b * x.rows.rows + row], total);
        }
        total *= factors[column];
        expected[row * columns + column] = has_bias ? total + bias[column] : total;
      }
    }
    is_known = true;
    check_same(y, expected, kernels.name, "int4 " + sizes({rows, depth, columns, block}));
  });
}

float as_float(float x) { return x; }
float as_float(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &wide, sizeof x);
  return x;
}
void round_to(float& to, float x) { to = x; }
void round_to(uint16_t& to, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  to = static_cast<uint16_t>(bits >> 16);
}

template <class T>
void test_floats(int64_t rows, int64_t depth, int64_t columns) {
  Buffer<float> expected(rows * columns, Place::kStart);
  bool is_known = false;
  on_every_path([&](const Kernels& kernels, Place place) {
    Random random(static_cast<uint64_t>(rows * 1000 + depth + columns));
    Buffer<T> weight(tiles(columns) * depth * kTile, place);
    Buffer<float> x(rows * depth, place), panels(rows * depth, place), bias(columns, place);
    Buffer<float> y(rows * columns, place);
    for (int64_t i = 0; i < weight.count; ++i) round_to(weight[i], random.number());
    for (int64_t i = 0; i < x.count; ++i) x[i] = random.any_of_row(i / depth);
    bias.fill([&] { return random.any(); });
    kernels.pack(x.data, rows, depth, panels.data);
    const bool has_bias = columns % 2;
    const Output out{y.data, rows, columns, has_bias ? bias.data : nullptr};
    const FloatProduct product{rows > 1 ? panels.data : x.data, weight.data, depth, out};
    const auto compute = sizeof(T) == 4 ? kernels.product_float32 : kernels.product_bfloat16;
    in_parts(random, tiles(columns), [&](int64_t first, int64_t last) { compute(product, first, last); });
    for (int64_t row = 0; row < rows && !is_known; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        float sum = 0;
        for (int64_t k = 0; k < depth; ++k)
          sum = std::fma(x[row * depth + k], as_float(weight[(column / 16 * depth + k) * 16 + column % 16]), sum);
        expected[row * columns + column] = has_bias ? sum + bias[column] : sum;
      }
    }
    is_known = true;
    check_same(y, expected, kernels.name, "floats " + sizes({rows, depth, columns}));
  });
}

}  // namespace

int main() {
  for (const bool ends : {false, true}) {
    for (int64_t rows = 1; rows <= 64; ++rows) test_int8(rows, 1 + rows * 5 % 130, 1 + rows * 7 % 50, ends);
    for (const int64_t columns : {1, 15, 16, 17, 31, 33, 64, 65, 130}) test_int8(1 + columns % 40, 64, columns, ends);
  }
  // The depth at which sums still fit into 32 bits, where those of the unsigned bytes do not.
  test_int8(3, 1 << 17, 3, true);
  test_int8(10, 1 << 17, 3, true);
  for (const bool ends : {false, true}) {
    for (const int64_t block : {32, 64, 128}) {
      for (int64_t rows = 1; rows <= 64; rows += rows < 20 ? 1 : 7)
        test_int4(rows, 1 + rows * 37 % 600, 1 + rows * 7 % 50, block, ends);
      for (const int64_t columns : {1, 16, 17, 33, 65, 130}) test_int4(1 + columns % 40, 3 * block, columns, block, ends);
    }
  }
  for (int64_t rows = 1; rows <= 64; ++rows) {
    test_floats<float>(rows, 1 + rows * 5 % 90, 1 + rows * 7 % 50);
    test_floats<uint16_t>(rows, 1 + rows * 5 % 90, 1 + rows * 11 % 90);
  }
  for (const int64_t depth : {1023, 1024, 1025, 2049}) {
    test_floats<float>(depth % 9 + 5, depth, 19);
    test_floats<uint16_t>(7, depth, 70);
  }
  return 0;
}
