// Numbers by numbers: one block of memory, which is faster than std::unordered_map where encoding looks most.
#pragma once

#include <cstdint>
#include <vector>

namespace spc {

// Return the key of the edge that leads from a trie's node to the child behind a byte.
inline uint64_t trie_edge(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<unsigned char>(byte); }

// No key may be all ones.
template <class Value>
class FlatMap {
 public:
  // For up to `entries`.
  explicit FlatMap(size_t entries = 0) {
    size_t size = 16;
    while (size < 2 * entries) size *= 2;
    slots_.resize(size);
  }

  const Value* find(uint64_t key) const {
    for (size_t at = place(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return &slots_[at].value;
      if (slots_[at].key == kFree) return nullptr;
    }
  }

  // The last value of a key counts.
  void set(uint64_t key, Value value) {
    size_t at = place(key);
    while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {key, value};
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Value value{};
  };

  size_t place(uint64_t key) const {
    key = (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
    return (key ^ key >> 29) & (slots_.size() - 1);
  }

  std::vector<Slot> slots_;
};

}  // namespace spc
