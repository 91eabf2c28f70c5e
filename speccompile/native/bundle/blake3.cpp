#include "blake3.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "../byte_order.h"

namespace spc {
namespace {

constexpr size_t kBlock = 64, kChunk = 1024;
constexpr int kWords = 8;  // of a chaining value

constexpr uint32_t kChunkStart = 1, kChunkEnd = 2, kParent = 4, kRoot = 8;
constexpr uint32_t kStart[kWords] = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                                     0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
// The words of a block in the order in which each round takes them.
constexpr uint8_t kOrder[7][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8},
    {3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1}, {10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6},
    {12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4}, {9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7},
    {11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13}};

// Compiled once for each kind of vectors, into the functions that name their processors.
#define SPC_ALWAYS_INLINE inline __attribute__((always_inline))

// Equal inputs side by side: input i begins `stride` bytes behind the one before it, and is `blocks` whole blocks.
struct Inputs {
  const uint8_t* data;
  size_t stride, blocks;
  uint64_t counter;  // of the first; of the others one more each, where `counts`
  bool counts;
  uint32_t flags, first_flag, last_flag;  // of all blocks, and of the first and the last beside
};

// A word of every input: what vector instructions compute on. (An alias of the vector itself would lose its attribute.)
template <int L>
struct Lanes {
  typedef uint32_t Words __attribute__((vector_size(4 * L)));
  typedef uint8_t Bytes __attribute__((vector_size(4 * L)));
};
template <int L>
using Words = typename Lanes<L>::Words;

// Take elements of two vectors by their places; those of the second follow those of the first.
template <size_t... At, class V>
SPC_ALWAYS_INLINE void select(const V& first, const V& second, V& found) {
#if defined(__clang__)
  found = __builtin_shufflevector(first, second, At...);
#else
  found = __builtin_shuffle(first, second, V{At...});
#endif
}

template <int L, int By, size_t... Byte>
SPC_ALWAYS_INLINE void turn_bytes(Words<L>& value, std::index_sequence<Byte...>) {
  typename Lanes<L>::Bytes bytes = reinterpret_cast<typename Lanes<L>::Bytes>(value);
  select<(Byte / 4 * 4 + (Byte + By / 8) % 4)...>(bytes, bytes, bytes);
  value = reinterpret_cast<Words<L>>(bytes);
}

template <int L, int By>
SPC_ALWAYS_INLINE void turn(Words<L>& value) {
  if constexpr (L == 8 && By % 8 == 0)  // one instruction of AVX2, which has no turns
    turn_bytes<L, By>(value, std::make_index_sequence<4 * L>());
  else
    value = value >> By | value << (32 - By);
}

template <int L, int First, int Second>
SPC_ALWAYS_INLINE void mix_half(Words<L>& a, Words<L>& b, Words<L>& c, Words<L>& d, const Words<L>& word) {
  a += b + word;
  d ^= a;
  turn<L, First>(d);
  c += d;
  b ^= c;
  turn<L, Second>(b);
}

template <int L>
SPC_ALWAYS_INLINE void mix(Words<L>& a, Words<L>& b, Words<L>& c, Words<L>& d, const Words<L>& x, const Words<L>& y) {
  mix_half<L, 16, 12>(a, b, c, d, x);
  mix_half<L, 8, 7>(a, b, c, d, y);
}

// Make rows of the columns in every four lanes: processors swap words across more of them slowly.
template <int L, size_t... Word>
SPC_ALWAYS_INLINE void transpose(Words<L>* rows, std::index_sequence<Word...>) {
  for (int step = 0; step < 2; ++step) {
    Words<L> turned[4];
    for (int i = 0; i < 2; ++i) {
      select<(Word / 4 * 4 + Word % 4 / 2 + Word % 2 * L)...>(rows[i], rows[i + 2], turned[2 * i]);
      select<(Word / 4 * 4 + 2 + Word % 4 / 2 + Word % 2 * L)...>(rows[i], rows[i + 2], turned[2 * i + 1]);
    }
    std::copy_n(turned, 4, rows);
  }
}

// Read the words of a block of every input.
template <int L>
SPC_ALWAYS_INLINE void read_words(const uint8_t* data, size_t stride, Words<L> (&words)[16]) {
  if constexpr (L == 1) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), kBlock);
    for (size_t i = 0; i < 16; ++i) words[i] = Words<1>{little_endian_32(bytes, 4 * i)};
  } else {
    for (size_t i = 0; i < 16; i += 4) {
      for (size_t row = 0; row < 4; ++row)
        for (size_t four = 0; four < L; four += 4)
          std::memcpy(reinterpret_cast<uint8_t*>(&words[i + row]) + 4 * four, data + (four + row) * stride + 4 * i, 16);
      transpose<L>(&words[i], std::make_index_sequence<L>());
    }
  }
}

