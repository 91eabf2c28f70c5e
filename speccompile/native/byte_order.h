// Numbers of 32 bits in bytes of either order, whatever the processor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spc {

// Return the number whose first byte, the most significant one, is at `place`. The bytes must have all four.
inline uint32_t big_endian_32(std::string_view bytes, size_t place) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i) number = number << 8 | static_cast<uint8_t>(bytes[place + i]);
  return number;
}

// Return the same of four bytes that begin with the least significant one.
inline uint32_t little_endian_32(std::string_view bytes, size_t place) {
  uint32_t number = 0;
  for (size_t i = 4; i-- > 0;) number = number << 8 | static_cast<uint8_t>(bytes[place + i]);
  return number;
}

}  // namespace spc
