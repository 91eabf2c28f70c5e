#include "onnxruntime_provider.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "../errors.h"
#include "../files.h"
#include "../json.h"
#include "../progress.h"
#include "../system.h"
#include "../words.h"

namespace spc {
namespace {

using Settings = std::vector<std::pair<const char*, const char*>>;

constexpr const char* kCuda = "CUDAExecutionProvider";
constexpr const char* kBuild = "build the bundle again with this speccompile";
constexpr const char* kOther = "choose another engine of the bundle: --engine NAME (engine=NAME)";

// Names and values, as the C API takes them.
std::pair<std::vector<const char*>, std::vector<const char*>> columns(const Settings& settings) {
  std::pair<std::vector<const char*>, std::vector<const char*>> found;
  for (const auto& [name, value] : settings) {
    found.first.push_back(name);
    found.second.push_back(value);
  }
  return found;
}

// Return the path of a plugin's library: of the environment variable, or next to ONNX Runtime's.
std::string plugin_path(const Ort& library, const Provider& provider) {
  const std::string named = environment(provider.variable.c_str());
  if (!named.empty()) return named;
  Dl_info found{};
  if (!dladdr(reinterpret_cast<const void*>(library.base()->GetApi), &found) || !found.dli_fname) return provider.plugin;
  const std::string path = found.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + provider.plugin;
}

// The device of a provider that comes as a plugin, which is loaded once. Throws Error(kEngine) when it cannot be, or has none.
const OrtEpDevice* plugin_device(const Ort& library, const Provider& provider) {
  static auto* mutex = new std::mutex;
  static auto* known = new std::map<std::string, const OrtEpDevice*>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto place = known->find(provider.name);
  if (place != known->end()) return place->second;
  const std::string path = plugin_path(library, provider);
  try {
    library.check(ort::RegisterExecutionProviderLibrary(library.api(), library.env(), provider.name.c_str(), path.c_str()));
  } catch (const OrtError& refusal) {
    throw Error(Kind::kEngine, "ONNX Runtime cannot load " + provider.name + ": " + refusal.message,
                "`nvidia-smi` shows the driver; libraries that it needs are found in folders of LD_LIBRARY_PATH");
  }
  const OrtEpDevice* const* devices = nullptr;
  size_t count = 0;
  library.check(ort::GetEpDevices(library.api(), library.env(), &devices, &count));
  const auto is_of = [&](const OrtEpDevice* device) { return ort::EpDevice_EpName(library.api(), device) == provider.name; };
  const auto* const found = std::find_if(devices, devices + count, is_of);
  if (found == devices + count)
    throw Error(Kind::kEngine, provider.name + " finds no GPU that it supports", kOther);
  return known->emplace(provider.name, *found).first->second;
}

void append_cuda(const Ort& library, OrtSessionOptions* options, const Settings& settings) {
  const auto [names, values] = columns(settings);
  OrtCUDAProviderOptionsV2* made = nullptr;
  library.check(ort::CreateCUDAProviderOptions(library.api(), &made));
  const auto cuda = make_shared_handle(library, made, ort::ReleaseCUDAProviderOptions);
  library.check(ort::UpdateCUDAProviderOptions(library.api(), made, names.data(), values.data(), names.size()));
  library.check(ort::SessionOptionsAppendExecutionProvider_CUDA_V2(library.api(), options, made));
}

void append_plugin(const Ort& library, OrtSessionOptions* options, const OrtEpDevice* device, const Settings& settings) {
  const auto [names, values] = columns(settings);
  library.check(ort::SessionOptionsAppendExecutionProvider_V2(library.api(), options, library.env(), &device, 1, names.data(),
                                                              values.data(), names.size()));
}

// Makes a session ask for a provider. Throws Error(kEngine) when that cannot be loaded; the processor takes no place of it.
void append(const Ort& library, OrtSessionOptions* options, const Provider& provider, const std::string& file, bool capture) {
  const std::pair<const char*, const char*> graphs{"enable_cuda_graph", capture ? "1" : "0"};
  const OrtEpDevice* device = provider.plugin.empty() ? nullptr : plugin_device(library, provider);
  try {
    // CUDA's default rounds products of float32 to ten bits, which is not what float32 means.
    if (provider.name == kCuda) append_cuda(library, options, {graphs, {"device_id", "0"}, {"use_tf32", "0"}});
    if (device) append_plugin(library, options, device, {graphs});
  } catch (const OrtError& refusal) {
    const std::string what = "ONNX Runtime " + library.version() + " could not load " + provider.name + " for " + file;
    throw Error(Kind::kEngine, what + ": " + refusal.message,
                "its own message says what is missing, often CUDA or cuDNN: " + provider.install);
  }
}

// GetApi prints where a version is too new for it.
bool knows_assignment(const Ort& library) {
  const std::string& version = library.version();  // "1.24.0"
  return std::atoi(version.c_str() + version.find('.') + 1) >= static_cast<int>(ort::kAssignmentVersion);
}

}  // namespace

const Provider& find_provider(const std::string& word) {
  // Both packages of ONNX Runtime fill the same folder: the one that is installed last wins, and uninstalling either breaks
  // the other.
  static const auto* providers = new std::map<std::string, Provider>{
      {provider::kCuda,
       {kCuda, "", "", "gpu_graph_id", "Cuda", "pip uninstall onnxruntime, then pip install 'onnxruntime-gpu[cuda,cudnn]'"}},
      {provider::kNvTensorrtRtx,
       {"NvTensorRTRTXExecutionProvider", "libonnxruntime_providers_nv_tensorrt_rtx.so", "SPECCOMPILE_NV_TENSORRT_RTX",
        "cuda_graph_annotation_id", "Cuda",
        "pip install onnxruntime-ep-nv-tensorrt-rtx, and name its library in $SPECCOMPILE_NV_TENSORRT_RTX"}}};
  const auto found = providers->find(word);
  if (found == providers->end())
    throw Error(Kind::kEngine, "this runtime has no provider " + python_repr(word) + " of ONNX Runtime", kOther);
  return found->second;
}

void check_provider(const Ort& library, const Provider& provider) {
  const std::vector<std::string> available = library.providers();
  if (std::find(available.begin(), available.end(), provider.name) != available.end()) return;
  // A path that the user gave is tried, and its problem reported, when the provider is loaded.
  if (!provider.plugin.empty() && !environment(provider.variable.c_str()).empty()) return;
  if (!provider.plugin.empty() && access(plugin_path(library, provider).c_str(), R_OK) == 0) return;
  throw Error(Kind::kEngine, "ONNX Runtime " + library.version() + " has no " + provider.name + ", but " + joined(available),
              provider.install);
}

void CudaGraphState::refuse(const std::string& why) {
  allowed_ = false;
  warn(file_ + ": runs without CUDA graphs: " + why);
}

void CudaGraphs::run(CudaGraphState& graph, const Binding& binding, const std::function<void(int number)>& run,
                   const std::function<void()>& check_stopped) {
  const bool again = repeats_.again(binding);
  int &number = numbers_[&binding], &taken = n_used_[binding.graph];
  if (!number && again && graph.allowed() && taken < kMaxCudaGraphs) {
    number = graph.next();
    ++taken;
  }
  if (number && graph.allowed()) {
    try {
      return run(number);
    } catch (const OrtError& refusal) {
      number = 0;  // the capture of a run that was cut off is incomplete
      check_stopped();
      graph.refuse(refusal.message);
    }
  }
  try {
    run(kNone);
  } catch (const OrtError& refusal) {
    check_stopped();
    throw Error(Kind::kEngine, binding.widths() + ": ONNX Runtime cannot run it: " + refusal.message);
  }
}

DeviceSession::DeviceSession(const Ort& library, Provider provider, const std::string& folder, const std::string& file,
                             int threads)
    : capturing(name_of(file)),
      library_(library),
      provider_(std::move(provider)),
      name_(name_of(file)) {
  const std::string path = folder + "/" + file;
  try {
    session_ = open(path, threads, true);
  } catch (const Error& error) {
    // Capturing is refused where a node is left to the CPU. Without it the graph may still run.
    session_ = open(path, threads, false);
    capturing.refuse(error.message);
  }
  if (knows_assignment(library)) warn_fallback_nodes();
}

SharedSession DeviceSession::open(const std::string& path, int threads, bool capture) {
  const SessionOptions options = session_options(library_, threads, {{"record_ep_graph_assignment_info", "1"}});
  append(library_, options.get(), provider_, name_, capture);
  return create_session(library_, name_, [&] {
    OrtSession* session = nullptr;
    library_.check(ort::CreateSession(library_.api(), library_.env(), path.c_str(), options.get(), &session));
    return session;
  });
}

std::shared_ptr<OrtIoBinding> DeviceSession::bind(const Binding& binding) {
  OrtIoBinding* made = nullptr;
  library_.check(ort::CreateIoBinding(library_.api(), session_.get(), &made));
  const auto bound = make_shared_handle(library_, made, ort::ReleaseIoBinding);
  OrtMemoryInfo* info = nullptr;
  library_.check(ort::CreateMemoryInfo(library_.api(), provider_.memory.c_str(), ort::kDeviceAllocator, 0, ort::kDefaultMemory,
                                       &info));
  const auto memory = make_shared_handle(library_, info, ort::ReleaseMemoryInfo);
  const auto each = [&](const BoundTensor& tensor, const auto& entry) {
    try {
      const size_t bytes = static_cast<size_t>(product(tensor.shape)) * item_size(tensor.tensor->dtype);
      OrtValue* view = nullptr;
      library_.check(ort::CreateTensorWithDataAsOrtValue(library_.api(), info, tensor.address, bytes, tensor.shape.data(),
                                                         tensor.shape.size(), onnx_type(tensor.tensor->dtype), &view));
      const auto value = make_shared_handle(library_, view, ort::ReleaseValue);
      library_.check(entry(library_.api(), made, tensor.tensor->name.c_str(), static_cast<const OrtValue*>(view)));
    } catch (const OrtError& refusal) {
      throw Error(Kind::kEngine, name_ + ": ONNX Runtime does not bind " + tensor.tensor->name + ": " + refusal.message, kBuild);
    }
  };
  for (const BoundTensor& tensor : binding.inputs) each(tensor, ort::BindInput);
  for (const BoundTensor& tensor : binding.outputs) each(tensor, ort::BindOutput);
  return bound;
}

void DeviceSession::run(const OrtIoBinding* bound, const OrtRunOptions* options) {
  library_.check(ort::RunWithBinding(library_.api(), session_.get(), options, bound));
}

void DeviceSession::warn_fallback_nodes() const {
  const OrtApi* api = library_.base()->GetApi(ort::kAssignmentVersion);
  const OrtEpAssignedSubgraph* const* parts = nullptr;
  size_t count = 0;
  library_.check(ort::Session_GetEpGraphAssignmentInfo(api, session_.get(), &parts, &count));
  std::map<std::string, int> strays;
  for (size_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    library_.check(ort::EpAssignedSubgraph_GetEpName(api, parts[i], &name));
    if (name == provider_.name) continue;
    const OrtEpAssignedNode* const* nodes = nullptr;
    size_t size = 0;
    library_.check(ort::EpAssignedSubgraph_GetNodes(api, parts[i], &nodes, &size));
    for (size_t j = 0; j < size; ++j) {
      const char* type = nullptr;
      library_.check(ort::EpAssignedNode_GetOperatorType(api, nodes[j], &type));
      ++strays[type];
    }
  }
  const std::string counts = comma_separated(strays, [](const auto& each) { return std::to_string(each.second) + " " + each.first; });
  if (!counts.empty()) warn(name_ + ": ONNX Runtime leaves nodes to the CPU: " + counts);
}

}  // namespace spc
