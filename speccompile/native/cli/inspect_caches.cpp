#include <algorithm>
#include <map>

#include "../contract.h"
#include "../contract_table.h"
#include "inspect.h"

namespace spc::cli {
namespace {

constexpr double kGigabyte = 1e9;

// Bytes of a token's rows in a cache.
int64_t row_bytes(const Json& cache) {
  const Json::List& shape = cache["shape"].list();
  return static_cast<int64_t>(item_size(cache["dtype"].text())) * shape[1].integer() * shape[3].integer();
}

using States = std::map<std::string, Json>;  // by buffer

// The states of the first engine.
States states_of(const Json& manifest) {
  States states;
  for (const Json& graph : manifest["engines"].list().front()["graphs"].list())
    for (const Json& tensor : graph["inputs"].list())
      if (tensor["role"].text() == role::kState) states.emplace(tensor["buffer"].text(), tensor);
  return states;
}

// The tokens of the longest text of one batch slot whose caches fit a memory in bytes, null if any does.
Json longest_text(const Json& manifest, const States& states, int64_t memory) {
  const int64_t length = manifest["max_length"].integer();
  int64_t token = 0, fixed = 0;
  for (const auto& [buffer, tensor] : states) {
    if (!is_cache(buffer)) continue;
    const int64_t rows = tensor["shape"].list()[2].integer(), row = row_bytes(tensor);
    if (manifest["rings"].find(buffer)) {
      fixed += row * rows;
    } else {  // a drafter with another tokenizer has several rows for a token
      const int64_t several = std::max<int64_t>(1, rows / length);
      token += several * row;
      fixed += row * (rows - several * length);
    }
  }
  const int64_t room = memory - fixed;
  if (!token) return room >= 0 ? Json() : Json(0);
  return std::max<int64_t>(0, room / token);
}

}  // namespace

Json context_of(const Json& manifest, double gigabytes) {
  const States states = states_of(manifest);
  int64_t token = 0;
  for (const auto& [buffer, tensor] : states)
    if (is_cache(buffer)) token += row_bytes(tensor);
  const auto memory = static_cast<int64_t>(gigabytes * kGigabyte);
  return Json(Json::Object{{"bytes_per_token", token}, {"memory", memory}, {"tokens", longest_text(manifest, states, memory)}});
}

}  // namespace spc::cli
