// The folder of an index, as `speccompile index` writes it (speccompile/index/files.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../contract_table.h"

namespace spc {

// Ends a document: no token, and above all of them.
constexpr uint32_t kSeparator = static_cast<uint32_t>(kIndexSeparator);

// Return the names of a chunk's files: tokens uint32 [n], big-endian, and their suffix array int32 [n], little-endian.
std::string tokens_file(size_t chunk);
std::string suffixes_file(size_t chunk);

// Tokens of each chunk of the index in `folder`, separators counted. Its files are there and as large as it says. Throws
// Error(kBundle) naming the file that is wrong.
std::vector<int64_t> read_index_chunks(const std::string& folder);

}  // namespace spc
