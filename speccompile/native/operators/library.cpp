// Exports of the library: its operators for ONNX Runtime, and the name of the kernels' path.
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "../contract_table.h"
#include "../kernels/choose.h"
#include "all.h"
#include "chain.h"
#include "operator.h"

#define SPC_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace speccompile;

// The operators for sessions of one number of threads, which stay.
struct Domain {
  OrtCustomOpDomain* domain = nullptr;
  std::vector<Description> operators;
  OrtStatus* failed = nullptr;
};

template <class... All>
void describe_all(Domain& made, int threads, Types<All...>) {
  made.operators = {describe<All>(threads)..., describe<Chain>(threads), describe<Integers>(threads)};
}

Domain make_domain(const OrtApi* api, int threads) {
  Domain made;
  made.failed = ort::CreateCustomOpDomain(api, spc::kKernelsDomain, &made.domain);
  describe_all(made, threads, Operators());
  for (const Description& each : made.operators)
    if (!made.failed) made.failed = ort::CustomOpDomain_Add(api, made.domain, &each.op);
  return made;
}

// The threads that a session gives to operators; 0, ONNX Runtime's own, where its options do not say.
int threads_of(const OrtApi* api, const OrtSessionOptions* options) {
  char text[16] = {};
  size_t size = sizeof text;
  if (OrtStatus* missing = ort::GetSessionConfigEntry(api, options, spc::kThreadsEntry, text, &size)) {
    ort::ReleaseStatus(api, missing);
    return 0;
  }
  return std::atoi(text);
}

}  // namespace

// Called by ONNX Runtime (SessionOptions.register_custom_ops_library). Sessions with as many threads share a domain.
SPC_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  const OrtApi* api = base->GetApi(ort::kVersion);
  if (!api) return nullptr;  // a release before 1.17: ONNX Runtime will say that it does not know the operators
  set_version(api, base->GetVersionString());
  static auto* mutex = new std::mutex;
  static auto* domains = new std::map<int, Domain>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const int threads = threads_of(api, options);
  auto found = domains->find(threads);
  if (found == domains->end()) found = domains->emplace(threads, make_domain(api, threads)).first;
  return found->second.failed ? found->second.failed : ort::AddCustomOpDomain(api, options, found->second.domain);
}

// The name of the path in use.
SPC_EXPORT const char* speccompile_kernels() { return kernels().name; }

// The names of the paths that can run here, the fastest first; null for an index behind the last.
SPC_EXPORT const char* speccompile_kernels_path(int index) {
  for (int i = 0; i < index; ++i)
    if (!runnable_paths()[i]) return nullptr;
  return runnable_paths()[index] ? runnable_paths()[index]->name : nullptr;
}

// Use another path from now on, everywhere in the process. 0 where it cannot run.
SPC_EXPORT int speccompile_kernels_use(const char* name) { return use_path(name); }
