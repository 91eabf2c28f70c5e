#include "linear.h"

#include <cstring>
#include <optional>
#include <string>

#include "../kernels/choose.h"

namespace speccompile {
namespace {

constexpr int64_t kBytesApart = 64 << 10;  // of a weight: less is not worth another thread

constexpr int64_t kDeepest = 1 << 17;  // columns in eight bits: sums of deeper ones leave 32 bits, those of x the 24 of a float

// Numbers that live as long as one run, at the start of a cache line, so that no two threads share one by accident. Few of them
// lie in memory that the thread keeps, the last one on top: asking the system took as long as a small product.
template <class T>
class Room {
 public:
  explicit Room(int64_t count) : bytes_((static_cast<size_t>(count) * sizeof(T) + kLine - 1) / kLine * kLine), is_kept_(kept.used + bytes_ <= sizeof kept.bytes),
        data(static_cast<T*>(is_kept_ ? kept.bytes + kept.used : ::operator new(bytes_, std::align_val_t{kLine}))) {
    if (is_kept_) kept.used += bytes_;
  }
  ~Room() {
    if (is_kept_)
      kept.used -= bytes_;
    else
      ::operator delete(data, std::align_val_t{kLine});
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

 private:
  static constexpr size_t kLine = 64;
  struct Kept {
    alignas(kLine) char bytes[32 << 10];
    size_t used;
  };
  static thread_local Kept kept;  // of rooms of one type, which end in the opposite order

  const size_t bytes_;
  const bool is_kept_;

 public:
  T* const data;
};

template <class T>
thread_local typename Room<T>::Kept Room<T>::kept;

// x and y of a run, the latter with the bias that is added to it.
struct Run {
  Tensor x;
  int64_t rows;
  Output out;

  Run(Context& context, const Weight& weight, size_t bias_index) : x(context.input(0)), rows(x.shape().rows()) {
    if (x.shape().rank == 0 || x.shape().last() != weight.depth)
      throw OperatorError("received x " + describe(x.shape()) + ", expected rows of " + std::to_string(weight.depth));
    Shape shape = x.shape();
    shape.sizes[shape.rank - 1] = weight.columns;
    const Tensor bias = context.input(bias_index);
    const int64_t given = bias.shape().count();
    if (given != weight.columns && (given != 1 || *bias.data<float>() != 0.0f))
      throw OperatorError("received a bias " + describe(bias.shape()) + ", expected " + std::to_string(weight.columns) + " numbers, or a single zero");
    out = {context.output<float>(0, shape), rows, weight.columns, given == weight.columns ? bias.data<float>() : nullptr};
  }
};

// Tiles of columns for one thread: as much of the weight as is worth it, and as many as are computed together.
int64_t tiles_apart(int64_t bytes_of_tile) {
  const int64_t worth_it = (kBytesApart + bytes_of_tile - 1) / bytes_of_tile;
  return (worth_it + kTilesTogether - 1) / kTilesTogether * kTilesTogether;
}

// The rows of x in eight bits: numbers, scales and sums in one buffer, which costs less than three where a product takes microseconds.
class Quantized {
 public:
  Quantized(Context& context, const Run& run, int64_t depth, int64_t block)
      : padded_(run.rows > 8 ? (run.rows + 15) / 16 * 16 : run.rows), blocks_(padded_ * (depth / block)),
        room_(scales_begin(depth) + 2 * blocks_ * int64_t{sizeof(float)}),
        rows{padded_, depth, block, reinterpret_cast<int8_t*>(room_.data), scales(depth), scales(depth) + blocks_} {
    std::memset(room_.data + run.rows * depth, 0, static_cast<size_t>((padded_ - run.rows) * depth));
    std::memset(scales(depth), 0, static_cast<size_t>(2 * blocks_) * sizeof(float));
    const int64_t width = run.x.shape().last();
    context.parallel(run.rows, 1 + kBytesApart / width, [&](int64_t first, int64_t last) {
      kernels().quantize(run.x.data<float>(), width, rows, first, last);
      return true;
    });
  }

 private:
  int64_t scales_begin(int64_t depth) const { return (padded_ * depth + 63) / 64 * 64; }  // at the start of a cache line
  float* scales(int64_t depth) const { return reinterpret_cast<float*>(room_.data + scales_begin(depth)); }

  int64_t padded_, blocks_;
  Room<char> room_;

