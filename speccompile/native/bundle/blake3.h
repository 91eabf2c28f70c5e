// BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020), the plain hash of 32 bytes.
//
// By hand, because the reference in C has no package in Debian 12 and one thread: 1.5 GB/s beside 1.15 GB/s a thread here. Figures:
// docs/explanation/decisions/0009-formats-by-hand.md.
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
