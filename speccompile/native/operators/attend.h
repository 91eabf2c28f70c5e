// Attention and what leads to it: the rows of heads, and the tables by which they are turned.
#pragma once

#include "operator.h"

namespace speccompile {

// (query [B, T, N * D], key_rows [B, G, R, D], value_rows [B, G, R, E], key_cache [B, G, S, D], value_cache [B, G, S, E],
// length [B], positions [B, T], bias [B, 1, T, R]) -> context [B, T, N * E]. ring: position p stands in row p mod S.
struct Attend {
  static constexpr const char* kName = "Attend";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kInt64, ort::kInt64, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit Attend(const Info& info);
  void compute(Context& context) const { attend(context, false, false); }
  void attend(Context& context, bool is_latent, bool has_sinks) const;
  float scale, softcap;
  int64_t window;
  bool is_ring;
};

// The same with sinks [N], a score more a head, which belongs to no row.
struct AttendSinks : Attend {
  static constexpr const char* kName = "AttendSinks";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kInt64, ort::kInt64, ort::kFloat, ort::kFloat};
  using Attend::Attend;
  void compute(Context& context) const { attend(context, false, true); }
};

// Attend with query [B, T, N * (D + E)]: a key is a row of keys and the row of values behind it, its value the row of keys.
// -> context [B, T, N * D]
struct AttendLatent : Attend {
  static constexpr const char* kName = "AttendLatent";
  using Attend::Attend;
  void compute(Context& context) const { attend(context, true, false); }
};

struct AttendLatentSinks : AttendSinks {
  static constexpr const char* kName = "AttendLatentSinks";
  using AttendSinks::AttendSinks;
  void compute(Context& context) const { attend(context, true, true); }
};

// Attend over codes with a scale a row and head, in-step rows as well: (query, key_rows int8 [B, G, R, D], their scales
// [B, G, R, 1], value_rows int8 [B, G, R, E], their scales, key_cache int8 [B, G, S, D], its scales [B, G, S, 1], value_cache int8
// [B, G, S, E], its scales, length, positions, bias) -> context [B, T, N * E]
struct AttendInt8 : Attend {
  static constexpr const char* kName = "AttendInt8";
  static constexpr std::array kInputs{ort::kFloat, ort::kInt8, ort::kFloat, ort::kInt8,  ort::kFloat, ort::kInt8,
                                      ort::kFloat, ort::kInt8, ort::kFloat, ort::kInt64, ort::kInt64, ort::kFloat};
  using Attend::Attend;
  void compute(Context& context) const { attend_codes(context, false); }
  void attend_codes(Context& context, bool has_sinks, bool has_nibbles = false) const;
};

struct AttendInt8Sinks : AttendInt8 {
  static constexpr const char* kName = "AttendInt8Sinks";
  static constexpr std::array kInputs{ort::kFloat, ort::kInt8,  ort::kFloat, ort::kInt8,  ort::kFloat, ort::kInt8, ort::kFloat,
                                      ort::kInt8,  ort::kFloat, ort::kInt64, ort::kInt64, ort::kFloat, ort::kFloat};
  using AttendInt8::AttendInt8;
  void compute(Context& context) const { attend_codes(context, true); }
};

// The same over values in four bits: value rows and cache [B, G, *, E / 2], two columns a byte, and [B, G, *, 2], a scale and the
// least of each row.
struct AttendInt8Int4 : AttendInt8 {
  static constexpr const char* kName = "AttendInt8Int4";
  using AttendInt8::AttendInt8;
  void compute(Context& context) const { attend_codes(context, false, true); }
};

struct AttendInt8Int4Sinks : AttendInt8Sinks {
  static constexpr const char* kName = "AttendInt8Int4Sinks";
  using AttendInt8Sinks::AttendInt8Sinks;
  void compute(Context& context) const { attend_codes(context, true, true); }
};

// rows [B, G, R, D] -> codes int8 [B, G, R, D / 2], scales [B, G, R, 2]
struct EncodeInt4 {
  static constexpr const char* kName = "EncodeInt4";
  static constexpr std::array kInputs{ort::kFloat};
  static constexpr std::array kOutputs{ort::kInt8, ort::kFloat};
  explicit EncodeInt4(const Info&) {}
  void compute(Context& context) const;
};

// (codes int8 [B, G, R, D / 2], scales [B, G, R, 2]) -> rows [B, G, R, D]
struct DecodeInt4 {
  static constexpr const char* kName = "DecodeInt4";
  static constexpr std::array kInputs{ort::kInt8, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit DecodeInt4(const Info&) {}
  void compute(Context& context) const;
};

// rows [B, G, R, D] -> codes int8 [B, G, R, D], scales [B, G, R, 1]
struct EncodeInt8 {
  static constexpr const char* kName = "EncodeInt8";
  static constexpr std::array kInputs{ort::kFloat};
  static constexpr std::array kOutputs{ort::kInt8, ort::kFloat};
  explicit EncodeInt8(const Info&) {}
  void compute(Context& context) const;
};

// (codes int8 [B, G, R, D], scales [B, G, R, 1]) -> rows [B, G, R, D]
struct DecodeInt8 {
  static constexpr const char* kName = "DecodeInt8";
  static constexpr std::array kInputs{ort::kInt8, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit DecodeInt8(const Info&) {}
  void compute(Context& context) const;
};

// Numbers and positions of the columns of queries, keys and values in the tensors that hold them.
struct HeadColumns {
  explicit HeadColumns(const Info& info);
  int64_t heads, groups, key_width, value_width, query_offset, key_offset, value_offset;
};

// (query, key, value [B, T, *]) -> queries [B, T, N * D], keys [B, G, T, D], values [B, G, T, E]
struct SplitHeads {
  static constexpr const char* kName = "SplitHeads";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat, ort::kFloat, ort::kFloat};
  explicit SplitHeads(const Info& info) : columns(info) {}
  void compute(Context& context) const;
  HeadColumns columns;
};

// The same with cosines and sines [B, T, turned / 2]: queries and keys are turned.
struct RotaryHeads {
  static constexpr const char* kName = "RotaryHeads";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat, ort::kFloat, ort::kFloat};
  explicit RotaryHeads(const Info& info);
  void compute(Context& context) const;
  HeadColumns columns;
  int64_t turned;
  bool interleaved;
};

// The same with weights [D], by which queries and keys are normalized first.
struct NormRotaryHeads {
  static constexpr const char* kName = "NormRotaryHeads";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat, ort::kFloat, ort::kFloat};
  explicit NormRotaryHeads(const Info& info);
  void compute(Context& context) const;
  RotaryHeads rotary;
  float epsilon;
};

// (rows [B, G, R, D], others [B, G, S, D]) -> rows, then others [B, G, R + S, D]
struct JoinRows {
  static constexpr const char* kName = "JoinRows";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit JoinRows(const Info&) {}
  void compute(Context& context) const;
};

// (positions [B, T], frequencies [turned / 2]) -> cosines and sines [B, T, turned / 2] of their products, times a scale
struct RotaryTables {
  static constexpr const char* kName = "RotaryTables";
  static constexpr std::array kInputs{ort::kInt64, ort::kFloat};
  static constexpr std::array kOutputs{ort::kFloat, ort::kFloat};
  explicit RotaryTables(const Info& info) : scale(info.number("scale")) {}
  void compute(Context& context) const;
  float scale;
};

}  // namespace speccompile
