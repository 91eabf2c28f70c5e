// Caches on the disk, which Python's runtime shares: speccompile/bundle/cache.py says how they are written and locked.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "../contract_table.h"
#include "../files.h"
#include "../json.h"

namespace spc {

// A folder in $SPECCOMPILE_CACHE_DIR, or in speccompile of the user's folder for caches.
std::string cache_folder(const std::string& name);
// $SPECCOMPILE_CACHE_LIMIT_GB in bytes, 20 GB by default. Throws Error(kUsage) when it is no number.
double default_limit();
// The time of a file's or folder's last use is now. A cache that may only be read serves as well.
void mark_used(const std::string& path);
// A new folder and those around it, where they are not there. Throws FileError.
void make_folders(const std::string& path);

// An entry of a cache. It stays on the disk as long as this lives.
struct CacheEntry {
  std::string folder;
  Json content;  // of its entry.json
  FileDescriptor lock;
};

// The cache in a folder, with at most `limit` bytes of entries; a limit of 0 switches it off. An entry is a folder named by
// the digest of what it was made from. Throws FileError when the folder cannot be used.
class FolderCache {
 public:
  FolderCache(std::string folder, double limit);

  const std::string& folder() const { return folder_; }
  double limit() const { return limit_; }

  // None when there is none. One that is damaged goes, with a warning that calls it `what`. verify: compare its files with
  // their hashes.
  std::optional<CacheEntry> read(const std::string& digest, const std::string& what, bool verify = true) const;
  // Adds an entry. `fill` writes its files into the folder that it is given and returns what its entry.json says. Those
  // unused for longest that the limit has no room for then go. When `fill` throws, nothing is added.
  void add(const std::string& digest, const std::function<Json(const std::string& part)>& fill) const;

 private:
  FileDescriptor alone() const;
  std::string part_of(const std::string& digest) const;
  bool remove(const std::string& entry) const;
  void remove_parts() const;
  void evict() const;

  std::string folder_;
  double limit_;
};

}  // namespace spc
