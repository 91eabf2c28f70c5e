#include "invariance_cache.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "../bundle/hashes.h"
#include "../bundle/sha256.h"
#include "../errors.h"

namespace spc {

InvarianceCache::InvarianceCache(std::string folder, double limit) : folder_(std::move(folder)), limit_(limit) {}

std::optional<Json> InvarianceCache::read(const Json& key) const {
  if (limit_ == 0) return {};
  const std::string path = join_path(folder_, sha256(key.canonical()) + ".json");
  mark_used(path);
  try {
    const Json content = read_json(path);
    if (content["key"].is_object() && content["found"].is_object()) return content["found"];
  } catch (const Error& error) {
    if (error.kind != Kind::kBundle) throw;
  }
  return {};
}

void InvarianceCache::keep(const Json& key, const Json& found) const {
  if (limit_ == 0) return;
  const std::string name = join_path(folder_, sha256(key.canonical()));
  static std::atomic<unsigned> count{0};  // two threads may keep the same
  const std::string part = name + "." + std::to_string(getpid()) + std::to_string(1000 + count++ % 1000) + kCachePart;
  try {
    make_folders(folder_);
    write_file(part, Json(Json::Object{{"key", key}, {"found", found}}).canonical());
  } catch (const FileError&) {
    return;
  }
  std::rename(part.c_str(), (name + ".json").c_str());
}

}  // namespace spc
