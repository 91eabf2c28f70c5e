// Documented part of a generation's JSON object. It has a header of its own because Triton's backend, which links only the C ABI,
// sends the same object.
#pragma once

#include "../json.h"

namespace spc {

// Return the object of `speccompile generate --json`: the fields before the first one that only benchmarks read.
inline Json documented_fields(const Json& generation) {
  Json::Object shown;
  for (const Json::Member& each : generation.object()) {
    if (each.first == "prefill_seconds") break;
    shown.push_back(each);
  }
  return shown;
}

}  // namespace spc
