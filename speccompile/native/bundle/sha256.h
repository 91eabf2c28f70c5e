// SHA-256 (FIPS 180-4): the names of what is kept on a machine.
#pragma once

#include <string>
#include <string_view>

namespace spc {

// In hexadecimal digits.
std::string sha256(std::string_view data);

}  // namespace spc
