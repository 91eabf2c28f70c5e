// Several operators in one node: their bits are those of as many nodes, and ONNX Runtime's cost of a node is paid once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "operator.h"

namespace speccompile {

template <class...>
struct Types;

// (any tensors) -> some of what its steps give, floats. steps: a line each, the name of an operator and the numbers of its inputs:
// those of the node from 0 on, behind them what the steps give, in order. results: the numbers of the outputs. inputs: how
// many the node has. An attribute of step i has its own name and "_i".
class Chain {
 public:
  static constexpr const char* kName = "Chain";
  static constexpr bool kIsVariadic = true;
  static constexpr std::array kInputs{ort::kAny};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit Chain(const Info& info);
  void compute(Context& context) const;

 private:
  class Run;

  // An operator, whatever its class.
  class Operation {
   public:
    virtual ~Operation() = default;
    virtual void compute(Context& context) const = 0;
  };
  template <class Operator>
  class OperationOf;

  struct Input {
    size_t value;
    int type;
  };
  struct Step {
    const char* name;
    std::unique_ptr<Operation> operation;
    std::vector<Input> inputs;
    size_t first_value;                // of those that it gives
    std::vector<size_t> last_read_here;  // values that no later step reads
  };
  // Output of a step: its type, and which output of the node it is.
  struct Given {
    int type;
    size_t output;
  };

  template <class... All>
  void add_step(const Info& info, const std::string& line, Types<All...>);
  template <class Operator>
  bool add_if_named(const Info& info, const std::string& name, const std::vector<size_t>& values);
  void read_results(const Info& info);
  void note_last_reads();

  size_t inputs_;
  std::vector<Step> steps_;
  std::vector<Given> given_;
};

}  // namespace speccompile