// One block of L inputs into their chaining values.
template <int L>
SPC_ALWAYS_INLINE void compress(Words<L> (&value)[kWords], const Words<L> (&words)[16], const Words<L> (&counter)[2],
                                uint32_t size, uint32_t flags) {
  const Words<L> zero{};
  Words<L> v[16] = {value[0], value[1], value[2], value[3], value[4], value[5], value[6], value[7],
                    zero + kStart[0], zero + kStart[1], zero + kStart[2], zero + kStart[3], counter[0], counter[1], zero + size, zero + flags};
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 7
#endif
  for (const auto& m : kOrder) {
    mix<L>(v[0], v[4], v[8], v[12], words[m[0]], words[m[1]]);
    mix<L>(v[1], v[5], v[9], v[13], words[m[2]], words[m[3]]);
    mix<L>(v[2], v[6], v[10], v[14], words[m[4]], words[m[5]]);
    mix<L>(v[3], v[7], v[11], v[15], words[m[6]], words[m[7]]);
    mix<L>(v[0], v[5], v[10], v[15], words[m[8]], words[m[9]]);
    mix<L>(v[1], v[6], v[11], v[12], words[m[10]], words[m[11]]);
    mix<L>(v[2], v[7], v[8], v[13], words[m[12]], words[m[13]]);
    mix<L>(v[3], v[4], v[9], v[14], words[m[14]], words[m[15]]);
  }
  for (int i = 0; i < kWords; ++i) value[i] = v[i] ^ v[i + 8];
}

// Chaining values of L inputs, one behind the other.
template <int L>
SPC_ALWAYS_INLINE void hash_lanes(const Inputs& inputs, uint32_t* values) {
  Words<L> value[kWords], words[16], counter[2];
  for (int i = 0; i < kWords; ++i) value[i] = Words<L>{} + kStart[i];
  for (int l = 0; l < L; ++l) {
    const uint64_t count = inputs.counter + (inputs.counts ? static_cast<uint64_t>(l) : 0);
    counter[0][l] = static_cast<uint32_t>(count);
    counter[1][l] = static_cast<uint32_t>(count >> 32);
  }
  for (size_t block = 0; block < inputs.blocks; ++block) {
    const uint8_t* data = inputs.data + block * kBlock;
    read_words<L>(data, inputs.stride, words);
    const uint32_t first = block == 0 ? inputs.first_flag : 0, last = block + 1 == inputs.blocks ? inputs.last_flag : 0;
    compress<L>(value, words, counter, kBlock, inputs.flags | first | last);
  }
  for (int l = 0; l < L; ++l)
    for (int i = 0; i < kWords; ++i) values[l * kWords + i] = value[i][l];
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vl"))) void hash_16(const Inputs& inputs, uint32_t* values) { hash_lanes<16>(inputs, values); }
__attribute__((target("avx2"))) void hash_8(const Inputs& inputs, uint32_t* values) { hash_lanes<8>(inputs, values); }
#endif
void hash_4(const Inputs& inputs, uint32_t* values) { hash_lanes<4>(inputs, values); }
void hash_1(const Inputs& inputs, uint32_t* values) { hash_lanes<1>(inputs, values); }

struct Path {
  size_t lanes;
  void (*hash)(const Inputs&, uint32_t*);
};

// The widest first.
const std::vector<Path>& paths() {
  static const std::vector<Path> found = [] {
    std::vector<Path> all;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) all.push_back({16, hash_16});
    if (__builtin_cpu_supports("avx2")) all.push_back({8, hash_8});
#endif
    all.push_back({4, hash_4});
    all.push_back({1, hash_1});
    return all;
  }();
  return found;
}

// Compute the chaining values of several inputs. They may overwrite the inputs.
void hash_many(Inputs inputs, size_t count, uint32_t* values) {
  for (const Path& path : paths()) {
    for (; count >= path.lanes; count -= path.lanes) {
      path.hash(inputs, values);
      inputs.data += path.lanes * inputs.stride;
      inputs.counter += inputs.counts ? path.lanes : 0;
      values += path.lanes * kWords;
    }
  }
}

