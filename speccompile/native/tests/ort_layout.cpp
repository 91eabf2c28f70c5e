// The places and types that operators/ort.h and runtime/ort.h write down are those of ONNX Runtime's own header. Compiling it
// is the test.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "onnxruntime_c_api.h"

namespace ours {  // in a namespace: both declare the same names
#include "../runtime/ort.h"
}

namespace {

namespace ort = ours::speccompile::ort;
namespace runtime = ours::spc::ort;

// The same to a caller: pointers to whatever, and numbers and enumerations of the same size.
template <class A, class B>
constexpr bool kAlike = std::is_pointer_v<A> == std::is_pointer_v<B> && std::is_void_v<A> == std::is_void_v<B> &&
                        std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
                        sizeof(std::conditional_t<std::is_void_v<A>, char, A>) == sizeof(std::conditional_t<std::is_void_v<B>, char, B>);

template <class A, class B>
struct SameCall : std::bool_constant<kAlike<A, B>> {};  // for types that are no functions
template <class A, class... As, class B, class... Bs>
struct SameCall<A (*)(As...), B (*)(Bs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(As) != sizeof...(Bs)) {
      return false;
    } else {
      return kAlike<A, B> && (kAlike<As, Bs> && ...);
    }
  }();
};

template <class A, class... As, class B, class... Bs>
struct SameCall<A (*)(As...), B (*)(Bs...) noexcept> : SameCall<A (*)(As...), B (*)(Bs...)> {};

template <class Theirs, size_t kPlace, class Function>
constexpr bool stands(ort::Entry<kPlace, Function>, size_t offset) {
  return offset == kPlace * sizeof(ours::OrtSlot) && kPlace * sizeof(ours::OrtSlot) < sizeof(ours::OrtApi) && SameCall<Function, Theirs>::value;
}

#define ENTRY(name) static_assert(stands<decltype(::OrtApi::name)>(ort::name, offsetof(::OrtApi, name)), #name)
ENTRY(CreateStatus);
ENTRY(CreateCustomOpDomain);
ENTRY(CustomOpDomain_Add);
ENTRY(AddCustomOpDomain);
ENTRY(GetTensorMutableData);
ENTRY(GetTensorElementType);
ENTRY(GetDimensionsCount);
ENTRY(GetDimensions);
ENTRY(GetTensorTypeAndShape);
ENTRY(KernelInfoGetAttribute_float);
ENTRY(KernelInfoGetAttribute_int64);
ENTRY(KernelInfoGetAttribute_string);
ENTRY(KernelContext_GetInput);
ENTRY(KernelContext_GetOutput);
ENTRY(ReleaseStatus);
ENTRY(ReleaseTensorTypeAndShapeInfo);
ENTRY(KernelInfoGetConstantInput_tensor);
ENTRY(KernelContext_ParallelFor);
ENTRY(GetTensorElementTypeAndShapeDataReference);

#define RUNTIME(name) static_assert(stands<decltype(::OrtApi::name)>(runtime::name, offsetof(::OrtApi, name)), #name)
RUNTIME(GetErrorCode);
RUNTIME(GetErrorMessage);
RUNTIME(CreateEnvWithCustomLogger);
RUNTIME(CreateSession);
RUNTIME(Run);
RUNTIME(CreateSessionFromArray);
RUNTIME(CreateSessionOptions);
RUNTIME(SetOptimizedModelFilePath);
RUNTIME(SetSessionLogSeverityLevel);
RUNTIME(SetIntraOpNumThreads);
RUNTIME(SessionGetInputCount);
RUNTIME(SessionGetOutputCount);
RUNTIME(SessionGetInputTypeInfo);
RUNTIME(SessionGetOutputTypeInfo);
RUNTIME(SessionGetInputName);
RUNTIME(SessionGetOutputName);
RUNTIME(CreateRunOptions);
RUNTIME(RunOptionsSetTerminate);
RUNTIME(RunOptionsUnsetTerminate);
RUNTIME(CreateTensorWithDataAsOrtValue);
RUNTIME(CastTypeInfoToTensorInfo);
RUNTIME(CreateMemoryInfo);
RUNTIME(CreateCpuMemoryInfo);
RUNTIME(AllocatorFree);
RUNTIME(GetAllocatorWithDefaultOptions);
RUNTIME(ReleaseTypeInfo);
RUNTIME(ReleaseStatus);
RUNTIME(ReleaseMemoryInfo);
RUNTIME(ReleaseSession);
RUNTIME(ReleaseValue);
RUNTIME(ReleaseRunOptions);
RUNTIME(ReleaseSessionOptions);
RUNTIME(GetAvailableProviders);
RUNTIME(ReleaseAvailableProviders);
RUNTIME(AddSessionConfigEntry);
RUNTIME(RunWithBinding);
RUNTIME(CreateIoBinding);
RUNTIME(ReleaseIoBinding);
RUNTIME(BindInput);
RUNTIME(BindOutput);
RUNTIME(AddRunConfigEntry);
RUNTIME(SessionOptionsAppendExecutionProvider_CUDA_V2);
RUNTIME(CreateCUDAProviderOptions);
RUNTIME(UpdateCUDAProviderOptions);
RUNTIME(ReleaseCUDAProviderOptions);
#if ORT_API_VERSION >= 22
RUNTIME(RegisterExecutionProviderLibrary);
RUNTIME(GetEpDevices);
RUNTIME(SessionOptionsAppendExecutionProvider_V2);
RUNTIME(EpDevice_EpName);
#endif
#if ORT_API_VERSION >= 24
RUNTIME(Session_GetEpGraphAssignmentInfo);
RUNTIME(EpAssignedSubgraph_GetEpName);
RUNTIME(EpAssignedSubgraph_GetNodes);
RUNTIME(EpAssignedNode_GetOperatorType);
#endif

