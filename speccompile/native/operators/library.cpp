// What the library gives to others: its operators to ONNX Runtime, and which kernels they run to whoever asks.
#include <cstdlib>

#include "../contract_table.h"
#include "../kernels/choose.h"
#include "attend.h"
#include "linear.h"
#include "low_rank.h"
#include "operator.h"
#include "rows.h"
#include "states.h"

#define SPC_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace speccompile;

template <class... Operators>
OrtStatus* add_all(const OrtApi* api, OrtCustomOpDomain* domain) {
  OrtStatus* status = nullptr;
  for (const OrtCustomOp* op : {description<Operators>()...})
    if (!status) status = ort::CustomOpDomain_Add(api, domain, op);
  return status;
}

OrtStatus* make_domain(const OrtApi* api, OrtCustomOpDomain** domain) {
  OrtStatus* status = ort::CreateCustomOpDomain(api, spc::kKernelsDomain, domain);
  if (status) return status;
  return add_all<LinearFloat32, LinearBFloat16, LinearInt8, LinearInt4, LinearBlocks<4>, LinearBlocks<8>, EmbedFloat32, EmbedBFloat16,
                 EmbedInt8, EmbedBlocks<4>, EmbedBlocks<8>, Attend, AttendSinks, AttendLatent, AttendLatentSinks, AttendInt8, AttendInt8Sinks,
                 EncodeInt8, DecodeInt8, SplitHeads, RotaryHeads, NormRotaryHeads, RotaryTables, RmsNorm, SkipRmsNorm, LayerNorm,
                 GatedSilu, GatedGelu, Softplus, Log, Convolve, Shift, After, Recur, RecurDelta, Advance, AdvanceDelta, LowRank>(api, *domain);
}

}  // namespace

// Called by ONNX Runtime (SessionOptions.register_custom_ops_library). Sessions share one domain, which stays.
SPC_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  const OrtApi* api = base->GetApi(ort::kVersion);
  if (!api) return nullptr;  // a release before 1.17: ONNX Runtime will say that it does not know the operators
  static OrtCustomOpDomain* domain = nullptr;
  static OrtStatus* failed = make_domain(api, &domain);
  return failed ? failed : ort::AddCustomOpDomain(api, options, domain);
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
