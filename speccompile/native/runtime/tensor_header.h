// Header of the files of tensors that bundles write (bundle/tensor_header.py describes it).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "../json.h"

namespace spc {

// Return the beginning of a file with this header.
std::string with_length(std::string header);
// Return the bytes of a header, of which a file says this first; 0 for a file without room to say it.
uint64_t header_bytes(std::string_view content);
// Return the header of a file; the bytes after it are then in `data`. Throws Error(kUsage) for another file. what: what
// the file should be, such as a session.
Json split_header(std::string_view content, const std::string& where, const std::string& what, const std::string& hint, std::string_view& data);

}  // namespace spc
