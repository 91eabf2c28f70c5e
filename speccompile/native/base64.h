// Bytes written as text (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spc {

// Decode base64. Return none for a text with other characters, missing or superfluous padding, or bits behind the last byte.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace spc
