// `speccompile-native inspect`: what a bundle holds.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "../bundle/reader.h"
#include "../errors.h"
#include "../runtime/shipped_prefixes.h"
#include "../runtime/window_invariance.h"
#include "../runtime/ort.h"
#include "../system.h"
#include "../words.h"
#include "common.h"
#include "exit_codes.h"
#include "inspect.h"

namespace spc::cli {
namespace {

// ONNX Runtime's version, "" if its library is not found: then nothing was tried with it.
std::string onnxruntime_version(const std::string& path) {
  try {
    return Ort::load(path).version();
  } catch (const Error&) {
    if (!path.empty()) throw;
    return "";
  }
}

// Engine on the processor -> result of the check on this machine, null before the first one.
Json found_here(const OpenedBundle& bundle, const std::string& onnxruntime) {
  Json here{Json::Object{}};
  std::optional<std::string> version;
  for (const EngineEntry& engine : bundle.manifest.engines) {
    if (engine.provider != provider::kCpu) continue;
    if (!version) version = onnxruntime_version(onnxruntime);
    std::optional<WindowInvariance> found;
    if (!version->empty()) found = cached_invariance(engine_key(bundle.folder, engine, available_cores(), *version));
    here.set(engine.name, found ? found->to_json() : Json());
  }
  return here;
}

// Engine -> names of the prefixes that the bundle ships for it, in order.
Json prefixes(const OpenedBundle& bundle) {
  Json found{Json::Object{}};
  for (const auto& [engine, names] : prefix_names(bundle.hashes)) found.set(engine, list_of(names));
  return found;
}

Json as_object(const OpenedBundle& bundle, bool is_verified, const std::string& onnxruntime, double gigabytes) {
  Json::List buffers;
  for (const Json& each : bundle.manifest.json["buffers"].list())
    buffers.push_back(Json(Json::Object{{"name", each["name"]},
                                        {"dtype", each["dtype"]},
                                        {"shape", each["shape"]},
                                        {"role", each["role"]},
                                        {"bytes", size_in_bytes(each, bundle.manifest.batch_size)}}));
  Json files{Json::Object{}};
  for (const auto& [path, file] : bundle.hashes.files)
    files.set(path, Json(Json::Object{{"blake3", file.blake3}, {"bytes", file.size}}));
  return Json(Json::Object{{"digest", bundle.hashes.digest},
                           {"verified", is_verified},
                           {"manifest", bundle.manifest.json},
                           {"buffers", std::move(buffers)},
                           {"files", std::move(files)},
                           {"lock", bundle.lock},
                           {"prefixes", prefixes(bundle)},
                           {"context", context_of(bundle.manifest.json, gigabytes)},
                           {"here", found_here(bundle, onnxruntime)},
                           {"proof", bundle.proof}});
}

}  // namespace

Json size_in_bytes(const Json& buffer, int64_t rows) {
  const Dtype* dtype = dtype_named(buffer["dtype"].text());
  if (!dtype)
    throw Error(Kind::kBundle,
                "manifest.json: buffer " + buffer["name"].repr() + " has dtype " + buffer["dtype"].repr() +
                    ", expected one of " + comma_separated(kDtypes, [](const Dtype& each) { return each.name; }),
                "upgrade speccompile");
  std::string widths;
  int64_t bytes = static_cast<int64_t>(dtype->bytes);
  for (const Json& size : buffer["shape"].list()) {
    if (size.is_integer() || size.text() == kBatch)
      bytes *= size.is_integer() ? size.integer() : rows;
    else
      widths += size.text().find('+') == std::string::npos ? "*" + size.text() : "*(" + size.text() + ")";
  }
  return widths.empty() ? Json(bytes) : Json(std::to_string(bytes) + widths);
}

void inspect(const Arguments& given) {
  const bool verify = !given.has("--no-verify");
  const std::optional<Value> asked = given.number("--cache-gb");
  const double gigabytes = asked ? asked->number : 1;
  const Json object = as_object(open_bundle(given.rest[0], verify, signer_of(given)), verify, given.text("--onnxruntime"), gigabytes);
  write_stdout(given.has("--json") ? object.dump(2) + "\n" : describe(object, gigabytes));
}

}  // namespace spc::cli
