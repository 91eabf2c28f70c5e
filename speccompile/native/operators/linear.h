// Linear layers: y = x @ weight + bias, by the format of the weight, and the rows of a weight as embeddings of tokens.
//
// x is float32 [.., depth], bias [columns], or one number for all. The formats are those of kernels.h.
#pragma once

#include "../kernels/kernels.h"
#include "operator.h"

namespace speccompile {

// A weight [tiles, depth / rows of a piece, 16, ..] and the bias of a node.
struct Weight {
  Tensor tensor;
  int64_t columns, depth;

  // axes: of the weight. Throws where the constant does not hold the columns and rows that the node says.
  Weight(const Info& info, size_t axes, int64_t rows_each);
};

struct LinearFloat32 {
  static constexpr const char* kName = "LinearFloat32";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit LinearFloat32(const Info& info) : weight(info, 3, 1) {}
  void compute(Context& context) const;
  Weight weight;
};

struct LinearBFloat16 {
  static constexpr const char* kName = "LinearBFloat16";
  static constexpr std::array kInputs{ort::kFloat, ort::kBfloat16, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit LinearBFloat16(const Info& info) : weight(info, 3, 1) {}
  void compute(Context& context) const;
  Weight weight;
};

struct LinearInt8 {
  static constexpr const char* kName = "LinearInt8";
  static constexpr std::array kInputs{ort::kFloat, ort::kUint8, ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit LinearInt8(const Info& info);
  void compute(Context& context) const;
  Weight weight;
  Tensor scales;
};

struct LinearInt4 {
  static constexpr const char* kName = "LinearInt4";
  static constexpr std::array kInputs{ort::kFloat, ort::kUint8, ort::kFloat16, ort::kUint8, ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit LinearInt4(const Info& info);
  void compute(Context& context) const;
  Weight weight;
  Tensor scales, zero_points, factors;
  int64_t block;
};

// Codes of the types of GGUF in `bits` bits: see `BlockProduct`.
struct BlockCodes {
  BlockCodes(const Info& info, int64_t bits);
  const float* offsets_or_null() const { return offsets.shape().count() == 1 ? nullptr : offsets.data<float>(); }
  Weight weight;
  Tensor scales, offsets;  // offsets: a single zero for none
  int64_t block, zero_point;
};

template <int64_t Bits>
struct LinearBlocks {
  static constexpr const char* kName = Bits == 4 ? "LinearBlocks4" : "LinearBlocks8";
  static constexpr std::array kInputs{ort::kFloat, ort::kUint8, ort::kFloat, ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit LinearBlocks(const Info& info) : codes(info, Bits) {}
  void compute(Context& context) const;
  BlockCodes codes;
};

struct EmbedFloat32 {
  static constexpr const char* kName = "EmbedFloat32";
  static constexpr std::array kInputs{ort::kInt64, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit EmbedFloat32(const Info& info) : weight(info, 3, 1) {}
  void compute(Context& context) const;
  Weight weight;
};

struct EmbedBFloat16 {
  static constexpr const char* kName = "EmbedBFloat16";
  static constexpr std::array kInputs{ort::kInt64, ort::kBfloat16};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit EmbedBFloat16(const Info& info) : weight(info, 3, 1) {}
  void compute(Context& context) const;
  Weight weight;
};

struct EmbedInt8 {
  static constexpr const char* kName = "EmbedInt8";
  static constexpr std::array kInputs{ort::kInt64, ort::kUint8, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit EmbedInt8(const Info& info);
  void compute(Context& context) const;
  Weight weight;
  Tensor scales;
};

template <int64_t Bits>
struct EmbedBlocks {
  static constexpr const char* kName = Bits == 4 ? "EmbedBlocks4" : "EmbedBlocks8";
  static constexpr std::array kInputs{ort::kInt64, ort::kUint8, ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit EmbedBlocks(const Info& info) : codes(info, Bits) {}
  void compute(Context& context) const;
  BlockCodes codes;
};

}  // namespace speccompile
