#include "operator.h"

#include <atomic>
#include <string>

#include "float_mode.h"

namespace speccompile {

std::string describe(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.rank; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

void check(const OrtApi* api, OrtStatus* status) {
  if (!status) return;
  ort::ReleaseStatus(api, status);
  throw OperatorError("ONNX Runtime refused what every operator asks for");
}

Tensor::Tensor(const OrtApi* api, const OrtValue* value) {
  void* data = nullptr;
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api, ort::GetTensorMutableData(api, value, &data));
  check(api, ort::GetTensorTypeAndShape(api, value, &info));
  OrtStatus* status = ort::GetDimensionsCount(api, info, &shape_.rank);
  const bool fits = shape_.rank <= 8;
  if (!status && fits) status = ort::GetDimensions(api, info, shape_.sizes, shape_.rank);
  ort::ReleaseTensorTypeAndShapeInfo(api, info);
  check(api, status);
  if (!fits) throw OperatorError("received a tensor of more than 8 axes");
  data_ = data;
}

const Shape& Tensor::shape(size_t rank, const char* name) const {
  if (shape_.rank == rank) return shape_;
  throw OperatorError(std::string(name) + ": received the shape " + describe(shape_) + ", expected " + std::to_string(rank) + " axes");
}

int64_t Info::integer(const char* attribute) const {
  int64_t value = 0;
  OrtStatus* status = ort::KernelInfoGetAttribute_int64(api_, info_, attribute, &value);
  if (!status) return value;
  ort::ReleaseStatus(api_, status);
  throw OperatorError(std::string(name_) + ": the attribute " + attribute + " is missing");
}

int64_t Info::integer(const char* attribute, int64_t otherwise) const {
  int64_t value = 0;
  OrtStatus* status = ort::KernelInfoGetAttribute_int64(api_, info_, attribute, &value);
  if (!status) return value;
  ort::ReleaseStatus(api_, status);
  return otherwise;
}

float Info::number(const char* attribute) const {
  float value = 0;
  OrtStatus* status = ort::KernelInfoGetAttribute_float(api_, info_, attribute, &value);
  if (!status) return value;
  ort::ReleaseStatus(api_, status);
  throw OperatorError(std::string(name_) + ": the attribute " + attribute + " is missing");
}

Tensor Info::constant(size_t index, const char* input) const {
  int is_constant = 0;
  const OrtValue* value = nullptr;
  check(api_, ort::KernelInfoGetConstantInput_tensor(api_, info_, index, &is_constant, &value));
  if (!is_constant) throw OperatorError(std::string(name_) + ": " + input + " is computed, expected a constant");
  return Tensor(api_, value);
}

Tensor Context::input(size_t index) const {
  const OrtValue* value = nullptr;
  check(api_, ort::KernelContext_GetInput(api_, context_, index, &value));
  return Tensor(api_, value);
}

void* Context::allocate(size_t index, const Shape& shape) {
  OrtValue* value = nullptr;
  void* data = nullptr;
  check(api_, ort::KernelContext_GetOutput(api_, context_, index, shape.sizes, shape.rank, &value));
  check(api_, ort::GetTensorMutableData(api_, value, &data));
  return data;
}

void Context::run(const Part& part) const {
  struct Work {
    const Part& part;
    std::atomic<bool> failed{false};

    void run(int64_t number) noexcept {
      const FloatMode mode;
      const int64_t first = number * part.grain, last = first + part.grain < part.count ? first + part.grain : part.count;
      try {
        if (!part.call(part.function, first, last)) failed = true;
      } catch (...) {
        failed = true;
      }
    }
  } work{part};
  const int64_t parts = (part.count + part.grain - 1) / part.grain;
  if (parts == 1) {
    work.run(0);
  } else if (parts > 1) {
    const auto call = [](void* self, size_t number) { static_cast<Work*>(self)->run(static_cast<int64_t>(number)); };
    check(api_, ort::KernelContext_ParallelFor(api_, context_, call, static_cast<size_t>(parts), 0, &work));
  }
  if (work.failed) throw std::bad_alloc();
}

}  // namespace speccompile
