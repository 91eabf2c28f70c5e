// The part of ONNX Runtime's C API that operators need, since no Python package has its header. What the runtime needs
// beside it is in runtime/ort.h.
//
// OrtApi is a table of functions whose places never change from release to release; OrtCustomOp is a structure that says
// which release it was written for. What operators need is of 1.17, the first with KernelContext_ParallelFor. Where the real header
// is found, tests/ort_layout.cpp compares every place used here with it.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct OrtStatus;
struct OrtValue;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtTensorTypeAndShapeInfo;
struct OrtCustomOp;

using OrtSlot = void (*)();

struct OrtApi {
  OrtSlot slots[416];  // of 1.24; a release has those up to its own version
};

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, size_t index);
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, size_t index);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void* kernel, OrtKernelContext*);
  void (*KernelDestroy)(void* kernel);
  int (*GetInputCharacteristic)(const OrtCustomOp*, size_t index);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, size_t index);
  int (*GetInputMemoryType)(const OrtCustomOp*, size_t index);
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext*);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp*, void*);
  int (*GetStartVersion)(const OrtCustomOp*);
  int (*GetEndVersion)(const OrtCustomOp*);
};

}  // extern "C"

namespace speccompile {
namespace ort {

constexpr uint32_t kVersion = 17;
constexpr int kLendsSizes = 24;  // the first with GetTensorElementTypeAndShapeDataReference

// ONNXTensorElementDataType, OrtErrorCode, OrtCustomOpInputOutputCharacteristic
enum Type : int { kAny = 0, kFloat = 1, kUint8 = 2, kInt8 = 3, kInt64 = 7, kBool = 9, kFloat16 = 10, kBfloat16 = 16 };
enum Code : int { kFail = 1, kInvalidArgument = 2 };
enum Characteristic : int { kRequired = 0, kVariadic = 2 };

// A place in OrtApi and what stands there.
template <size_t kPlace, class Function>
struct Entry {
  static constexpr size_t place = kPlace;
  template <class... Arguments>
  auto operator()(const OrtApi* api, Arguments... arguments) const {
    return reinterpret_cast<Function>(api->slots[kPlace])(arguments...);
  }
};

constexpr Entry<0, OrtStatus* (*)(int, const char*)> CreateStatus;
constexpr Entry<26, OrtStatus* (*)(const char*, OrtCustomOpDomain**)> CreateCustomOpDomain;
constexpr Entry<27, OrtStatus* (*)(OrtCustomOpDomain*, const OrtCustomOp*)> CustomOpDomain_Add;
constexpr Entry<28, OrtStatus* (*)(OrtSessionOptions*, OrtCustomOpDomain*)> AddCustomOpDomain;
constexpr Entry<51, OrtStatus* (*)(const OrtValue*, void**)> GetTensorMutableData;
constexpr Entry<60, OrtStatus* (*)(const OrtTensorTypeAndShapeInfo*, int*)> GetTensorElementType;
constexpr Entry<61, OrtStatus* (*)(const OrtTensorTypeAndShapeInfo*, size_t*)> GetDimensionsCount;
constexpr Entry<62, OrtStatus* (*)(const OrtTensorTypeAndShapeInfo*, int64_t*, size_t)> GetDimensions;
constexpr Entry<65, OrtStatus* (*)(const OrtValue*, OrtTensorTypeAndShapeInfo**)> GetTensorTypeAndShape;
constexpr Entry<85, OrtStatus* (*)(const OrtKernelInfo*, const char*, float*)> KernelInfoGetAttribute_float;
constexpr Entry<86, OrtStatus* (*)(const OrtKernelInfo*, const char*, int64_t*)> KernelInfoGetAttribute_int64;
constexpr Entry<87, OrtStatus* (*)(const OrtKernelInfo*, const char*, char*, size_t*)> KernelInfoGetAttribute_string;
constexpr Entry<90, OrtStatus* (*)(const OrtKernelContext*, size_t, const OrtValue**)> KernelContext_GetInput;
constexpr Entry<91, OrtStatus* (*)(OrtKernelContext*, size_t, const int64_t*, size_t, OrtValue**)> KernelContext_GetOutput;
constexpr Entry<93, void (*)(OrtStatus*)> ReleaseStatus;
constexpr Entry<99, void (*)(OrtTensorTypeAndShapeInfo*)> ReleaseTensorTypeAndShapeInfo;
constexpr Entry<238, OrtStatus* (*)(const OrtSessionOptions*, const char* name, char* value, size_t* size)> GetSessionConfigEntry;
constexpr Entry<249, OrtStatus* (*)(const OrtKernelInfo*, size_t, int*, const OrtValue**)> KernelInfoGetConstantInput_tensor;
constexpr Entry<274, OrtStatus* (*)(const OrtKernelContext*, void (*)(void*, size_t), size_t, size_t, void*)>
    KernelContext_ParallelFor;
constexpr Entry<414, OrtStatus* (*)(const OrtValue*, int* type, const int64_t** sizes, size_t* rank)>
    GetTensorElementTypeAndShapeDataReference;

}  // namespace ort
}  // namespace speccompile
