// Reader of a bundle's folder. It refuses files that are missing, truncated, edited, of another version, or links to other folders, and
// names them.
#pragma once

#include <string>

#include "../json.h"
#include "hashes.h"
#include "manifest.h"

namespace spc {

struct OpenedBundle {
  std::string folder;
  Manifest manifest;
  Json lock, proof;
  Hashes hashes;

  // Return the path of a file of the bundle. Throws Error(kBundle) when the bundle has no such file.
  std::string path(const std::string& relative) const;
};

// Open a bundle; its structure, versions and paths are always checked. verify: compare the files with their hashes as well. signed_by:
// file of a public key of minisign, "" for none; the bundle must have a signature by it, and all files are compared. skip_verified: do
// not compare files that were compared on this machine before and are unchanged since (verified_files.h). Throws Error(kBundle) naming the
// invalid file, Error(kUsage) for `signed_by` without `verify` or without a key, and Error(kEngine) where signatures cannot be checked.
OpenedBundle open_bundle(const std::string& folder, bool verify = true, const std::string& signed_by = "",
                         bool skip_verified = false);

}  // namespace spc
