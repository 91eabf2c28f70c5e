// The documented part of a generation's JSON object. A header of its own: backends over the C ABI show the same.
#pragma once

#include "../json.h"

namespace spc {

// Return the object of `speccompile generate --json`; the fields behind it are for those who measure.
inline Json documented(const Json& generation) {
  Json::Object shown;
  for (const Json::Member& each : generation.object()) {
    if (each.first == "prefill_seconds") break;
    shown.push_back(each);
  }
  return shown;
}

}  // namespace spc
