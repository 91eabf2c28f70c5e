// What was found out about engines on this machine, kept: a small file for each (speccompile/runtime/devices/invariance_cache.py).
#pragma once

#include <optional>
#include <string>

#include "../bundle/cache.h"
#include "../json.h"

namespace spc {

// The files in `folder`. Nothing is kept where the caches' limit is 0; no other counts, as they are so small.
class InvarianceCache {
 public:
  explicit InvarianceCache(std::string folder = cache_folder(kInvarianceFolder), double limit = default_limit());

  // What was kept for a key; none when nothing was, or its file is damaged.
  std::optional<Json> read(const Json& key) const;
  // Keep what was found for a key. A cache that cannot be written is done without.
  void keep(const Json& key, const Json& found) const;

 private:
  std::string folder_;
  double limit_;
};

}  // namespace spc
