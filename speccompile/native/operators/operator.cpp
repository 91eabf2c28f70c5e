#include "operator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <limits>
#include <string>

#include "float_mode.h"
#include "sharing.h"

namespace speccompile {

std::string describe(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.rank; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

void expect(bool fits, const char* name, const Shape& received) {
  if (!fits) throw OperatorError(std::string(name) + ": received the shape " + describe(received) + ", which does not fit the others");
}

void check(const OrtApi* api, OrtStatus* status) {
  if (!status) return;
  ort::ReleaseStatus(api, status);
  throw OperatorError("ONNX Runtime refused what every operator asks for");
}

namespace {

std::atomic<const OrtApi*> lends_sizes{nullptr};

// Read the type and shape of a tensor from the view of them that ONNX Runtime lends.
void read_lent(const OrtApi* api, const OrtValue* value, int& type, Shape& shape) {
  const int64_t* sizes = nullptr;
  check(api, ort::GetTensorElementTypeAndShapeDataReference(api, value, &type, &sizes, &shape.rank));
  std::copy_n(sizes, std::min(shape.rank, std::size(shape.sizes)), shape.sizes);
}

// Read the same from a description that ONNX Runtime allocates.
void read_allocated(const OrtApi* api, const OrtValue* value, int& type, Shape& shape) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api, ort::GetTensorTypeAndShape(api, value, &info));
  OrtStatus* status = ort::GetTensorElementType(api, info, &type);
  if (!status) status = ort::GetDimensionsCount(api, info, &shape.rank);
  if (!status && shape.rank <= std::size(shape.sizes)) status = ort::GetDimensions(api, info, shape.sizes, shape.rank);
  ort::ReleaseTensorTypeAndShapeInfo(api, info);
  check(api, status);
}

}  // namespace

void set_version(const OrtApi* api, const char* version) {
  int major = 0, minor = 0;
  const bool lends = std::sscanf(version, "%d.%d", &major, &minor) == 2 && major == 1 && minor >= ort::kLendsSizes;
  lends_sizes = lends ? api : nullptr;
}

Tensor::Tensor(const OrtApi* api, const OrtValue* value) {
  void* data = nullptr;
  check(api, ort::GetTensorMutableData(api, value, &data));
  (api == lends_sizes.load(std::memory_order_relaxed) ? read_lent : read_allocated)(api, value, type_, shape_);
  if (shape_.rank > std::size(shape_.sizes)) throw OperatorError("received a tensor of more than 8 axes");
  data_ = data;
}

const Shape& Tensor::shape(size_t rank, const char* name) const {
  if (shape_.rank == rank) return shape_;
  throw OperatorError(std::string(name) + ": received the shape " + describe(shape_) + ", expected " + std::to_string(rank) + " axes");
}

void expect_type(const Tensor& tensor, int type, const char* name, size_t index) {
  if (tensor.type() == type) return;
  throw OperatorError(std::string(name) + ": received the type " + std::to_string(tensor.type()) + " as input " + std::to_string(index) +
                      ", expected " + std::to_string(type));
}

void Info::missing(const char* attribute) const { throw OperatorError(std::string(name_) + ": the attribute " + attribute + suffix_ + " is missing"); }

int64_t Info::integer(const char* attribute) const {
  int64_t value = 0;
  OrtStatus* status = ort::KernelInfoGetAttribute_int64(api_, info_, (attribute + suffix_).c_str(), &value);
  if (!status) return value;
  ort::ReleaseStatus(api_, status);
  missing(attribute);
}

int64_t Info::integer(const char* attribute, int64_t otherwise) const {
  int64_t value = 0;
  OrtStatus* status = ort::KernelInfoGetAttribute_int64(api_, info_, (attribute + suffix_).c_str(), &value);
  if (!status) return value;
  ort::ReleaseStatus(api_, status);
  return otherwise;
}

float Info::number(const char* attribute) const {
  float value = 0;
  OrtStatus* status = ort::KernelInfoGetAttribute_float(api_, info_, (attribute + suffix_).c_str(), &value);
  if (!status) return value;
  ort::ReleaseStatus(api_, status);
  missing(attribute);
}

