// SHA-256 (FIPS 180-4), for API keys, the adapters of kept sessions and the names of cached files, as Python's hashlib makes it.
#pragma once

#include <string>
#include <string_view>

namespace spc {

// Return the digest in hexadecimal digits.
std::string sha256(std::string_view data);

}  // namespace spc
