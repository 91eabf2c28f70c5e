// Open a bundle's folder: refuse by name what is missing, truncated, edited, from another version or leading elsewhere.
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

// verify: the files' hashes as well; structure, versions and paths are always looked at. signed_by: file of a public key of
// minisign, "" for none; the bundle must have a signature by it, and everything is compared. skip_verified: compare no file
// that was compared here before and is unchanged since (verified_files.h). Throws Error(kBundle) naming the invalid file,
// Error(kUsage) for `signed_by` without `verify` or without a key, and Error(kEngine) where signatures cannot be checked.
OpenedBundle open_bundle(const std::string& folder, bool verify = true, const std::string& signed_by = "",
                         bool skip_verified = false);

}  // namespace spc
