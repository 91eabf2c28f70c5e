#include "engines.h"

#include <utility>
#include <vector>

#include "../errors.h"
#include "../progress.h"
#include "../system.h"
#include "../words.h"
#include "onnxruntime.h"
#include "onnxruntime_device.h"

namespace spc {
namespace {

constexpr const char* kFinish = "run `speccompile finish` on the bundle, on the machine that is to run it";
constexpr const char* kOther = "choose another engine of the bundle: --engine NAME (engine=NAME)";

// Throws Error(kEngine) saying why this machine cannot run an engine. Quick: none of its files is opened.
void check_runnable(const Ort& library, const EngineEntry& entry) {
  if (!entry.deferred().empty()) throw Error(Kind::kEngine, "it is not built yet: " + entry.deferred(), kFinish);
  if (entry.backend == backend::kOnnxruntime && entry.provider == provider::kCpu) return;
  if (entry.backend == backend::kOnnxruntime && (entry.provider == provider::kCuda || entry.provider == provider::kNvTensorrtRtx))
    return check_device(library, entry.provider);
  throw Error(Kind::kEngine, "this runtime has no backend " + python_repr(entry.backend) + " on " + python_repr(entry.provider), kOther);
}

const EngineEntry& named(const Manifest& manifest, const std::string& name) {
  for (const EngineEntry& entry : manifest.engines)
    if (entry.name == name) return entry;
  throw Error(Kind::kUsage, "the bundle has no engine " + python_repr(name),
              "it has: " + comma_separated(manifest.engines, [](const EngineEntry& entry) { return entry.name; }));
}

}  // namespace

const EngineEntry& choose(const Ort& library, const Manifest& manifest, const std::string& name) {
  if (!name.empty()) {
    const EngineEntry& entry = named(manifest, name);
    try {
      check_runnable(library, entry);
    } catch (const Error& error) {
      throw Error(Kind::kEngine, "engine " + python_repr(name) + " cannot run here: " + error.message, error.hint);
    }
    return entry;
  }
  std::vector<std::pair<std::string, std::string>> refused;
  bool is_deferred = false;
  for (const EngineEntry& entry : manifest.engines) {
    is_deferred = is_deferred || !entry.deferred().empty();
    try {
      check_runnable(library, entry);
    } catch (const Error& error) {
      refused.emplace_back(entry.name, error.message);
      continue;
    }
    for (const auto& [other, reason] : refused) warn("skipping engine " + other + " for " + entry.name + ": " + reason);
    return entry;
  }
  std::string reasons;
  for (const auto& [other, reason] : refused) reasons += (reasons.empty() ? "" : "; ") + other + ": " + reason;
  throw Error(Kind::kEngine, "no engine of the bundle can run here: " + reasons,
              is_deferred ? kFinish : "`speccompile doctor` shows what this machine can run");
}

std::shared_ptr<SharedEngine> open_engine(const Ort& library, const std::string& folder, const EngineEntry& entry, int threads, bool verify) {
  if (threads > kMaxThreads)
    throw Error(Kind::kUsage, "threads: received " + std::to_string(threads) + ", expected at most " + std::to_string(kMaxThreads),
                "leave it out for one each core");
  const int count = threads > 0 ? threads : available_cores();
  if (entry.provider != provider::kCpu) return open_onnxruntime_device(library, folder, entry, count);
  return open_onnxruntime(library, folder, entry, count, verify);
}

}  // namespace spc
