// hashes.json: the BLAKE3 hash and the size of every other file of a bundle (speccompile/bundle/hashes.py).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../json.h"

namespace spc {

struct FileRecord {
  std::string blake3;  // in hexadecimal digits
  int64_t size = 0;
};

struct Hashes {
  std::string digest;
  std::vector<std::pair<std::string, FileRecord>> files;  // in the file's order
  std::string content;                                    // bytes of the file

  const FileRecord* find(std::string_view path) const;
};

// The value in a JSON file. Throws Error(kBundle) when it cannot be read or is no JSON.
Json read_json(const std::string& path);
// hashes.json of a folder. verify: its digest as well. Throws Error(kBundle).
Hashes read_hashes(const std::string& folder, bool verify);
// Throws Error(kBundle) for the first file that is missing, truncated or outside `folder`, and with `verify` for the first
// that was edited.
void check_files(const std::string& folder, const Hashes& hashes, bool verify);
// Throws Error(kBundle) for the first file whose content differs from its hash; tells how long that took when it was over a
// second.
void check_content(const std::string& folder, const Hashes& hashes, const std::set<std::string>& skipped = {});
// BLAKE3 of a file's content, mapped and hashed on all cores, in hexadecimal digits. Throws Error(kBundle).
std::string hash_file(const std::string& path);

}  // namespace spc
