#include "random.h"

#include <cstring>

#include "../entropy.h"

namespace spc {
namespace {

// The two halves of a product of 64 bits each.
struct Product {
  uint64_t high, low;
  Product(uint64_t one, uint64_t other) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(one) * other;
    high = static_cast<uint64_t>(product >> 64);
    low = static_cast<uint64_t>(product);
  }
};

void block(const uint64_t counter[4], const uint64_t key[2], uint64_t to[4]) {
  uint64_t c[4], k0 = key[0], k1 = key[1];
  std::memcpy(c, counter, sizeof c);
  for (int round = 0; round < 10; ++round) {
    const Product p0(0xD2E7470EE14C6C93u, c[0]), p1(0xCA5A826395121157u, c[2]);
    c[0] = p1.high ^ c[1] ^ k0;
    c[1] = p1.low;
    c[2] = p0.high ^ c[3] ^ k1;
    c[3] = p0.low;
    k0 += 0x9E3779B97F4A7C15u;
    k1 += 0xBB67AE8584CAA73Bu;
  }
  std::memcpy(to, c, sizeof c);
}

}  // namespace

uint64_t Uniforms::raw() {
  if (at_ == 4) {
    for (uint64_t& word : counter_)  // counted up first, as numpy does
      if (++word) break;
    block(counter_, key_, block_);
    at_ = 0;
  }
  return block_[at_++];
}

uint64_t fresh_seed() {
  const uint64_t high = random_bits();
  return ((high << 32) | random_bits()) >> 11;
}

}  // namespace spc
