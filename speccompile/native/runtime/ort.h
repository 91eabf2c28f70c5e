// Part of ONNX Runtime's C API that the runtime uses, and the library that contains it.
//
// The library is loaded, not linked: one binary runs with every release from 1.23 on. tests/ort_layout.cpp compares the
// indices of the functions with the real header, if it is installed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../errors.h"
#include "../operators/ort.h"

extern "C" {

struct OrtEnv;
struct OrtSession;
struct OrtRunOptions;
struct OrtIoBinding;
struct OrtMemoryInfo;
struct OrtTypeInfo;
struct OrtAllocator;
struct OrtEpDevice;
struct OrtCUDAProviderOptionsV2;
struct OrtEpAssignedSubgraph;
struct OrtEpAssignedNode;
using OrtLog = void (*)(void* user, int level, const char* category, const char* id, const char* place, const char* message);

}  // extern "C"

namespace spc {
namespace ort {

template <size_t kPlace, class Function>
using Entry = speccompile::ort::Entry<kPlace, Function>;

constexpr uint32_t kVersion = 23;
constexpr uint32_t kAssignmentVersion = 24;  // what tells which provider has which node: GetApi knows it there or not

// OrtLoggingLevel, OrtAllocatorType, OrtMemType, OrtErrorCode
enum : int { kLogWarning = 2, kLogError = 3, kArenaAllocator = 1, kDeviceAllocator = 0, kDefaultMemory = 0 };

constexpr Entry<1, int (*)(const OrtStatus*)> GetErrorCode;
constexpr Entry<2, const char* (*)(const OrtStatus*)> GetErrorMessage;
constexpr Entry<4, OrtStatus* (*)(OrtLog, void* user, int level, const char* id, OrtEnv**)> CreateEnvWithCustomLogger;
constexpr Entry<7, OrtStatus* (*)(const OrtEnv*, const char* path, const OrtSessionOptions*, OrtSession**)> CreateSession;
constexpr Entry<8, OrtStatus* (*)(const OrtEnv*, const void*, size_t, const OrtSessionOptions*, OrtSession**)> CreateSessionFromArray;
constexpr Entry<9, OrtStatus* (*)(OrtSession*, const OrtRunOptions*, const char* const* names, const OrtValue* const* inputs, size_t,
                                  const char* const* output_names, size_t, OrtValue** outputs)>
    Run;
constexpr Entry<10, OrtStatus* (*)(OrtSessionOptions**)> CreateSessionOptions;
constexpr Entry<11, OrtStatus* (*)(OrtSessionOptions*, const char* path)> SetOptimizedModelFilePath;
constexpr Entry<22, OrtStatus* (*)(OrtSessionOptions*, int level)> SetSessionLogSeverityLevel;
constexpr Entry<24, OrtStatus* (*)(OrtSessionOptions*, int threads)> SetIntraOpNumThreads;
constexpr Entry<30, OrtStatus* (*)(const OrtSession*, size_t*)> SessionGetInputCount;
constexpr Entry<31, OrtStatus* (*)(const OrtSession*, size_t*)> SessionGetOutputCount;
constexpr Entry<33, OrtStatus* (*)(const OrtSession*, size_t index, OrtTypeInfo**)> SessionGetInputTypeInfo;
constexpr Entry<34, OrtStatus* (*)(const OrtSession*, size_t index, OrtTypeInfo**)> SessionGetOutputTypeInfo;
constexpr Entry<36, OrtStatus* (*)(const OrtSession*, size_t index, OrtAllocator*, char**)> SessionGetInputName;
constexpr Entry<37, OrtStatus* (*)(const OrtSession*, size_t index, OrtAllocator*, char**)> SessionGetOutputName;
constexpr Entry<39, OrtStatus* (*)(OrtRunOptions**)> CreateRunOptions;
constexpr Entry<46, OrtStatus* (*)(OrtRunOptions*)> RunOptionsSetTerminate;
constexpr Entry<47, OrtStatus* (*)(OrtRunOptions*)> RunOptionsUnsetTerminate;
constexpr Entry<49, OrtStatus* (*)(const OrtMemoryInfo*, void*, size_t bytes, const int64_t* shape, size_t rank, int type, OrtValue**)>
    CreateTensorWithDataAsOrtValue;
constexpr Entry<55, OrtStatus* (*)(const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**)> CastTypeInfoToTensorInfo;
constexpr Entry<68, OrtStatus* (*)(const char* name, int allocator, int id, int memory, OrtMemoryInfo**)> CreateMemoryInfo;
constexpr Entry<69, OrtStatus* (*)(int allocator, int memory, OrtMemoryInfo**)> CreateCpuMemoryInfo;
constexpr Entry<76, OrtStatus* (*)(OrtAllocator*, void*)> AllocatorFree;
constexpr Entry<78, OrtStatus* (*)(OrtAllocator**)> GetAllocatorWithDefaultOptions;
constexpr Entry<93, void (*)(OrtStatus*)> ReleaseStatus;
constexpr Entry<94, void (*)(OrtMemoryInfo*)> ReleaseMemoryInfo;
constexpr Entry<95, void (*)(OrtSession*)> ReleaseSession;
constexpr Entry<96, void (*)(OrtValue*)> ReleaseValue;
constexpr Entry<97, void (*)(OrtRunOptions*)> ReleaseRunOptions;
constexpr Entry<98, void (*)(OrtTypeInfo*)> ReleaseTypeInfo;
constexpr Entry<100, void (*)(OrtSessionOptions*)> ReleaseSessionOptions;
constexpr Entry<125, OrtStatus* (*)(char*** names, int* count)> GetAvailableProviders;
constexpr Entry<126, OrtStatus* (*)(char** names, int count)> ReleaseAvailableProviders;
constexpr Entry<130, OrtStatus* (*)(OrtSessionOptions*, const char* name, const char* value)> AddSessionConfigEntry;
constexpr Entry<133, OrtStatus* (*)(OrtSession*, const OrtRunOptions*, const OrtIoBinding*)> RunWithBinding;
constexpr Entry<134, OrtStatus* (*)(OrtSession*, OrtIoBinding**)> CreateIoBinding;
constexpr Entry<135, void (*)(OrtIoBinding*)> ReleaseIoBinding;
constexpr Entry<136, OrtStatus* (*)(OrtIoBinding*, const char* name, const OrtValue*)> BindInput;
constexpr Entry<137, OrtStatus* (*)(OrtIoBinding*, const char* name, const OrtValue*)> BindOutput;
constexpr Entry<165, OrtStatus* (*)(OrtRunOptions*, const char* name, const char* value)> AddRunConfigEntry;
constexpr Entry<204, OrtStatus* (*)(OrtSessionOptions*, const OrtCUDAProviderOptionsV2*)> SessionOptionsAppendExecutionProvider_CUDA_V2;
constexpr Entry<205, OrtStatus* (*)(OrtCUDAProviderOptionsV2**)> CreateCUDAProviderOptions;
constexpr Entry<206, OrtStatus* (*)(OrtCUDAProviderOptionsV2*, const char* const* names, const char* const* values, size_t)>
    UpdateCUDAProviderOptions;
constexpr Entry<208, void (*)(OrtCUDAProviderOptionsV2*)> ReleaseCUDAProviderOptions;
constexpr Entry<301, OrtStatus* (*)(const OrtEnv*, const char* name, const char* path)> RegisterExecutionProviderLibrary;
constexpr Entry<303, OrtStatus* (*)(const OrtEnv*, const OrtEpDevice* const**, size_t*)> GetEpDevices;
constexpr Entry<304, OrtStatus* (*)(OrtSessionOptions*, const OrtEnv*, const OrtEpDevice* const*, size_t devices,
                                    const char* const* names, const char* const* values, size_t settings)>
    SessionOptionsAppendExecutionProvider_V2;
constexpr Entry<312, const char* (*)(const OrtEpDevice*)> EpDevice_EpName;
constexpr Entry<407, OrtStatus* (*)(const OrtSession*, const OrtEpAssignedSubgraph* const**, size_t*)> Session_GetEpGraphAssignmentInfo;
constexpr Entry<408, OrtStatus* (*)(const OrtEpAssignedSubgraph*, const char**)> EpAssignedSubgraph_GetEpName;
constexpr Entry<409, OrtStatus* (*)(const OrtEpAssignedSubgraph*, const OrtEpAssignedNode* const**, size_t*)> EpAssignedSubgraph_GetNodes;
constexpr Entry<412, OrtStatus* (*)(const OrtEpAssignedNode*, const char**)> EpAssignedNode_GetOperatorType;

}  // namespace ort

// Error of ONNX Runtime with the first line of its message; the rest repeats it. Callers add the context.
class OrtError : public Error {
 public:
  OrtError(int code, std::string message) : Error(Kind::kEngine, std::move(message)), code(code) {}

  int code;
};

// ONNX Runtime, loaded once per process and never unloaded: its threads outlive their creator.
class Ort {
 public:
  // path: path of its library; "" for $SPECCOMPILE_ONNXRUNTIME, or else the loader's search. Throws Error(kEngine) naming all
  // places tried, or if the process already uses another library.
  static const Ort& load(const std::string& path);

  const OrtApi* api() const { return api_; }
  const OrtApiBase* base() const { return base_; }
  const OrtEnv* env() const { return env_; }
  const std::string& version() const { return version_; }
  std::vector<std::string> providers() const;

  // Throws OrtError if a function of the API returned a status.
  void check(OrtStatus* status) const;

 private:
  Ort(void* library, const std::string& place);

  const OrtApiBase* base_ = nullptr;
  const OrtApi* api_ = nullptr;
  OrtEnv* env_ = nullptr;
  std::string version_;
};

// Wrap an object of the C API with its release function: make_shared_handle(library, session, ort::ReleaseSession).
template <class T, class Release>
std::shared_ptr<T> make_shared_handle(const Ort& library, T* made, Release release) {
  return {made, [api = library.api(), release](T* each) { release(api, each); }};
}

}  // namespace spc