#define MEMBER(type, name)                                                    \
  static_assert(offsetof(::type, name) == offsetof(ours::type, name), #name); \
  static_assert(SameCall<decltype(::type::name), decltype(ours::type::name)>::value, #name)
MEMBER(OrtApiBase, GetApi);
MEMBER(OrtApiBase, GetVersionString);
MEMBER(OrtCustomOp, version);
MEMBER(OrtCustomOp, CreateKernel);
MEMBER(OrtCustomOp, GetName);
MEMBER(OrtCustomOp, GetExecutionProviderType);
MEMBER(OrtCustomOp, GetInputType);
MEMBER(OrtCustomOp, GetInputTypeCount);
MEMBER(OrtCustomOp, GetOutputType);
MEMBER(OrtCustomOp, GetOutputTypeCount);
MEMBER(OrtCustomOp, KernelCompute);
MEMBER(OrtCustomOp, KernelDestroy);
MEMBER(OrtCustomOp, GetInputCharacteristic);
MEMBER(OrtCustomOp, GetOutputCharacteristic);
MEMBER(OrtCustomOp, GetInputMemoryType);
MEMBER(OrtCustomOp, GetVariadicInputMinArity);
MEMBER(OrtCustomOp, GetVariadicInputHomogeneity);
MEMBER(OrtCustomOp, GetVariadicOutputMinArity);
MEMBER(OrtCustomOp, GetVariadicOutputHomogeneity);
MEMBER(OrtCustomOp, CreateKernelV2);
MEMBER(OrtCustomOp, KernelComputeV2);
MEMBER(OrtCustomOp, InferOutputShapeFn);
MEMBER(OrtCustomOp, GetStartVersion);
MEMBER(OrtCustomOp, GetEndVersion);

static_assert(ort::kVersion <= ORT_API_VERSION, "the header is older than what is asked for");
constexpr bool equal(int one, int other) { return one == other; }
static_assert(equal(ort::kFloat, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT));
static_assert(equal(ort::kUint8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8));
static_assert(equal(ort::kInt64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64));
static_assert(equal(ort::kFloat16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16));
static_assert(equal(ort::kBfloat16, ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16));
static_assert(equal(runtime::kLogWarning, ORT_LOGGING_LEVEL_WARNING) && equal(runtime::kLogError, ORT_LOGGING_LEVEL_ERROR));
static_assert(equal(runtime::kArenaAllocator, OrtArenaAllocator) && equal(runtime::kDeviceAllocator, OrtDeviceAllocator));
static_assert(equal(runtime::kDefaultMemory, OrtMemTypeDefault));
static_assert(equal(ort::kFail, ORT_FAIL) && equal(ort::kInvalidArgument, ORT_INVALID_ARGUMENT));
static_assert(equal(0, INPUT_OUTPUT_REQUIRED) && equal(0, OrtMemTypeDefault));  // written as numbers in operators/operator.h

}  // namespace

int main() { return 0; }