 public:
  const QuantizedRows rows;
};

template <class T>
void linear_of_floats(Context& context, const Weight& weight, void (*product)(const FloatProduct&, int64_t, int64_t)) {
  const Run run(context, weight, 2);
  if (run.rows == 0) return;
  const float* x = run.x.data<float>();
  std::optional<Room<float>> panels;
  if (run.rows > 1) panels.emplace(run.rows * weight.depth);
  if (panels) kernels().pack(x, run.rows, weight.depth, panels->data);
  const FloatProduct p{panels ? panels->data : x, weight.tensor.data<T>(), weight.depth, run.out};
  context.parallel(tiles(weight.columns), tiles_apart(weight.depth * kTile * int64_t{sizeof(T)}), [&](int64_t first, int64_t last) {
    product(p, first, last);
    return true;
  });
}

// f(token, where its row begins) for every id.
template <class F>
void embed(Context& context, const Weight& weight, const F& f) {
  const Tensor ids = context.input(0);
  Shape shape = ids.shape();
  if (shape.rank > 7) throw OperatorError("received ids " + describe(shape) + ", expected at most 7 axes");
  shape.sizes[shape.rank++] = weight.depth;
  float* y = context.output<float>(0, shape);
  for (int64_t i = 0; i < ids.shape().count(); ++i) {
    const int64_t token = ids.data<int64_t>()[i];
    if (token < 0 || token >= weight.columns)
      throw OperatorError("received the token id " + std::to_string(token) + ", expected 0 to " + std::to_string(weight.columns - 1));
    f(token, y + i * weight.depth);
  }
}

void expect_count(const Tensor& tensor, int64_t count, const char* name) {
  if (tensor.shape().count() != count)
    throw OperatorError(std::string(name) + ": received the shape " + describe(tensor.shape()) + ", expected " + std::to_string(count) + " numbers");
}

int64_t filled_up(int64_t columns) { return tiles(columns) * kTile; }

}  // namespace

Weight::Weight(const Info& info, size_t axes, int64_t rows_each)
    : tensor(info.constant(1, "the weight")), columns(info.integer("columns")), depth(info.integer("depth")) {
  const Shape& shape = tensor.shape(axes, "the weight");
  if (columns < 1 || depth < 1 || shape[0] != tiles(columns) || shape[1] * rows_each < depth || shape[2] != kTile)
    throw OperatorError("the weight: received the shape " + describe(shape) + ", expected tiles of 16 for " + std::to_string(columns) +
                        " columns of " + std::to_string(depth) + " numbers");
}

LinearInt8::LinearInt8(const Info& info) : weight(info, 4, 4), scales(info.constant(2, "the scales")) {
  expect_count(scales, filled_up(weight.columns), "the scales");
  const int64_t depth = weight.tensor.shape()[1] * 4;
  if (depth % 64) throw OperatorError("the weight: expected a depth that is filled up to a multiple of 64");
  if (depth > kDeepest)
    throw OperatorError("the weight: received columns of " + std::to_string(depth) + " numbers, expected at most " + std::to_string(kDeepest));
}

EmbedInt8::EmbedInt8(const Info& info) : weight(info, 4, 4), scales(info.constant(2, "the scales")) {
  expect_count(scales, filled_up(weight.columns), "the scales");
}

LinearInt4::LinearInt4(const Info& info)
    : weight(info, 4, 8), scales(info.constant(2, "the scales")), zero_points(info.constant(3, "the zero points")),
      factors(info.constant(4, "the factors")), block(info.integer("block_size")) {
  const int64_t depth = weight.tensor.shape()[1] * 8;
  if ((block != 32 && block != 64 && block != 128) || depth % block)
    throw OperatorError("LinearInt4: received blocks of " + std::to_string(block) + ", expected 32, 64 or 128, and whole ones");
  expect_count(scales, filled_up(weight.columns) * (depth / block), "the scales");
  expect_count(zero_points, filled_up(weight.columns) * (depth / block), "the zero points");
  expect_count(factors, filled_up(weight.columns), "the factors");
}

BlockCodes::BlockCodes(const Info& info, int64_t bits)
    : weight(info, 4, 32 / bits), scales(info.constant(2, "the scales")), offsets(info.constant(3, "the offsets")),
      block(info.integer("block_size")), zero_point(info.integer("zero_point")) {
  const int64_t deep = weight.tensor.shape()[1] * (32 / bits);
  if ((block != 16 && block != 32) || deep % block || deep != weight.depth)
    throw OperatorError("received blocks of " + std::to_string(block) + " codes, expected 16 or 32, and columns of whole ones");
  if (bits == 8 ? zero_point != 128 : zero_point < 0 || zero_point > 15)
    throw OperatorError("received the zero point " + std::to_string(zero_point) + ", expected " + (bits == 8 ? "128" : "0 to 15"));
  expect_count(scales, filled_up(weight.columns) * (deep / block), "the scales");
  const bool has_none = offsets.shape().count() == 1 && *offsets.data<float>() == 0.0f;
  if (!has_none) expect_count(offsets, filled_up(weight.columns) * (deep / block), "the offsets");
}

void LinearFloat32::compute(Context& context) const { linear_of_floats<float>(context, weight, kernels().product_float32); }

void LinearBFloat16::compute(Context& context) const { linear_of_floats<uint16_t>(context, weight, kernels().product_bfloat16); }

void LinearInt8::compute(Context& context) const {
  const Run run(context, weight, 3);
  if (run.rows == 0) return;
  const int64_t depth = weight.tensor.shape()[1] * 4;
  const Quantized x(context, run, depth, depth);
  const Int8Product p{x.rows, weight.tensor.data<uint8_t>(), scales.data<float>(), run.out};
  context.parallel(tiles(weight.columns), tiles_apart(depth * kTile),
                   [&](int64_t first, int64_t last) { return kernels().product_int8(p, first, last); });
}

void LinearInt4::compute(Context& context) const {
  const Run run(context, weight, 5);
  if (run.rows == 0) return;
  const int64_t depth = weight.tensor.shape()[1] * 8;
  const Quantized x(context, run, depth, block);
  const Int4Product p{x.rows, weight.tensor.data<uint8_t>(), scales.data<uint16_t>(), zero_points.data<uint8_t>(), factors.data<float>(), run.out};
  context.parallel(tiles(weight.columns), tiles_apart(depth / 2 * kTile),
                   [&](int64_t first, int64_t last) { return kernels().product_int4(p, first, last); });
}

namespace {

void linear_of_codes(Context& context, const BlockCodes& codes, int64_t bits, void (*product)(const BlockProduct&, int64_t, int64_t)) {
  const Run run(context, codes.weight, 4);
  if (run.rows == 0) return;
  const Quantized x(context, run, codes.weight.depth, codes.block);
  const BlockProduct p{x.rows, codes.weight.tensor.data<uint8_t>(), codes.scales.data<float>(), codes.offsets_or_null(),
                       static_cast<float>(codes.zero_point), run.out};
  context.parallel(tiles(codes.weight.columns), tiles_apart(codes.weight.depth * bits / 8 * kTile), [&](int64_t first, int64_t last) {
    product(p, first, last);
    return true;
  });
}

// code(row, k): the code at depth k of the column whose bytes begin at `row`.
template <class Code>
void embed_codes(Context& context, const BlockCodes& codes, int64_t bits, const Code& code) {
  const int64_t blocks = codes.weight.depth / codes.block, bytes = codes.weight.depth * bits / 8;
  const float *const scales = codes.scales.data<float>(), *const offsets = codes.offsets_or_null();
  embed(context, codes.weight, [&](int64_t token, float* y) {
    const uint8_t* const row = codes.weight.tensor.data<uint8_t>() + token / kTile * bytes * kTile + token % kTile * 4;
    for (int64_t k = 0; k < codes.weight.depth; ++k) {
      const int64_t place = (token / kTile * blocks + k / codes.block) * kTile + token % kTile;
      y[k] = static_cast<float>(code(row, k) - codes.zero_point) * scales[place];
      if (offsets) y[k] += offsets[place];
    }
  });
}

}  // namespace

template <int64_t Bits>
void LinearBlocks<Bits>::compute(Context& context) const {
  linear_of_codes(context, codes, Bits, Bits == 4 ? kernels().product_blocks4 : kernels().product_blocks8);
}

template <>
void EmbedBlocks<4>::compute(Context& context) const {
  embed_codes(context, codes, 4, [](const uint8_t* row, int64_t k) {
    const int64_t both = row[k / 8 * 4 * kTile + k % 4];
    return k % 8 < 4 ? both & 15 : both >> 4;
  });
}

template <>
void EmbedBlocks<8>::compute(Context& context) const {
  embed_codes(context, codes, 8, [](const uint8_t* row, int64_t k) { return int64_t{row[k / 4 * 4 * kTile + k % 4]}; });
}

template struct LinearBlocks<4>;
template struct LinearBlocks<8>;

void EmbedFloat32::compute(Context& context) const {
  const float* numbers = weight.tensor.data<float>();
  embed(context, weight, [&](int64_t token, float* y) {
    const float* row = numbers + token / kTile * weight.depth * kTile + token % kTile;
    for (int64_t k = 0; k < weight.depth; ++k) y[k] = row[k * kTile];
  });
}

void EmbedBFloat16::compute(Context& context) const {
  const uint16_t* numbers = weight.tensor.data<uint16_t>();
  embed(context, weight, [&](int64_t token, float* y) {
    const uint16_t* row = numbers + token / kTile * weight.depth * kTile + token % kTile;
    for (int64_t k = 0; k < weight.depth; ++k) {
      const uint32_t bits = static_cast<uint32_t>(row[k * kTile]) << 16;
      std::memcpy(y + k, &bits, sizeof bits);
    }
  });
}

void EmbedInt8::compute(Context& context) const {
  const uint8_t* numbers = weight.tensor.data<uint8_t>();
  const int64_t depth = weight.tensor.shape()[1] * 4;
  embed(context, weight, [&](int64_t token, float* y) {
    const uint8_t* row = numbers + token / kTile * depth * kTile + token % kTile * 4;
    const float scale = scales.data<float>()[token];
    for (int64_t k = 0; k < weight.depth; ++k) y[k] = static_cast<float>(row[k / 4 * 4 * kTile + k % 4] - 128) * scale;
  });
}

}  // namespace speccompile
