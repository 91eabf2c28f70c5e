#include "reader.h"

#include "consistency.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <vector>

#include "../errors.h"
#include "../files.h"
#include "../progress.h"
#include "signature.h"
#include "verified_files.h"

namespace fs = std::filesystem;

namespace spc {
namespace {

constexpr const char* kBuild = "give the folder that `speccompile build` wrote";
constexpr const char* kModel =
    "this is a model: `speccompile run` and `chat` take it, and `speccompile build` makes a bundle of it";

[[noreturn]] void refuse(const std::string& message) { throw Error(Kind::kBundle, message, kBuild); }

Json read_object(const std::string& path) {
  Json data = read_json(path);
  if (!data.is_object()) refuse(path + ": expected a JSON object, got " + data.python_type());
  return data;
}

void check_version(const Json& manifest, const std::string& name, int ours, const std::string& path) {
  const Json& version = manifest[name];
  const bool is_big = version.type() == Json::Type::kBig;
  if (!version.is_integer() && !is_big)
    refuse(path + ": expected a number in " + python_repr(name) + ", got " + version.repr());
  if (version == Json(ours)) return;
  const bool is_newer = is_big ? version.text()[0] != '-' : version.integer() > ours;
  const std::string reads = ", this speccompile reads " + name + " version " + std::to_string(ours);
  throw Error(Kind::kBundle, path + ": the bundle has " + name + " version " + version.repr() + reads,
              is_newer ? "upgrade speccompile" : "build the bundle again with this speccompile");
}

Json read_manifest(const std::string& folder) {
  std::error_code error;
  const std::string path = join_path(folder, kManifest);
  if (!fs::is_directory(folder, error)) {
    const char* found = fs::exists(folder, error) ? "is a file" : "does not exist";
    refuse(folder + ": expected the folder of a bundle, it " + found);
  }
  if (!fs::is_regular_file(path, error)) {
    const bool is_model = fs::is_regular_file(join_path(folder, "config.json"), error);
    throw Error(Kind::kBundle, folder + ": not a bundle: it has no " + kManifest, is_model ? kModel : kBuild);
  }
  Json manifest = read_object(path);
  check_version(manifest, "format", kFormat, path);
  check_version(manifest, "contract", kContract, path);
  return manifest;
}

PublicKey signer(const std::string& path, bool verify) {
  if (!verify)
    throw Error(Kind::kUsage, "received a key that must have signed the bundle, without comparing hashes, which the signature covers",
                "leave out --no-verify (verify=False)");
  return PublicKey::read(plain_path(path));
}

std::vector<std::string> needed_files(const Manifest& manifest) {
  std::vector<std::string> needed = {kManifest, kLock, kProof};
  if (manifest.tokenizer) needed.push_back(kTokenizer);
  for (const EngineEntry& engine : manifest.engines) {
    for (const auto& [graph, file] : engine.files) needed.push_back(file);
    for (const auto& [graph, file] : engine.build["sources"].object()) needed.push_back(file.text());
  }
  return needed;
}

// Return the sorted names as Python writes a list.
std::string sorted_list(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return list_of(names).repr();
}

template <class Pairs>
std::vector<std::string> first_of(const Pairs& pairs) {
  std::vector<std::string> names;
  for (const auto& [name, value] : pairs) names.push_back(name);
  return names;
}

// The names in what must have an entry for every graph: an engine's files, or what a deferred one is built from.
std::vector<std::vector<std::string>> held(const EngineEntry& engine) {
  if (engine.deferred().empty()) return {first_of(engine.files)};
  return {first_of(engine.build["sources"].object()), first_of(engine.build["settings"].object())};
}

void check_listed(const OpenedBundle& bundle) {
  const std::string path = join_path(bundle.folder, kManifest);
  for (const std::string& file : needed_files(bundle.manifest))
    if (!bundle.hashes.find(file))
      refuse(path + ": the bundle needs " + python_repr(file) + ", which " + kHashes + " does not list");
  for (const EngineEntry& engine : bundle.manifest.engines) {
    std::vector<std::string> names;
    for (const Graph& graph : engine.graphs) names.push_back(graph.name);
    const std::string graphs = sorted_list(names);
    for (const std::vector<std::string>& each : held(engine)) {
      const std::string found = sorted_list(each);
      if (found != graphs)
        refuse(path + ": engine " + python_repr(engine.name) + " has files for " + found + ", the graphs are " + graphs);
    }
  }
}

void verify_content(const std::string& folder, const Hashes& hashes, bool skip_verified) {
  const VerifiedFiles verified(folder, hashes);
  check_content(folder, hashes, skip_verified ? verified.unchanged() : std::set<std::string>());
  verified.store();
}

}  // namespace

std::string OpenedBundle::path(const std::string& relative) const {
  if (!hashes.find(relative))
    throw Error(Kind::kBundle, folder + ": the bundle has no file " + python_repr(relative),
                "`speccompile inspect` lists the files of a bundle");
  return join_path(folder, relative);
}

OpenedBundle open_bundle(const std::string& folder, bool verify, const std::string& signed_by, bool skip_verified) {
  OpenedBundle bundle;
  bundle.folder = plain_path(folder);
  const Json manifest = read_manifest(bundle.folder);
  const std::optional<PublicKey> key = signed_by.empty() ? std::nullopt : std::optional(signer(signed_by, verify));
  bundle.hashes = read_hashes(bundle.folder, verify);
  if (key) {
    const std::string comment = check_signature(bundle.folder, bundle.hashes.content, *key);
    log(Level::kInfo, "signed by key " + key->name() + (comment.empty() ? "" : ": " + comment));
  }
  check_files(bundle.folder, bundle.hashes, false);
  if (verify) verify_content(bundle.folder, bundle.hashes, skip_verified && !key);
  bundle.manifest = Manifest::from_json(manifest, join_path(bundle.folder, kManifest));
  bundle.lock = read_object(join_path(bundle.folder, kLock));
  bundle.proof = read_object(join_path(bundle.folder, kProof));
  check_consistency(bundle.manifest, join_path(bundle.folder, kManifest));
  check_listed(bundle);
  return bundle;
}

}  // namespace spc
