// Time and memory that are left for one prompt: templates come with a checkpoint from elsewhere, and run in the process that serves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../../system.h"
#include "value.h"

namespace spc::jinja {

class Budget {
 public:
  Budget() = default;
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  // Namespaces may hold each other, and themselves: they are emptied, or would stay.
  ~Budget() {
    for (const std::weak_ptr<Dict>& each : namespaces_)
      if (const std::shared_ptr<Dict> held = each.lock()) *held = Dict();
  }

  // Return a namespace, which is empty once the prompt is written.
  Value name_space(Dict values) {
    count(sizeof(Dict));
    Value made = Value::name_space(std::move(values));
    namespaces_.push_back(made.watched());
    return made;
  }
  // Count a step. Throws TemplateError when the time is over.
  void step() {
    if (++steps_ % kStepsBetweenLooks == 0 && wall_seconds() > deadline_) throw TemplateError{"it takes more than " + std::to_string(static_cast<int64_t>(kSeconds)) + " seconds"};
  }
  // Count the bytes of a text that was made. Throws TemplateError for one that no prompt needs, and when all are too many.
  void text(size_t size) {
    if (size > kLargestText) throw TemplateError{"it makes a text of more than " + std::to_string(kLargestText) + " bytes"};
    count(size);
  }
  // The same of a list.
  void list(size_t elements) {
    if (elements > kMostElements) throw TemplateError{"it makes a list of more than " + std::to_string(kMostElements) + " values"};
    count(elements * sizeof(Value));
  }

 private:
  static constexpr double kSeconds = 5;
  static constexpr uint64_t kStepsBetweenLooks = 256;
  static constexpr size_t kLargestText = size_t{1} << 24, kMostElements = size_t{1} << 20, kMostBytes = size_t{1} << 30;

  void count(size_t bytes) {
    step();
    made_ += bytes;
    if (made_ > kMostBytes) throw TemplateError{"it makes more than " + std::to_string(kMostBytes >> 20) + " MiB of values"};
  }

  std::vector<std::weak_ptr<Dict>> namespaces_;
  const double deadline_ = wall_seconds() + kSeconds;
  uint64_t steps_ = 0;
  size_t made_ = 0;
};

}  // namespace spc::jinja
