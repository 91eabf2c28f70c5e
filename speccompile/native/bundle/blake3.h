// BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020) without a key, 32 bytes.
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

// Bytes of a large input that one thread hashes at a time. A power of two: every piece but the last is a whole subtree.
constexpr size_t kPiece = size_t{256} << 10;

// Return the hash. threads: of which each hashes the next piece of a large input. reached: called with the start of each piece, by
// the thread that hashes it; it must not throw.
Digest blake3(std::string_view data, int threads = 1, const std::function<void(size_t)>& reached = nullptr);
// Return a hash in hexadecimal digits.
std::string hex(const Digest& digest);

}  // namespace spc
