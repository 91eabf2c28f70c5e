// Bytes written as text (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spc {

// The bytes that a text in base64 has; none for any other form of them than the usual one.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace spc
