// Operators on rows between linear layers.
#pragma once

#include "../kernels/kernels.h"
#include "operator.h"

namespace speccompile {

// (x [.., width], weight [width]) -> y
struct RmsNorm {
  static constexpr const char* kName = "RmsNorm";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit RmsNorm(const Info& info) : epsilon(info.number("epsilon")) {}
  void compute(Context& context) const;
  float epsilon;
};

// (x, residual [.., width], weight [width]) -> y, and the sum of x and residual
struct SkipRmsNorm {
  static constexpr const char* kName = "SkipRmsNorm";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat, ort::kFloat};
  explicit SkipRmsNorm(const Info& info) : epsilon(info.number("epsilon")) {}
  void compute(Context& context) const;
  float epsilon;
};

// (x [.., width], weight, bias [width]) -> y
struct LayerNorm {
  static constexpr const char* kName = "LayerNorm";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit LayerNorm(const Info& info) : epsilon(info.number("epsilon")) {}
  void compute(Context& context) const;
  float epsilon;
};

// x -> log(1 + e^x)
struct Softplus {
  static constexpr const char* kName = "Softplus";
  static constexpr std::array kInputs{ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit Softplus(const Info&) {}
  void compute(Context& context) const;
};

// x -> its natural logarithm
struct Log {
  static constexpr const char* kName = "Log";
  static constexpr std::array kInputs{ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit Log(const Info&) {}
  void compute(Context& context) const;
};

// (gate, up [.., *]) -> activation(gate) * up [.., width], each `width` columns from its offset on
struct Gate {
  explicit Gate(const Info& info);
  void compute(Context& context, Activation activation) const;
  int64_t width, gate_offset, up_offset;
};

struct GatedSilu {
  static constexpr const char* kName = "GatedSilu";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit GatedSilu(const Info& info) : gate(info) {}
  void compute(Context& context) const { gate.compute(context, Activation::kSilu); }
  Gate gate;
};

struct GatedGelu {
  static constexpr const char* kName = "GatedGelu";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit GatedGelu(const Info& info) : gate(info) {}
  void compute(Context& context) const { gate.compute(context, Activation::kGeluTanh); }
  Gate gate;
};

}  // namespace speccompile
