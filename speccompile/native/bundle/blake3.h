// BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020), the plain hash of 32 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace spc {

using Digest = std::array<uint8_t, 32>;

// threads: subtrees of large inputs are hashed side by side.
Digest blake3(std::string_view data, int threads = 1);
std::string hex(const Digest& digest);

}  // namespace spc
