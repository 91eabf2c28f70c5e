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

  // Where a file of the bundle lies. Throws Error(kBundle) when the bundle has no such file.
  std::string path(const std::string& relative) const;
};

// verify: the files' hashes as well; structure, versions and paths are always looked at. Throws Error(kBundle).
OpenedBundle open_bundle(const std::string& folder, bool verify = true);

}  // namespace spc
