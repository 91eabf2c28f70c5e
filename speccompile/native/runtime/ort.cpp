#include "ort.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "../errors.h"
#include "../progress.h"
#include "../system.h"
#include "../words.h"

namespace spc {
namespace {

#if defined(__APPLE__)
constexpr const char* kNames[] = {"libonnxruntime.dylib"};
#else
constexpr const char* kNames[] = {"libonnxruntime.so.1", "libonnxruntime.so"};
#endif
constexpr const char* kHint =
    "pip install onnxruntime, or unpack a release of it, and name the library: option onnxruntime, or $SPECCOMPILE_ONNXRUNTIME";

struct Place {
  std::string path, told_by;
};

// Return the paths to try, each with its origin. A path that the user names is tried alone.
std::vector<Place> places(const std::string& asked) {
  if (!asked.empty()) return {{asked, "option onnxruntime"}};
  const std::string variable = environment(kOnnxruntimeVariable);
  if (!variable.empty()) return {{variable, std::string("$") + kOnnxruntimeVariable}};
  std::vector<Place> found;
  for (const char* name : kNames) found.push_back({name, "the loader"});
  return found;
}

void* open_first(const std::vector<Place>& places, std::string& taken) {
  std::string tried;
  for (const Place& each : places) {
    taken = each.path;
    if (void* library = dlopen(each.path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* reason = dlerror();
    if (reason && std::strstr(reason, "failed to map segment")) throw std::bad_alloc();  // glibc's word for no address space
    tried += (tried.empty() ? "" : "; ") + each.told_by + ": " + (reason ? reason : each.path);
  }
  throw Error(Kind::kEngine, "found no ONNX Runtime, expected its shared library. Tried " + tried, kHint);
}

// Pass on ONNX Runtime's warnings, and none of its information.
void tell(void*, int level, const char*, const char*, const char*, const char* message) {
  try {
    if (level >= ort::kLogWarning) warn(std::string("ONNX Runtime: ") + message);
  } catch (...) {  // a line that cannot be told must not end in ONNX Runtime's code
  }
}

// 24 of "1.24.0".
int minor_of(const std::string& version) {
  const size_t point = version.find('.');
  return point == std::string::npos ? 0 : std::atoi(version.c_str() + point + 1);
}

}  // namespace

const Ort& Ort::load(const std::string& path) {
  static auto* mutex = new std::mutex;
  static const Ort* loaded = nullptr;
  static void* handle = nullptr;
  static auto* from = new std::string;
  const std::lock_guard<std::mutex> lock(*mutex);
  if (loaded && path.empty()) return *loaded;
  std::string taken;
  void* library = open_first(places(path), taken);
  if (loaded && library != handle)
    throw Error(Kind::kEngine, "received ONNX Runtime at " + taken + ", expected the one that this process already uses: " + *from,
                "give every bundle of a process the same library");
  if (!loaded) {
    loaded = new Ort(library, taken);
    handle = library;
    *from = taken;
  }
  return *loaded;
}

Ort::Ort(void* library, const std::string& place) {
  const auto get_base = reinterpret_cast<const OrtApiBase* (*)()>(dlsym(library, "OrtGetApiBase"));
  if (!get_base) throw Error(Kind::kEngine, place + ": expected ONNX Runtime, found a library without OrtGetApiBase", kHint);
  base_ = get_base();
  version_ = base_->GetVersionString();
  // asked for a version that it does not have, GetApi prints
  if (minor_of(version_) >= static_cast<int>(ort::kVersion)) api_ = base_->GetApi(ort::kVersion);
  if (!api_)
    throw Error(Kind::kEngine, place + ": received ONNX Runtime " + version_ + ", expected 1." + std::to_string(ort::kVersion) + " or newer",
                kHint);
  // Read when the environment is made: what its function turns off later has already left an identifier of this machine in the
  // user's cache folder. A value that the user has set stays.
  setenv("ORT_DISABLE_TELEMETRY", "1", 0);
  // Never released: ONNX Runtime ends processes that still run something of it when its environment goes.
  check(ort::CreateEnvWithCustomLogger(api_, &tell, nullptr, ort::kLogWarning, "speccompile", &env_));
}

void Ort::check(OrtStatus* status) const {
  if (!status) return;
  const OrtError refusal(ort::GetErrorCode(api_, status), first_line(ort::GetErrorMessage(api_, status)));
  ort::ReleaseStatus(api_, status);
  throw refusal;
}

std::vector<std::string> Ort::providers() const {
  char** names = nullptr;
  int count = 0;
  check(ort::GetAvailableProviders(api_, &names, &count));
  std::vector<std::string> found(names, names + count);
  check(ort::ReleaseAvailableProviders(api_, names, count));
  return found;
}

}  // namespace spc
