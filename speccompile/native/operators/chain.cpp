#include "chain.h"

#include <algorithm>
#include <new>
#include <sstream>
#include <utility>

#include "all.h"

namespace speccompile {
namespace {

constexpr size_t kNone = ~size_t{0};
constexpr size_t kMostValues = 4096;

// The numbers of a line, from where the text stands, each less than `limit`.
std::vector<size_t> read_values(std::istringstream& text, size_t limit, const char* what) {
  std::vector<size_t> found;
  for (size_t value; text >> value;) {
    if (value >= limit) throw OperatorError(std::string("Chain: ") + what + ": received the number " + std::to_string(value) + ", expected less than " + std::to_string(limit));
    found.push_back(value);
  }
  if (!text.eof()) throw OperatorError(std::string("Chain: ") + what + ": expected numbers");
  return found;
}

// Memory at the start of a cache line.
class Block {
 public:
  Block() = default;
  explicit Block(size_t size) : data_(static_cast<char*>(::operator new(size, kLine))), size_(size) {}

  char* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(char* data) const { ::operator delete(data, kLine); }
  };

  std::unique_ptr<char, Free> data_;
  size_t size_ = 0;
};

// The blocks that a thread keeps for its next chain, as ONNX Runtime keeps those of its nodes: the system would clear them anew.
class KeptBlocks {
 public:
  // The smallest that is large enough, or a new one in place of one that is not.
  Block take(size_t size) {
    size_t found = kNone;
    for (size_t i = 0; i < blocks_.size(); ++i)
      if (blocks_[i].size() >= size && (found == kNone || blocks_[i].size() < blocks_[found].size())) found = i;
    if (found == kNone && !blocks_.empty()) blocks_.pop_back();
    if (found == kNone) return Block(size);
    std::swap(blocks_[found], blocks_.back());
    Block taken = std::move(blocks_.back());
    blocks_.pop_back();
    return taken;
  }

  void give(Block block) { blocks_.push_back(std::move(block)); }

 private:
  std::vector<Block> blocks_;
};

thread_local KeptBlocks kept_blocks;

size_t bytes_of(int type) { return type == ort::kFloat ? sizeof(float) : type == ort::kInt64 ? sizeof(int64_t) : sizeof(int8_t); }

}  // namespace

template <class Operator>
class Chain::OperationOf : public Operation {
 public:
  explicit OperationOf(const Info& info) : operator_(info) {}
  void compute(Context& context) const override { operator_.compute(context); }

 private:
  const Operator operator_;
};

// The values of one run. Small ones stand side by side in memory that costs nothing.
class Chain::Run : public StepValues {
 public:
  Run(const Chain& chain, Context& node) : chain_(chain), node_(node), made_(chain.given_.size()), large_(chain.given_.size()) {}

  void compute() {
    for (const Step& step : chain_.steps_) {
      step_ = &step;
      Context own(node_, *this);
      step.operation->compute(own);
      for (const size_t value : step.last_read_here)
        if (large_[value].data()) kept_blocks.give(std::exchange(large_[value], Block()));
    }
  }

  Tensor input(size_t index) const override {
    const Input& input = step_->inputs.at(index);
    if (input.value >= chain_.inputs_) return made_[input.value - chain_.inputs_];
    const Tensor found = node_.input(input.value);
    expect_type(found, input.type, step_->name, index);
    return found;
  }

  void* output(size_t index, const Shape& shape) override {
    const size_t value = step_->first_value + index;
    const Given& given = chain_.given_[value];
    void* const data = given.output == kNone ? room(value, static_cast<size_t>(shape.count()) * bytes_of(given.type)) : node_.allocate(given.output, shape);
    made_[value] = Tensor(given.type, data, shape);
    return data;
  }

 private:
  char* room(size_t value, size_t bytes) {
    const size_t padded = (bytes + 63) / 64 * 64;
    if (padded <= sizeof small_ - used_) return small_ + std::exchange(used_, used_ + padded);
    large_[value] = kept_blocks.take(padded);
    return large_[value].data();
  }

  const Chain& chain_;
  Context& node_;
  const Step* step_ = nullptr;
  std::vector<Tensor> made_;
  std::vector<Block> large_;
  size_t used_ = 0;
  alignas(64) char small_[48 << 10];
};

Chain::Chain(const Info& info) : inputs_(static_cast<size_t>(info.integer("inputs"))) {
  if (inputs_ < 1 || inputs_ > kMostValues) throw OperatorError("Chain: received " + std::to_string(inputs_) + " inputs, expected 1 to " + std::to_string(kMostValues));
  std::istringstream lines(info.text("steps"));
  for (std::string line; std::getline(lines, line);) add_step(info, line, Operators());
  read_results(info);
  note_last_reads();
}

template <class... All>
void Chain::add_step(const Info& info, const std::string& line, Types<All...>) {
  std::istringstream text(line);
  std::string name;
  text >> name;
  const std::vector<size_t> values = read_values(text, inputs_ + given_.size(), name.c_str());
  if (!(add_if_named<All>(info, name, values) || ...)) throw OperatorError("Chain: received the step \"" + name + "\", expected an operator of this library");
}

template <class Operator>
bool Chain::add_if_named(const Info& info, const std::string& name, const std::vector<size_t>& values) {
  if (name != Operator::kName) return false;
  if (values.size() != Operator::kInputs.size())
    throw OperatorError(std::string("Chain: ") + Operator::kName + ": received " + std::to_string(values.size()) + " inputs, expected " +
                        std::to_string(Operator::kInputs.size()));
  Step step{Operator::kName, nullptr, {}, given_.size(), {}};
  std::vector<size_t> places;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_made = values[i] >= inputs_;
    if (is_made && given_[values[i] - inputs_].type != Operator::kInputs[i])
      throw OperatorError(std::string("Chain: ") + Operator::kName + ": input " + std::to_string(i) + " is of another type than the step gives that makes it");
    step.inputs.push_back({values[i], Operator::kInputs[i]});
    places.push_back(is_made ? kComputed : values[i]);
  }
  step.operation = std::make_unique<OperationOf<Operator>>(info.step<Operator>("_" + std::to_string(steps_.size()), places));
  steps_.push_back(std::move(step));
  for (const int type : Operator::kOutputs) given_.push_back({type, kNone});
  if (given_.size() > kMostValues) throw OperatorError("Chain: expected at most " + std::to_string(kMostValues) + " values");
  return true;
}

void Chain::read_results(const Info& info) {
  std::istringstream text(info.text("results"));
  const std::vector<size_t> values = read_values(text, inputs_ + given_.size(), "results");
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < inputs_ || given_[values[i] - inputs_].type != ort::kFloat || given_[values[i] - inputs_].output != kNone)
      throw OperatorError("Chain: results: received the number " + std::to_string(values[i]) + ", expected floats that a step gives, each once");
    given_[values[i] - inputs_].output = i;
  }
}

void Chain::note_last_reads() {
  std::vector<size_t> last(given_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (size_t value = steps_[i].first_value; value < (i + 1 < steps_.size() ? steps_[i + 1].first_value : given_.size()); ++value) last[value] = i;
    for (const Input& input : steps_[i].inputs)
      if (input.value >= inputs_) last[input.value - inputs_] = i;
  }
  for (size_t value = 0; value < last.size(); ++value) steps_[last[value]].last_read_here.push_back(value);
}

void Chain::compute(Context& context) const { Run(*this, context).compute(); }

}  // namespace speccompile
