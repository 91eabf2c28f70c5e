// BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020), the plain hash of 32 bytes.
//
// By hand, because Debian 12 has no package of the reference in C, which hashes on one thread: 1.15 GB/s a thread and 23 kB of code here,
// 1.5 GB/s and 85 kB, mostly assembly for each processor, there (version 1.8.6, AMD EPYC of family 23, 256 MB, g++ 12).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace spc {

using Digest = std::array<uint8_t, 32>;

// Bytes of a large input that one thread hashes at a time: a whole subtree, unless it is the last. A power of two.
constexpr size_t kPiece = size_t{256} << 10;

// threads: pieces of large inputs are hashed side by side, from the first to the last. reached: is called with the place of
// each piece by the thread that hashes it; it must not throw.
Digest blake3(std::string_view data, int threads = 1, const std::function<void(size_t)>& reached = nullptr);
std::string hex(const Digest& digest);

}  // namespace spc
