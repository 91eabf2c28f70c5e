#include <algorithm>
#include <map>
#include <set>

#include "../contract.h"
#include "../contract_table.h"
#include "../words.h"
#include "inspect.h"
#include "text_table.h"

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

// The rings among the states.
std::string rings(const Json& manifest, const States& states) {
  std::set<int64_t> sizes;
  std::set<std::string> layers;
  for (const auto& each : manifest["rings"].object()) {
    sizes.insert(states.at(each.first)["shape"].list()[2].integer());
    layers.insert(each.first.substr(each.first.rfind('.')));
  }
  std::vector<std::string> words;
  for (const int64_t size : sizes) words.push_back(std::to_string(size));
  return "rings of " + joined(words, ", ") + " rows in " + std::to_string(layers.size()) + " layers";
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

std::string describe_caches(const Json& manifest, double gigabytes) {
  const States states = states_of(manifest);
  std::vector<std::string> parts;
  for (const char* component : {component::kTarget, component::kDrafter}) {
    int64_t bytes = 0;
    int64_t scales = 0;  // of a row, at most
    bool has_fp8 = false;
    for (const auto& [buffer, tensor] : states) {
      if (!starts_with(buffer, std::string(component) + ".")) continue;
      for (const std::string kind : kCachedKinds) {
        const bool is_scale = has_part(buffer, kind + kScaleSuffix);
        if (!is_scale && !has_part(buffer, kind)) continue;
        bytes += row_bytes(tensor);
        has_fp8 = has_fp8 || tensor["dtype"].text() == dtype::kFloat8e4m3fn;
        if (is_scale) scales = std::max(scales, tensor["shape"].list()[3].integer());
      }
    }
    const char* const word = has_fp8 ? kFp8Cache : scales > 1 ? kInt4Values : scales ? kInt8Cache : nullptr;
    const std::string dtype = word ? std::string(word) + ", " : "";
    if (bytes) parts.push_back(component + std::string(" ") + dtype + number("%.2f KB a token", static_cast<double>(bytes) / 1e3));
  }
  if (parts.empty()) return "none";
  if (!manifest["rings"].object().empty()) parts.push_back(rings(manifest, states));
  const Json longest = longest_text(manifest, states, static_cast<int64_t>(gigabytes * kGigabyte));
  parts.push_back(number("%g", gigabytes) + " GB holds " + (longest.is_null() ? "any" : longest.dump() + " tokens"));
  return joined(parts, "; ");
}

}  // namespace spc::cli
