#include "sha256.h"

#include <cstdint>
#include <cstring>

#include "blake3.h"

namespace spc {
namespace {

constexpr size_t kBlock = 64;
// The first bits behind the point of the cube roots of the first 64 primes.
constexpr uint32_t kRoots[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t turned(uint32_t value, int by) { return value >> by | value << (32 - by); }

void take_block(const uint8_t* block, uint32_t (&state)[8]) {
  uint32_t words[64];
  for (int i = 0; i < 16; ++i) {
    words[i] = 0;
    for (int byte = 0; byte < 4; ++byte) words[i] = words[i] << 8 | block[4 * i + byte];
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t x = words[i - 15], y = words[i - 2];
    const uint32_t low = turned(x, 7) ^ turned(x, 18) ^ x >> 3, high = turned(y, 17) ^ turned(y, 19) ^ y >> 10;
    words[i] = words[i - 16] + low + words[i - 7] + high;
  }
  uint32_t v[8];
  std::memcpy(v, state, sizeof v);
  for (int i = 0; i < 64; ++i) {
    const uint32_t a = v[0], b = v[1], c = v[2], e = v[4];
    const uint32_t chosen = (e & v[5]) ^ (~e & v[6]), majority = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t first = v[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + chosen + kRoots[i] + words[i];
    const uint32_t second = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + majority;
    std::memmove(v + 1, v, 7 * sizeof *v);
    v[4] += first;
    v[0] = first + second;
  }
  for (int i = 0; i < 8; ++i) state[i] += v[i];
}

}  // namespace

std::string sha256(std::string_view data) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
  const size_t whole = data.size() / kBlock * kBlock, left = data.size() - whole;
  for (size_t at = 0; at < whole; at += kBlock) take_block(bytes + at, state);
  // the rest, a bit that is set, and at the end of a block how many bits there were
  uint8_t end[2 * kBlock] = {};
  if (left) std::memcpy(end, bytes + whole, left);
  end[left] = 0x80;
  const size_t size = left + 9 <= kBlock ? kBlock : 2 * kBlock;
  const uint64_t bits = uint64_t{data.size()} * 8;
  for (size_t i = 0; i < 8; ++i) end[size - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  for (size_t at = 0; at < size; at += kBlock) take_block(end + at, state);
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return hex(digest);
}

}  // namespace spc
