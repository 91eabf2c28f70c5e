#include "integers.h"

#include <sstream>

#include "integer_run.h"

namespace speccompile {
namespace {

// settings: rank, sizes, values
Value constant(Run&, const Step& step) {
  const size_t rank = static_cast<size_t>(step.settings.at(0));
  Shape shape{{}, rank};
  std::copy_n(step.settings.data() + 1, rank, shape.sizes);
  return {step.settings.data() + 1 + rank, shape};
}

constexpr IntegerOperator kConstant{"Constant", constant, 0, 0, 1};

// Throws unless a constant has as many values as its sizes say.
void check_constant(const std::vector<int64_t>& settings) {
  const int64_t rank = settings[0], most = static_cast<int64_t>(settings.size()) - 1;
  int64_t count = 1;
  for (int64_t i = 0; rank >= 0 && rank <= std::min(most, int64_t{8}) && i < rank; ++i) {
    const int64_t size = settings[static_cast<size_t>(i) + 1];
    count = size < 0 || size > most || count > most ? -1 : count * size;
  }
  if (rank < 0 || rank > 8 || count != most - rank) refuse("received a constant whose values do not fit its sizes");
}

}  // namespace

Integers::Integers(const Info& info) : inputs_(static_cast<size_t>(info.integer("inputs"))) {
  if (inputs_ > kMostIntegerValues) refuse("received " + std::to_string(inputs_) + " inputs, expected at most " + std::to_string(kMostIntegerValues));
  std::istringstream lines(info.text("steps"));
  for (std::string line; std::getline(lines, line);) add_step(line);
  std::istringstream results(info.text("results"));
  for (size_t value; results >> value;) {
    if (value < inputs_ || value >= inputs_ + steps_.size()) refuse("results: received the number " + std::to_string(value) + ", expected one of a step");
    results_.push_back(value);
  }
}

void Integers::add_step(const std::string& line) {
  std::istringstream text(line);
  std::string name, word;
  text >> name;
  const IntegerOperator* known = name == kConstant.name ? &kConstant : number_operator(name);
  if (!known) known = shape_operator(name);
  if (!known) refuse("received the step \"" + name + "\", expected an operator that it knows");
  Step step{known->compute, {}, {}};
  while (text >> word && word != ";") {
    size_t value = kMissingInput;
    if (word != "-" && !(std::istringstream(word) >> value)) refuse(name + ": received \"" + word + "\", expected a number");
    if (word != "-" && value >= inputs_ + steps_.size()) refuse(name + ": received the number " + word + ", expected that of an earlier value");
    step.inputs.push_back(value);
  }
  for (int64_t setting; text >> setting;) step.settings.push_back(setting);
  if (step.inputs.size() < known->least || step.inputs.size() > known->most || step.settings.size() < known->settings)
    refuse(name + ": received " + std::to_string(step.inputs.size()) + " inputs and " + std::to_string(step.settings.size()) + " settings");
  if (known == &kConstant) check_constant(step.settings);
  if (steps_.size() >= kMostIntegerValues) refuse("expected at most " + std::to_string(kMostIntegerValues) + " steps");
  steps_.push_back(std::move(step));
}

void Integers::compute(Context& context) const { Run(*this, context).compute(); }

void Choose::compute(Context& context) const {
  const Tensor numbers = context.input(0);
  float* const to = context.output<float>(0, numbers.shape());
  const int64_t count = numbers.shape().count();
  for (int64_t i = 0; i < count; ++i) to[i] = numbers.data<int64_t>()[i] ? yes : no;
}

}  // namespace speccompile
