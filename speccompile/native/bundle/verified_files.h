// Files of bundles that were compared with their hashes on this machine (speccompile/bundle/verified_files.py).
#pragma once

#include <set>
#include <string>

#include "../json.h"
#include "hashes.h"

namespace spc {

// State of a bundle's files before they are compared, and in the record of an earlier comparison.
class VerifiedFiles {
 public:
  // The files that `hashes` lists must be there. Throws Error(kUsage) if the limit of the caches is no number.
  VerifiedFiles(const std::string& folder, const Hashes& hashes);

  // The files that have the state in which they were compared before.
  const std::set<std::string>& unchanged() const { return unchanged_; }
  // Record that all were compared, but for those that changed meanwhile or shortly before.
  void store() const;

 private:
  Json::Object states() const;

  const std::string folder_;
  const Json key_;
  const Hashes& hashes_;
  const double begun_;  // in seconds since 1970
  const Json::Object states_;
  std::set<std::string> unchanged_;
};

}  // namespace spc
