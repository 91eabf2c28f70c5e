#include "base64.h"

#include <array>
#include <cstdint>

namespace spc {
namespace {

constexpr uint8_t kNone = 64;

std::array<uint8_t, 256> values_of_letters() {
  std::array<uint8_t, 256> values;
  values.fill(kNone);
  uint8_t value = 0;
  for (const unsigned char letter : "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    if (letter) values[letter] = value++;
  return values;
}

}  // namespace

std::optional<std::string> from_base64(std::string_view text) {
  static const std::array<uint8_t, 256> kValues = values_of_letters();
  const size_t end = text.find_last_not_of('=') + 1;  // 0 where there is nothing else
  if (text.size() % 4 != 0 || text.size() - end > 2) return std::nullopt;
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < end; ++i) {
    const uint8_t value = kValues[static_cast<unsigned char>(text[i])];
    if (value == kNone) return std::nullopt;
    bits = bits << 6 | value;
    if (i % 4 != 0) bytes += static_cast<char>(bits >> (6 - i % 4 * 2) & 0xFF);
  }
  const bool has_rest = end % 4 != 0 && (bits & (end % 4 == 2 ? 0xFu : 3u)) != 0;
  return has_rest ? std::nullopt : std::optional(bytes);
}

}  // namespace spc
