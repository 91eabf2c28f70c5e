// A fake of ONNX Runtime: enough of its interface to run one operator of the library at a time, on real threads,
// over memory that ends where a tensor ends.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "../contract_table.h"
#include "../operators/ort.h"
#include "check.h"

using Ints = std::vector<int64_t>;

struct OrtStatus {
  std::string message;
};
struct OrtTensorTypeAndShapeInfo {
  int type;
  Ints shape;
};
struct OrtValue {
  Ints shape;
  std::shared_ptr<speccompile::Buffer<char>> memory;
  int type = 0;

  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(memory->data);
  }
  int64_t count() const {
    int64_t all = 1;
    for (const int64_t size : shape) all *= size;
    return all;
  }
};
// A node: attributes, and the inputs that are constants.
struct OrtKernelInfo {
  std::map<std::string, int64_t> integers;
  std::map<std::string, float> floats;
  std::vector<const OrtValue*> constants;  // null for computed inputs
  std::map<std::string, std::string> texts = {};
};
// A run of it.
struct OrtKernelContext {
  std::vector<const OrtValue*> inputs;
  std::vector<OrtValue> outputs;
  speccompile::Place place;
  size_t threads;
};
struct OrtCustomOpDomain {
  std::string name;
  std::map<std::string, const OrtCustomOp*> ops;
};
struct OrtSessionOptions {
  OrtCustomOpDomain* domain;
  int threads;  // of operators' own; 0 where the options do not say
};

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base);

