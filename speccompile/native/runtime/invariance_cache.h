// Cache of checks of engines on this machine, one small file per engine (speccompile/runtime/devices/invariance_cache.py).
#pragma once

#include <optional>
#include <string>

#include "../bundle/cache.h"
#include "../json.h"

namespace spc {

// Cache in `folder`. A limit of 0 disables it; any other limit has no effect, because the files are small.
class InvarianceCache {
 public:
  explicit InvarianceCache(std::string folder = cache_folder(kInvarianceFolder), double limit = default_limit());

  // Return the stored result of a key; nullopt if there is none, or its file is damaged.
  std::optional<Json> read(const Json& key) const;
  // Store the result of a key. A write error is ignored.
  void keep(const Json& key, const Json& found) const;

 private:
  std::string folder_;
  double limit_;
};

}  // namespace spc
