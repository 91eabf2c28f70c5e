// Layers that keep a state: convolutions and linear recurrences.
#pragma once

#include "operator.h"

namespace speccompile {

// (rows [B, 1, T, C], state [B, 1, K - 1, C], weight [K, C], bias [C]) -> y [B, 1, T, C],
// where `silu` is 1 that of the sums
struct Convolve {
  static constexpr const char* kName = "Convolve";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit Convolve(const Info& info) : is_silu(info.integer("silu") != 0) {}
  void compute(Context& context) const;
  bool is_silu;
};

// (rows [B, 1, T, C], state [B, 1, K - 1, C], length, count [B]) -> the last rows of [state | the first `count` rows]; they
// may lie where the state does
struct Shift {
  static constexpr const char* kName = "Shift";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kInt64, ort::kInt64};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit Shift(const Info&) {}
  void compute(Context& context) const;
};

// (count [B], any floats) -> the count, when the floats are there
struct After {
  static constexpr const char* kName = "After";
  static constexpr std::array kInputs{ort::kInt64, ort::kFloat};
  static constexpr std::array kOutputs{ort::kInt64};
  explicit After(const Info&) {}
  void compute(Context& context) const;
};

// (query, key [B, G, T, K], value [B, H, T, V], decay [B, H, T, 1 or K], state [B, H, K, V], length [B]) -> context
// [B, H, T, V]
struct Recur {
  static constexpr const char* kName = "Recur";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kInt64};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit Recur(const Info&) {}
  void compute(Context& context) const;
};

// The same with beta [B, H, T, 1] behind the decay: the delta rule.
struct RecurDelta {
  static constexpr const char* kName = "RecurDelta";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kInt64};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit RecurDelta(const Info&) {}
  void compute(Context& context) const;
};

// (key, value, decay, state, length, count [B]) -> the state after the first `count` tokens; it may be the one that is read
struct Advance {
  static constexpr const char* kName = "Advance";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kInt64, ort::kInt64};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit Advance(const Info&) {}
  void compute(Context& context) const;
};

// The same with beta behind the decay.
struct AdvanceDelta {
  static constexpr const char* kName = "AdvanceDelta";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kInt64, ort::kInt64};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit AdvanceDelta(const Info&) {}
  void compute(Context& context) const;
};

}  // namespace speccompile
