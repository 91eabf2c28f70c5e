// On-disk cache of small results, one JSON file per key (speccompile/bundle/result_cache.py).
#pragma once

#include <optional>
#include <string>

#include "../json.h"

namespace spc {

// Results in the user's cache of this name. A limit of 0 disables it; any other limit has no effect, because results are small.
class ResultCache {
 public:
  // Throws Error(kUsage) if the limit of the caches is no number.
  explicit ResultCache(const std::string& name);

  // Return the result of a key; nullopt if there is none, or its file is damaged.
  std::optional<Json> read(const Json& key) const;
  // Store the result of a key. A write error is ignored.
  void store(const Json& key, const Json& found) const;

 private:
  const std::string folder_;
  const double limit_;
};

}  // namespace spc