std::string Info::text(const char* attribute) const {
  size_t size = 0;  // with the zero behind it
  OrtStatus* status = ort::KernelInfoGetAttribute_string(api_, info_, (attribute + suffix_).c_str(), nullptr, &size);
  if (status) {
    ort::ReleaseStatus(api_, status);
    missing(attribute);
  }
  std::string value(size, '\0');
  check(api_, ort::KernelInfoGetAttribute_string(api_, info_, (attribute + suffix_).c_str(), value.data(), &size));
  value.resize(size ? size - 1 : 0);
  return value;
}

Tensor Info::constant(size_t index, const char* input) const {
  int is_constant = 0;
  const OrtValue* value = nullptr;
  const size_t place = inputs_.empty() ? index : inputs_.at(index).first;
  if (place != kComputed) check(api_, ort::KernelInfoGetConstantInput_tensor(api_, info_, place, &is_constant, &value));
  if (!is_constant) throw OperatorError(std::string(name_) + ": " + input + " is computed, expected a constant");
  const Tensor found(api_, value);
  if (!inputs_.empty()) expect_type(found, inputs_[index].second, name_, index);
  return found;
}

Tensor Context::input(size_t index) const {
  if (step_) return step_->input(index);
  const OrtValue* value = nullptr;
  check(api_, ort::KernelContext_GetInput(api_, context_, index, &value));
  return Tensor(api_, value);
}

void* Context::allocate(size_t index, const Shape& shape) {
  if (step_) return step_->output(index, shape);
  OrtValue* value = nullptr;
  void* data = nullptr;
  check(api_, ort::KernelContext_GetOutput(api_, context_, index, shape.sizes, shape.rank, &value));
  check(api_, ort::GetTensorMutableData(api_, value, &data));
  return data;
}

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The parts of a call, and the least time that one took for a unit.
class Work {
 public:
  explicit Work(const Context::Part& part) : part_(part), parts_((part.count + part.grain - 1) / part.grain) {}

  int64_t parts() const { return parts_; }

  void run(int64_t number) noexcept { run(first(number), last(number)); }

  void run_all() noexcept { run(0, part_.count); }  // in one part: what each prepares is prepared once

  // For `seconds`: where nobody asks, a clock would cost more than small parts bear.
  void run_timed(int64_t number) noexcept {
    const Clock::time_point start = Clock::now();
    run(number);
    const double each = seconds_since(start) / static_cast<double>(last(number) - first(number));
    double known = quickest_.load(std::memory_order_relaxed);
    while (each < known && !quickest_.compare_exchange_weak(known, each, std::memory_order_relaxed)) {
    }
  }

  // Seconds that one thread would take for all parts, which were timed and have ended.
  double seconds() const { return quickest_ * static_cast<double>(part_.count); }

  bool failed() const { return failed_; }

 private:
  void run(int64_t first, int64_t last) noexcept {
    const FloatMode mode;
    try {
      if (first < last && !part_.call(part_.function, first, last)) failed_ = true;
    } catch (...) {
      failed_ = true;
    }
  }

  int64_t first(int64_t number) const { return number * part_.grain; }
  int64_t last(int64_t number) const { return std::min(first(number) + part_.grain, part_.count); }

  const Context::Part& part_;
  const int64_t parts_;
  alignas(64) std::atomic<double> quickest_{std::numeric_limits<double>::infinity()};
  std::atomic<bool> failed_{false};
};

// On the threads of a pool, or alone where that is faster.
void share(Work& work, ThreadPools& pools) {
  thread_local Sharing sharing;
  const Clock::time_point start = Clock::now();
  if (sharing.alone()) {
    for (int64_t number = 0; number < work.parts(); ++number) work.run_timed(number);
  } else {
    const auto call = [](void* self, int64_t number) noexcept { static_cast<Work*>(self)->run_timed(number); };
    ThreadPools::Borrowed(pools)->run(call, &work, work.parts());
  }
  sharing.record(work.seconds(), seconds_since(start));
}

}  // namespace

void Context::run(const Part& part) const {
  Work work(part);
  if (work.parts() > 1 && pools_ && pools_->threads() > 1) {
    share(work, *pools_);
  } else if (work.parts() > 1 && !pools_) {
    const auto call = [](void* self, size_t number) { static_cast<Work*>(self)->run(static_cast<int64_t>(number)); };
    check(api_, ort::KernelContext_ParallelFor(api_, context_, call, static_cast<size_t>(work.parts()), 0, &work));
  } else {
    work.run_all();
  }
  if (work.failed()) throw std::bad_alloc();
}

}  // namespace speccompile
