// Random numbers of the host: streams of uniforms, each by seed, sequence number and purpose (runtime/rounds/random.py).
#pragma once

#include <cstdint>

#include "../contract_table.h"

namespace spc {

// One stream: Philox 4x64 with ten rounds (Salmon et al. 2011), as numpy.random.Philox(key=[seed, 3 * sequence + purpose]).
class Uniforms {
 public:
  Uniforms(uint64_t seed, uint64_t sequence, Purpose purpose)
      : key_{seed, sequence * kPurposes + static_cast<uint64_t>(purpose)} {}

  // Return the next number in [0, 1), a multiple of 2**-24.
  float draw() { return static_cast<float>(raw() >> 40) * 0x1p-24f; }
  uint64_t raw();

 private:
  const uint64_t key_[2];
  uint64_t counter_[4] = {}, block_[4] = {};
  int at_ = 4;
};

// Return a seed of 53 bits from the system, which programs that read JSON numbers as doubles preserve.
uint64_t fresh_seed();

}  // namespace spc
