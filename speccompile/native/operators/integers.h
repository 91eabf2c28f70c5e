// Arithmetic on a few integers, as positions, counts and masks: many nodes of ONNX in one.
#pragma once

#include <string>
#include <vector>

#include "operator.h"

namespace speccompile {

// (any tensors) -> some of what its steps give, int64. steps: a line each, as "Add 0 3" or "Concat 1 2 ; 1": the operator of ONNX, the
// numbers of its inputs ("-" for one that is missing) and, behind a semicolon, its attributes and constant axes. The node's own inputs have
// the numbers from 0 on, behind them what the steps give, in order; "Constant ; rank sizes.. values.." reads nothing. results: the
// numbers of the outputs. inputs: how many the node has: int64 or bool, and any type where only `Shape` reads it. Booleans are 0 and 1.
class Integers {
 public:
  static constexpr const char* kName = "Integers";
  static constexpr bool kIsVariadic = true;
  static constexpr std::array kInputs{ort::kAny};
  static constexpr std::array kOutputs{ort::kInt64};
  explicit Integers(const Info& info);
  void compute(Context& context) const;

  class Run;
  struct Value {
    const int64_t* data;
    Shape shape;
  };
  struct Step {
    Value (*compute)(Run& run, const Step& step);
    std::vector<size_t> inputs;
    std::vector<int64_t> settings;
  };

 private:
  void add_step(const std::string& line);

  size_t inputs_;
  std::vector<Step> steps_;
  std::vector<size_t> results_;
};

// (any integers) -> `yes` where one is not 0, else `no`, floats
struct Choose {
  static constexpr const char* kName = "Choose";
  static constexpr std::array kInputs{ort::kInt64};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit Choose(const Info& info) : yes(info.number("yes")), no(info.number("no")) {}
  void compute(Context& context) const;
  float yes, no;
};

}  // namespace speccompile
