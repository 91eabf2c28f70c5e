// Caches on the disk, which Python's runtime shares: speccompile/bundle/cache.py says how they are written and locked.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "../contract_table.h"
#include "../files.h"
#include "../json.h"

namespace spc {

// Return a folder in $SPECCOMPILE_CACHE_DIR, or in `speccompile` of the user's folder for caches.
std::string cache_folder(const std::string& name);
// Return $SPECCOMPILE_CACHE_LIMIT_GB in bytes, 20 GB by default. Throws Error(kUsage) when it is no number.
double default_limit();
// Set the time of a file's or folder's last use to now, where it may be written.
void mark_used(const std::string& path);
// Make a folder and its parents, unless they exist. Throws FileError.
void make_folders(const std::string& path);

// Entry of a cache. Its lock keeps other processes from removing it.
struct CacheEntry {
  std::string folder;
  Json content;  // of its entry.json
  FileDescriptor lock;
};

// Cache in a folder, with at most `limit` bytes of entries; a limit of 0 switches it off. An entry is a folder named by
// the digest of what it was made from. Throws FileError when the folder cannot be used.
class FolderCache {
 public:
  FolderCache(std::string folder, double limit);

  const std::string& folder() const { return folder_; }
  double limit() const { return limit_; }

  // Return an entry, none where there is none. A damaged one is removed, with a warning. kind: of the entry, for the warning.
  // verify: compare its files with their hashes.
  std::optional<CacheEntry> read(const std::string& digest, const std::string& kind, bool verify = true) const;
  // Add an entry, then remove those unused for longest until the limit holds. `fill` writes the entry's files into the given
  // folder and returns the content of its entry.json; when it throws, nothing is added.
  void add(const std::string& digest, const std::function<Json(const std::string& part)>& fill) const;

 private:
  FileDescriptor lock_changes() const;
  std::string new_part(const std::string& digest) const;
  bool remove(const std::string& entry) const;
  void remove_parts() const;
  void evict() const;

  std::string folder_;
  double limit_;
};

}  // namespace spc