namespace speccompile {

// Two types are 16 bits wide, of which no test tells one from the other.
template <class T>
constexpr int kTypeOf = std::is_same_v<T, float> ? ort::kFloat : std::is_same_v<T, uint8_t> ? ort::kUint8 : std::is_same_v<T, int64_t> ? ort::kInt64 : ort::kFloat16;

// A tensor, made by f() number after number.
template <class T, class F>
OrtValue tensor(const Ints& shape, Place place, F make) {
  OrtValue value{shape, nullptr, kTypeOf<T>};
  value.memory = std::make_shared<Buffer<char>>(value.count() * int64_t{sizeof(T)}, place);
  for (int64_t i = 0; i < value.count(); ++i) value.data<T>()[i] = static_cast<T>(make());
  return value;
}

constexpr float kUnwritten = 3e38f;  // what outputs hold before a run

namespace stand_in {

template <size_t kPlace, class Function>
void put(OrtApi& api, ort::Entry<kPlace, Function>, Function function) {
  api.slots[kPlace] = reinterpret_cast<OrtSlot>(function);
}

template <class T>
OrtStatus* look_up(const std::map<std::string, T>& all, const char* name, T* value) {
  const auto found = all.find(name);
  if (found == all.end()) return new OrtStatus{"no such attribute"};
  *value = found->second;
  return nullptr;
}

inline OrtStatus* parallel_for(const OrtKernelContext* context, void (*call)(void*, size_t), size_t count, size_t, void* data) {
  std::vector<std::thread> threads;
  for (size_t first = 0; first < context->threads; ++first)
    threads.emplace_back([=] {
      for (size_t part = first; part < count; part += context->threads) call(data, part);
    });
  for (std::thread& thread : threads) thread.join();
  return nullptr;
}

inline OrtStatus* make_output(OrtKernelContext* context, size_t index, const int64_t* sizes, size_t rank, OrtValue** value) {
  if (context->outputs.size() <= index) context->outputs.resize(index + 1);
  context->outputs[index] = tensor<float>(Ints(sizes, sizes + rank), context->place, [] { return kUnwritten; });
  *value = &context->outputs[index];
  return nullptr;
}

// Its length with the zero behind it; and the text, where there is room.
inline OrtStatus* get_text(const OrtKernelInfo* info, const char* name, char* text, size_t* size) {
  std::string found;
  if (OrtStatus* missing = look_up(info->texts, name, &found)) return missing;
  if (text) std::copy_n(found.c_str(), std::min(*size, found.size() + 1), text);
  *size = found.size() + 1;
  return nullptr;
}

inline OrtStatus* get_constant(const OrtKernelInfo* info, size_t index, int* is_constant, const OrtValue** value) {
  *value = info->constants.at(index);
  *is_constant = *value != nullptr;
  return nullptr;
}

inline void put_registration(OrtApi& api) {
  put(api, ort::CreateStatus, +[](int, const char* text) { return new OrtStatus{text}; });
  put(api, ort::ReleaseStatus, +[](OrtStatus* status) { delete status; });
  put(api, ort::CreateCustomOpDomain, +[](const char* name, OrtCustomOpDomain** domain) -> OrtStatus* {
    *domain = new OrtCustomOpDomain{name, {}};  // which stays
    return nullptr;
  });
  put(api, ort::CustomOpDomain_Add, +[](OrtCustomOpDomain* domain, const OrtCustomOp* op) -> OrtStatus* {
    domain->ops[op->GetName(op)] = op;
    return nullptr;
  });
  put(api, ort::AddCustomOpDomain, +[](OrtSessionOptions* options, OrtCustomOpDomain* domain) -> OrtStatus* {
    options->domain = domain;
    return nullptr;
  });
  put(api, ort::GetSessionConfigEntry,
      +[](const OrtSessionOptions* options, const char* name, char* value, size_t* size) -> OrtStatus* {
        if (!options->threads || name != std::string(spc::kThreadsEntry)) return new OrtStatus{"missing"};
        *size = 1 + static_cast<size_t>(std::snprintf(value, *size, "%d", options->threads));
        return nullptr;
      });
}

inline void put_tensors(OrtApi& api) {
  put(api, ort::GetTensorMutableData, +[](const OrtValue* value, void** data) -> OrtStatus* {
    *data = value->memory->data;
    return nullptr;
  });
  put(api, ort::GetTensorTypeAndShape, +[](const OrtValue* value, OrtTensorTypeAndShapeInfo** info) -> OrtStatus* {
    *info = new OrtTensorTypeAndShapeInfo{value->type, value->shape};
    return nullptr;
  });
  put(api, ort::GetTensorElementType, +[](const OrtTensorTypeAndShapeInfo* info, int* type) -> OrtStatus* {
    *type = info->type;
    return nullptr;
  });
  put(api, ort::GetTensorElementTypeAndShapeDataReference,
      +[](const OrtValue* value, int* type, const int64_t** sizes, size_t* rank) -> OrtStatus* {
        *type = value->type;
        *sizes = value->shape.data();
        *rank = value->shape.size();
        return nullptr;
      });
  put(api, ort::ReleaseTensorTypeAndShapeInfo, +[](OrtTensorTypeAndShapeInfo* info) { delete info; });
  put(api, ort::GetDimensionsCount, +[](const OrtTensorTypeAndShapeInfo* info, size_t* count) -> OrtStatus* {
    *count = info->shape.size();
    return nullptr;
  });
  put(api, ort::GetDimensions, +[](const OrtTensorTypeAndShapeInfo* info, int64_t* sizes, size_t count) -> OrtStatus* {
    std::copy_n(info->shape.begin(), count, sizes);
    return nullptr;
  });
}

inline void put_kernels(OrtApi& api) {
  put(api, ort::KernelInfoGetAttribute_int64,
      +[](const OrtKernelInfo* info, const char* name, int64_t* value) { return look_up(info->integers, name, value); });
  put(api, ort::KernelInfoGetAttribute_float,
      +[](const OrtKernelInfo* info, const char* name, float* value) { return look_up(info->floats, name, value); });
  put(api, ort::KernelInfoGetAttribute_string, get_text);
  put(api, ort::KernelInfoGetConstantInput_tensor, get_constant);
  put(api, ort::KernelContext_GetInput, +[](const OrtKernelContext* context, size_t index, const OrtValue** value) -> OrtStatus* {
    *value = context->inputs.at(index);
    return nullptr;
  });
  put(api, ort::KernelContext_GetOutput, make_output);
  put(api, ort::KernelContext_ParallelFor, parallel_for);
}

// Functions that are not filled in are null.
inline OrtApi make_api() {
  OrtApi api{};
  put_registration(api);
  put_tensors(api);
  put_kernels(api);
  return api;
}

inline const OrtApi& api() {
  static const OrtApi made = make_api();
  return made;
}

}  // namespace stand_in

// threads: of operators' own; 0 for ONNX Runtime's, which then is of the first release that operators run on.
inline const OrtCustomOp& operator_named(const std::string& name, int threads = 0) {
  OrtApiBase base{[](uint32_t version) -> const OrtApi* { return version == ort::kVersion ? &stand_in::api() : nullptr; },
                  [] { return "1.17.3"; }};
  if (threads) base.GetVersionString = [] { return "1.24.0"; };
  OrtSessionOptions options{nullptr, threads};
  CHECK(RegisterCustomOps(&options, &base) == nullptr, "%s", name.c_str());
  CHECK(options.domain->ops.count(name) == 1, "%s", name.c_str());
  return *options.domain->ops.at(name);
}

}  // namespace speccompile