// A chunk of any size, the empty one as well.
void hash_chunk(std::string_view data, uint64_t counter, uint32_t root, uint32_t* values) {
  Words<1> value[kWords], words[16];
  const Words<1> count[2] = {{static_cast<uint32_t>(counter)}, {static_cast<uint32_t>(counter >> 32)}};
  for (int i = 0; i < kWords; ++i) value[i][0] = kStart[i];
  uint32_t flags = kChunkStart;
  do {
    uint8_t block[kBlock] = {};
    const size_t size = std::min(data.size(), kBlock);
    if (size) std::memcpy(block, data.data(), size);
    data.remove_prefix(size);
    read_words<1>(block, 0, words);
    compress<1>(value, words, count, static_cast<uint32_t>(size), flags | (data.empty() ? kChunkEnd | root : 0));
    flags = 0;
  } while (!data.empty());
  for (int i = 0; i < kWords; ++i) values[i] = value[i][0];
}

void store_words(const uint32_t* words, size_t count, uint8_t* bytes) {
  for (size_t i = 0; i < count; ++i)
    for (int shift = 0; shift < 32; shift += 8) *bytes++ = static_cast<uint8_t>(words[i] >> shift);
}

// The nodes of a tree above so many, one level: each is the parent of two, and a last one without a neighbour stays.
size_t hash_level(std::vector<uint32_t>& values, size_t count) {
  const size_t pairs = count / 2;
  std::vector<uint8_t> blocks(pairs * kBlock);
  store_words(values.data(), pairs * 2 * kWords, blocks.data());
  hash_many({blocks.data(), kBlock, 1, 0, false, kParent, 0, 0}, pairs, values.data());
  if (count % 2) std::copy_n(&values[(count - 1) * kWords], kWords, &values[pairs * kWords]);
  return pairs + count % 2;
}

// Chaining values of all chunks, the first of which has this number.
std::vector<uint32_t> hash_chunks(std::string_view data, uint64_t counter) {
  const size_t whole = data.size() / kChunk;
  std::vector<uint32_t> values((whole + 1) * kWords);
  const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
  hash_many({bytes, kChunk, kChunk / kBlock, counter, true, 0, kChunkStart, kChunkEnd}, whole, values.data());
  if (data.size() % kChunk)
    hash_chunk(data.substr(whole * kChunk), counter + whole, 0, &values[whole * kWords]);
  else
    values.resize(whole * kWords);
  return values;
}

// Chaining values of all pieces, made by several threads.
std::vector<uint32_t> hash_pieces(std::string_view data, int threads, const std::function<void(size_t)>& reached) {
  const size_t pieces = (data.size() + kPiece - 1) / kPiece;
  std::vector<uint32_t> values(pieces * kWords);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t piece = next++; piece < pieces; piece = next++) {
      if (reached) reached(piece * kPiece);
      std::vector<uint32_t> nodes = hash_chunks(data.substr(piece * kPiece, kPiece), piece * (kPiece / kChunk));
      for (size_t count = nodes.size() / kWords; count > 1;) count = hash_level(nodes, count);
      std::copy_n(nodes.data(), kWords, &values[piece * kWords]);
    }
  };
  std::vector<std::thread> others;
  try {
    for (size_t i = 1; i < std::min(pieces, static_cast<size_t>(std::max(threads, 1))); ++i) others.emplace_back(work);
  } catch (const std::system_error&) {  // the system has no more threads: those that there are do it
  }
  work();
  for (std::thread& each : others) each.join();
  return values;
}

}  // namespace

Digest blake3(std::string_view data, int threads, const std::function<void(size_t)>& reached) {
  Digest digest;
  uint32_t root[kWords];
  if (data.size() <= kChunk) {
    hash_chunk(data, 0, kRoot, root);
  } else {
    std::vector<uint32_t> nodes = data.size() <= kPiece ? hash_chunks(data, 0) : hash_pieces(data, threads, reached);
    for (size_t count = nodes.size() / kWords; count > 2;) count = hash_level(nodes, count);
    uint8_t block[kBlock];
    store_words(nodes.data(), 2 * kWords, block);
    hash_many({block, kBlock, 1, 0, false, kParent | kRoot, 0, 0}, 1, root);
  }
  store_words(root, kWords, digest.data());
  return digest;
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace spc
