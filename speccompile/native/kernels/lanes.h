// Vectors of kWidth columns, in which the kernels are written. Every operation rounds as IEEE 754 says.
//
// A path (scalar, AVX2, AVX-VNNI, AVX-512, NEON) defines, in a namespace of its own:
//
//   Vector          kWidth floats: zero, broadcast, load, load_some (zeros behind the first `count`), store, store_some,
//                   add, subtract, multiply, divide, round (to even), power_of_two (of an integer, -126 to 127) or scaled (a times 2^b,
//                   which functions.h makes of it),
//                   fma (a * b + c, rounded once), fma_less (c - a * b, rounded once),
//                   largest, smallest (b where either is no number), choose_less (a, b, then, otherwise),
//                   from_bfloat16, from_float16, from_bytes (unsigned), from_codes (signed), load_pairs (kWidth times two floats: the
//                   first ones, and the second ones)
//   spread_nibbles  32 floats of 16 bytes, the low four bits first, the sign bit turned
//   Integers        kWidth of 32 bits: to_floats, add, largest, sum_of, largest_of (over all lanes)
//   magnitudes      the bits of floats without their signs: ordered as the numbers are, NaN last
//   store_int8      floats from -127 to 127 as bytes, rounded to even; returns the integers
//   fold            lane i is the sum of the kWidth lanes of the i-th of kWidth vectors: the halves are added, then the
//                   quarters of that, and so on
//   turn            of kWidth vectors lane j of the i-th becomes lane i of the j-th
//   Bytes           4 * kWidth bytes, four a column: load_bytes, low_nibbles, high_nibbles
//   Sixteen         bytes of a row of x: load_sixteen; kLoadsSixteen says whether they are in a register
//   ByteSum         the sum of x * (w - 128), x signed and w unsigned bytes, exact: start (with the sum of x), add_four (one of the
//                   four fours of Sixteen, and the four of each column), flush (after every 32), finish
//   NibbleSum       the same of x * w, w from 0 to 15
//   fetch_ahead     of a place in a weight that is read from its beginning to its end, what lies so many bytes, and four
//                   times as many, behind it, or as far behind it as the path says
//
// The width of a vector decides only speed. In products a lane is a column, whose sum is made in the order of its
// rows. What is summed over lanes has sixteen of them on every path: `Lanes`, in sums.h.
//
// Every function is inlined and static: a copy that was compiled for one processor must not serve another.
#pragma once

#if !defined(SPECCOMPILE_PATH) || !defined(SPECCOMPILE_LANES)
#error "path_NAME.cpp says which path is compiled, and includes its lanes"
#endif

// Bytes that are fetched ahead of a single place that is read. Where several are read side by side the processor itself looks
// ahead in each, and less of it is of use.
constexpr int kAhead = 2048;
constexpr int ahead(int places) { return places == 1 ? kAhead : kAhead / 2 / places; }

#define SPC_INLINE static inline __attribute__((always_inline, unused))
// For loops over sums that are to stay in registers: clang leaves them in memory where it does not unroll all of it, GCC those of
// twelve rows. Of fewer it unrolls by itself, and told to do so would make the scalar path's products of integers half as fast.
#if defined(__clang__) || defined(__AVX512F__) || defined(SPC_UNROLLS)
#define SPC_UNROLL _Pragma("GCC unroll 12")
#else
#define SPC_UNROLL
#endif
// For loops over all lanes, whose vectors are to stay in registers.
#define SPC_SQUARE _Pragma("GCC unroll 16")
