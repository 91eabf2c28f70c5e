#include "result_cache.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "../errors.h"
#include "cache.h"
#include "hashes.h"
#include "sha256.h"

namespace spc {

ResultCache::ResultCache(const std::string& name) : folder_(cache_folder(name)), limit_(default_limit()) {}

std::optional<Json> ResultCache::read(const Json& key) const {
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

void ResultCache::store(const Json& key, const Json& found) const {
  if (limit_ == 0) return;
  const std::string name = join_path(folder_, sha256(key.canonical()));
  static std::atomic<unsigned> count{0};  // two threads may keep the same
  const std::string part = name + "." + std::to_string(getpid()) + std::to_string(1000 + count++ % 1000) + kCachePart;
  try {
    make_folders(folder_);
    write_file(part, Json(Json::Object{{"key", key}, {"found", found}}).canonical());
    if (std::rename(part.c_str(), (name + ".json").c_str()) == 0) return;
  } catch (const FileError&) {  // a full disk, or a folder that cannot be written
  }
  unlink(part.c_str());
}

}  // namespace spc
