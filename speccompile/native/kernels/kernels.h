// Kernels of a code path. Each works on a range of rows, tiles of columns, units of attention, or heads: threads share them.
//
// A number is computed by the same operations in the same order whatever the path, the range, the other rows and the number
// of threads, so that its bits are the same.
#pragma once

#include <cstdint>

namespace speccompile {

constexpr int64_t kTile = 16;  // columns that lie side by side in a weight; the last tile is filled up

constexpr int64_t kTilesTogether = 4;  // of a weight: they stay in the processor's cache while many rows of x are multiplied

constexpr float kHidden = -1e30f;  // score of a row that a token must not see: step/ops.py, HIDDEN

static inline int64_t tiles(int64_t columns) { return (columns + kTile - 1) / kTile; }

// Rows in eight bits: numbers [rows, depth]; scales and sums, of a block's numbers, [depth / block, rows]. Rows that hold
// an infinity or a NaN have the scale NaN in every block.
struct QuantizedRows {
  int64_t rows, depth, block;  // depth is filled up with zeros to a multiple of block, rows of more than 8 to one of 16
  int8_t* numbers;
  float* scales;
  float* sums;  // integers
};

// y [rows, columns] = product + bias, bias [columns] or null.
struct Output {
  float* y;
  int64_t rows, columns;
  const float* bias;
};

// weight [tiles, depth, 16], float32 or bfloat16; panels: x as `pack` wrote it, a single row as it is.
struct FloatProduct {
  const float* panels;
  const void* weight;
  int64_t depth;
  Output out;
};

// numbers [tiles, depth / 4, 16, 4], 128 for zero, depth a multiple of 64; scales [columns, filled up to tiles].
struct Int8Product {
  QuantizedRows x;  // one block a row
  const uint8_t* numbers;
  const float* scales;
  Output out;
};

// numbers [tiles, depth / 8, 16, 4], of eight numbers of a column the first four in the low halves of bytes, the others in
// the high ones; scales (float16) and zero_points [tiles, depth / block, 16]; factors [columns, filled up to tiles].
struct Int4Product {
  QuantizedRows x;
  const uint8_t* numbers;
  const uint16_t* scales;
  const uint8_t* zero_points;
  const float* factors;
  Output out;
};

// Numbers of the types of GGUF, as they are: a code q of a column stands for (q - zero_point) * scale + offset. numbers: of codes
// in eight bits as in Int8Product, with the zero point 128, of those in four as in Int4Product; scales, and offsets or null,
// [tiles, depth / block, 16]; a block is 16 or 32 codes.
struct BlockProduct {
  QuantizedRows x;
  const uint8_t* numbers;
  const float *scales, *offsets;
  float zero_point;  // of four bits
  Output out;
};

// Rows and caches of quantized attention: int8 codes, with a scale for each row of a group of heads.
struct Codes {
  const int8_t *key_rows, *value_rows, *key_cache, *value_cache;
  const float *key_row_scales, *value_row_scales, *key_scales, *value_scales;  // [B, G, R], [B, G, S]; of Nibbles two a row
  bool has_nibbles;                                                            // of values
};

// Two values of a row in four bits, the first in the low ones; the sign bit is turned. A value is code * scale + least: a row of
// scales holds both.
struct Nibbles {
  uint8_t pair;
};

// Attention over [committed rows | in-step rows]: step/ops.py, attend. query [B, T, N, D], key_rows [B, G, R, D],
// value_rows [B, G, R, E], key_cache [B, G, S, D], value_cache [B, G, S, E], length [B], positions [B, T], bias
// [B, 1, T, R], context [B, T, N, E]; sinks [N]: scores that join the softmax and belong to no row, or null. Latent (MLA): a
// key is the two rows one behind the other, its value the first of them; query [B, T, N, D + E], context [B, T, N, D].
// A unit is a few tokens of a row of the batch, of one group of query heads.
struct Attention {
  const float *query, *key_rows, *value_rows, *key_cache, *value_cache, *bias;
  const int64_t *length, *positions;
  float* context;
  int64_t batch, tokens, heads, groups, rows, capacity, key_width, value_width;
  float scale, softcap;
  int64_t window;  // 0: none
  const float* sinks;
  bool is_latent;
  bool is_ring;  // position p stands in row p mod S of the caches; no more than S positions are seen
  const Codes* codes;  // or null; no rows and caches of floats, and nothing latent, where it is given
};

// Rows [rows, width] as codes [rows, width] and scales [rows]: step/ops.py, quantize. Nibbles: [rows, width / 2], [rows, 2].
struct Encoding {
  const float* x;
  int8_t* codes;
  float* scales;
  int64_t width;
};

// Rows [rows, width], each normalized; their sum with `residual` first, where there is one. RMS: y = x / rms(x) * weight;
// mean: y = (x - mean) / deviation * weight + bias.
struct Normalization {
  const float *x, *residual, *weight, *bias;  // residual, bias: or null
  float *y, *sum;                             // sum: of x and residual, or null
  int64_t width;
  float epsilon;
  bool subtracts_mean;
};

constexpr int64_t kTokensTogether = 64;  // at most

static inline int64_t attention_query_width(const Attention& a) { return a.key_width + (a.is_latent ? a.value_width : 0); }

// Return the number of tokens in a unit, whose queries read each row together. It is smaller where more query heads share a row. It is
// larger for a prompt: there are units enough for all threads, and more tokens share the cost of reading a row.
static inline int64_t attention_tokens(const Attention& a) {
  const int64_t shared = a.heads / a.groups;
  const int64_t most = a.tokens < kTokensTogether ? kTokensTogether / 2 : kTokensTogether;
  return shared > 4 ? most / 4 : most / shared;
}

static inline int64_t attention_units(const Attention& a) {
  return a.batch * a.groups * ((a.tokens + attention_tokens(a) - 1) / attention_tokens(a));
}

enum class Activation : int64_t { kSilu = 0, kGeluTanh = 1 };

// y [rows, width] = activation(gate) * up; gate and up are columns of rows with `stride` numbers.
struct Gated {
  const float *gate, *up;
  float* y;
  int64_t gate_stride, up_stride, width;
  Activation activation;
};

// Columns of projections as rows of heads. Of query, key and value [B, T, *_stride]: query heads into [B, T, N, D], key and
// value heads into [B, G, T, D] and [B, G, T, E]. Queries and keys are normalized first (weights [D], or null), then their
// first `turned` columns are turned by the angles whose cosines and sines [B, T, turned / 2] are given.
struct Heads {
  const float *query, *key, *value, *cosines, *sines, *query_weight, *key_weight;
  float *queries, *keys, *values;
  int64_t batch, tokens, heads, groups, key_width, value_width, turned;
  int64_t query_stride, key_stride, value_stride;
  float epsilon;
  bool interleaved;  // neighbouring columns are pairs, not columns of both halves
};

// A causal convolution. y [B, T, C] = the sum over `depth` rows, the row's own the last, of row times weight
// [depth, C], the oldest first, and bias [C]; state [B, depth - 1, C] stands before rows [B, T, C].
struct Convolution {
  const float *rows, *state, *weight, *bias;
  float* y;
  int64_t batch, tokens, channels, depth;
  bool is_silu;  // y is silu of that sum
};

// A linear recurrence: step/ops.py, recur and advance. key [B, G, T, K], value [B, H, T, V], decay [B, H, T, 1 or K], beta
// [B, H, T, 1] or null, state [B, H, K, V], length [B]. Either what it gives at every token: query [B, G, T, K], context
// [B, H, T, V]; or the state after the first `count` [B] tokens: updated [B, H, K, V], which may be `state`. A unit is a head
// of a row of the batch.
struct Recurrence {
  const float *query, *key, *value, *decay, *beta, *state;
  const int64_t *length, *count;  // count: null where every token is taken
  float *context, *updated;       // one of them, or null
  int64_t batch, tokens, heads, groups, key_width, value_width, decay_width;
};

struct Kernels {
  const char* name;
  void (*pack)(const float* x, int64_t rows, int64_t depth, float* panels);  // [rows, depth] numbers
  void (*quantize)(const float* x, int64_t depth, const QuantizedRows& out, int64_t first, int64_t last);  // rows
  void (*product_float32)(const FloatProduct&, int64_t first, int64_t last);                               // tiles
  void (*product_bfloat16)(const FloatProduct&, int64_t first, int64_t last);
  bool (*product_int8)(const Int8Product&, int64_t first, int64_t last);  // false: out of memory
  bool (*product_int4)(const Int4Product&, int64_t first, int64_t last);
  void (*product_blocks4)(const BlockProduct&, int64_t first, int64_t last);
  void (*product_blocks8)(const BlockProduct&, int64_t first, int64_t last);
  bool (*attend)(const Attention&, int64_t first, int64_t last);           // units; false: out of memory
  void (*encode)(const Encoding&, int64_t first, int64_t last);            // rows
  void (*encode_nibbles)(const Encoding&, int64_t first, int64_t last);    // rows
  void (*normalize)(const Normalization&, int64_t first, int64_t last);    // rows
  void (*gate)(const Gated&, int64_t first, int64_t last);                 // rows
  void (*make_heads)(const Heads&, int64_t first, int64_t last);           // tokens of the batch
  void (*softplus)(const float* x, int64_t count, float* y);               // log(1 + e^x) of all numbers
  void (*convolve)(const Convolution&, int64_t first, int64_t last);       // tokens of the batch
  bool (*recur)(const Recurrence&, int64_t first, int64_t last);           // heads of the batch; false: out of memory
};

}  // namespace speccompile
