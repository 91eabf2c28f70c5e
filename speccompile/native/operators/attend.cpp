#include "attend.h"

#include <algorithm>
#include <string>

#include "../kernels/angles.h"
#include "../kernels/choose.h"

namespace speccompile {
namespace {

constexpr int64_t kTokensApart = 4;  // of which a thread makes the heads

constexpr int64_t kRowsApart = 64;  // that a thread encodes

// Fill in the places that are read and written, and make the rows of heads.
void make_heads(Context& context, const HeadColumns& columns, Heads h) {
  const Tensor query = context.input(0), key = context.input(1), value = context.input(2);
  const Shape& shape = query.shape(3, "the query");
  h.batch = shape[0], h.tokens = shape[1];
  h.heads = columns.heads, h.groups = columns.groups, h.key_width = columns.key_width, h.value_width = columns.value_width;
  const auto place = [&](const Tensor& tensor, int64_t offset, int64_t wanted, const char* name, int64_t& stride) {
    const Shape& its = tensor.shape(3, name);
    expect(its[0] == h.batch && its[1] == h.tokens && offset + wanted <= its[2], name, its);
    stride = its[2];
    return tensor.data<float>() + offset;
  };
  h.query = place(query, columns.query_offset, h.heads * h.key_width, "the query", h.query_stride);
  h.key = place(key, columns.key_offset, h.groups * h.key_width, "the key", h.key_stride);
  h.value = place(value, columns.value_offset, h.groups * h.value_width, "the value", h.value_stride);
  h.queries = context.output<float>(0, Shape{{h.batch, h.tokens, h.heads * h.key_width}, 3});
  h.keys = context.output<float>(1, Shape{{h.batch, h.groups, h.tokens, h.key_width}, 4});
  h.values = context.output<float>(2, Shape{{h.batch, h.groups, h.tokens, h.value_width}, 4});
  context.parallel(h.batch * h.tokens, kTokensApart, [&](int64_t first, int64_t last) {
    kernels().make_heads(h, first, last);
    return true;
  });
}

// Cosines and sines, as inputs 3 and 4.
Heads with_tables(Context& context, int64_t turned, bool interleaved) {
  const Tensor query = context.input(0), cosines = context.input(3), sines = context.input(4);
  const Shape& tokens = query.shape(3, "the query");
  for (const Tensor* table : {&cosines, &sines}) {
    const Shape& shape = table->shape(3, "a table of angles");
    expect(shape[0] == tokens[0] && shape[1] == tokens[1] && shape[2] == turned / 2, "a table of angles", shape);
  }
  Heads h{};
  h.cosines = cosines.data<float>(), h.sines = sines.data<float>(), h.turned = turned, h.interleaved = interleaved;
  return h;
}

}  // namespace

HeadColumns::HeadColumns(const Info& info)
    : heads(info.integer("heads")), groups(info.integer("groups")), key_width(info.integer("key_width")),
      value_width(info.integer("value_width")), query_offset(info.integer("query_offset")), key_offset(info.integer("key_offset")),
      value_offset(info.integer("value_offset")) {
  for (const int64_t each : {heads, groups, key_width, value_width})
    if (each < 1) throw OperatorError("heads: expected at least one of each, and columns");
  for (const int64_t each : {query_offset, key_offset, value_offset})
    if (each < 0) throw OperatorError("heads: expected where their columns begin");
}

void SplitHeads::compute(Context& context) const { make_heads(context, columns, Heads{}); }

RotaryHeads::RotaryHeads(const Info& info)
    : columns(info), turned(info.integer("turned")), interleaved(info.integer("interleaved") != 0) {
  if (turned % 2 || turned > columns.key_width) throw OperatorError("RotaryHeads: expected an even number of turned columns of a key");
}

void RotaryHeads::compute(Context& context) const { make_heads(context, columns, with_tables(context, turned, interleaved)); }

NormRotaryHeads::NormRotaryHeads(const Info& info) : rotary(info), epsilon(info.number("epsilon")) {}

void NormRotaryHeads::compute(Context& context) const {
  const Tensor query_weight = context.input(5), key_weight = context.input(6);
  Heads h = with_tables(context, rotary.turned, rotary.interleaved);
  for (const Tensor* weight : {&query_weight, &key_weight})
    expect(weight->shape().count() == rotary.columns.key_width, "the weight of a normalization", weight->shape());
  h.query_weight = query_weight.data<float>(), h.key_weight = key_weight.data<float>(), h.epsilon = epsilon;
  make_heads(context, rotary.columns, h);
}

void JoinRows::compute(Context& context) const {
  const Tensor rows = context.input(0), others = context.input(1);
  const Shape &one = rows.shape(4, "the rows"), &other = others.shape(4, "the other rows");
  expect(other[0] == one[0] && other[1] == one[1] && other[3] == one[3], "the other rows", other);
  Shape both = one;
  both.sizes[2] += other[2];
  const int64_t first = one[2] * one[3], second = other[2] * other[3];
  float* y = context.output<float>(0, both);
  for (int64_t group = 0; group < one[0] * one[1]; ++group, y += first + second) {
    std::copy_n(rows.data<float>() + group * first, first, y);
    std::copy_n(others.data<float>() + group * second, second, y + first);
  }
}

void RotaryTables::compute(Context& context) const {
  const Tensor positions = context.input(0), frequencies = context.input(1);
  const Shape& shape = positions.shape(2, "the positions");
  const int64_t width = frequencies.shape().count();
  const Shape table{{shape[0], shape[1], width}, 3};
  float *cosines = context.output<float>(0, table), *sines = context.output<float>(1, table);
  for (int64_t i = 0; i < shape.count(); ++i) {
    const float position = static_cast<float>(positions.data<int64_t>()[i]);
    for (int64_t k = 0; k < width; ++k) {
      const SineCosine found = sine_cosine(position * frequencies.data<float>()[k]);
      cosines[i * width + k] = found.cosine * scale;
      sines[i * width + k] = found.sine * scale;
    }
  }
}

// Bundles of earlier versions have no rings.
Attend::Attend(const Info& info)
    : scale(info.number("scale")), softcap(info.number("softcap")), window(info.integer("window")), is_ring(info.integer("ring", 0) != 0) {}

namespace {

// The tensors of an Attend, floats or codes.
struct Given {
  Tensor query, key_rows, value_rows, key_cache, value_cache, length, positions, bias;
};

// Checks that the shapes of an Attend fit each other, and fills in what both forms share.
// packed: columns of values in a byte.
Attention checked(Context& context, const Given& given, const Tensor* sinks, bool is_latent, bool is_ring, int64_t packed = 1) {
  const Shape &q = given.query.shape(3, "the query"), &k = given.key_rows.shape(4, "the rows of keys"),
              &v = given.value_rows.shape(4, "the rows of values"), &cache = given.key_cache.shape(4, "the cache of keys"),
              &value = given.value_cache.shape(4, "the cache of values"), &seen = given.bias.shape(4, "the bias");
  expect(k[1] > 0 && k[3] > 0, "the rows of keys", k);
  const int64_t width = k[3] + (is_latent ? v[3] : 0);
  expect(q[2] % width == 0 && q[2] / width % k[1] == 0 && q[0] == k[0], "the query", q);
  expect(v[0] == k[0] && v[1] == k[1] && v[2] == k[2], "the rows of values", v);
  expect(cache[0] == k[0] && cache[1] == k[1] && cache[3] == k[3], "the cache of keys", cache);
  expect(value[0] == k[0] && value[1] == k[1] && value[2] == cache[2] && value[3] == v[3], "the cache of values", value);
  expect(seen[0] == q[0] && seen[1] == 1 && seen[2] == q[1] && seen[3] == k[2], "the bias", seen);
  expect(given.length.shape().count() == q[0], "the length", given.length.shape());
  expect(given.positions.shape().count() == q[0] * q[1], "the positions", given.positions.shape());
  const int64_t heads = q[2] / width;
  if (sinks) expect(sinks->shape().count() == heads, "the sinks", sinks->shape());
  for (int64_t b = 0; b < q[0]; ++b) {
    const int64_t committed = given.length.data<int64_t>()[b];
    if (committed < 0 || (committed > cache[2] && !is_ring))
      throw OperatorError("received the length " + std::to_string(committed) + ", expected 0 to " + std::to_string(cache[2]));
  }
  Attention a{};
  a.query = given.query.data<float>(), a.bias = given.bias.data<float>();
  a.length = given.length.data<int64_t>(), a.positions = given.positions.data<int64_t>();
  a.context = context.output<float>(0, Shape{{q[0], q[1], heads * (is_latent ? k[3] : packed * v[3])}, 3});
  a.batch = q[0], a.tokens = q[1], a.heads = heads, a.groups = k[1], a.rows = k[2], a.capacity = cache[2];
  a.key_width = k[3], a.value_width = packed * v[3], a.is_latent = is_latent, a.is_ring = is_ring;
  a.sinks = sinks ? sinks->data<float>() : nullptr;
  return a;
}

void run(const Context& context, const Attention& a) {
  context.parallel(attention_units(a), 1, [&](int64_t first, int64_t last) { return kernels().attend(a, first, last); });
}

const float* scales(const Tensor& tensor, const Tensor& rows, const char* name, int64_t each = 1) {
  const Shape &shape = tensor.shape(4, name), &its = rows.shape();
  expect(shape[0] == its[0] && shape[1] == its[1] && shape[2] == its[2] && shape[3] == each, name, shape);
  return tensor.data<float>();
}

}  // namespace

void Attend::attend(Context& context, bool is_latent, bool has_sinks) const {
  const Given given{context.input(0), context.input(1), context.input(2), context.input(3),
                    context.input(4), context.input(5), context.input(6), context.input(7)};
  const Tensor sinks = context.input(has_sinks ? 8 : 0);
  Attention a = checked(context, given, has_sinks ? &sinks : nullptr, is_latent, is_ring);
  a.key_rows = given.key_rows.data<float>(), a.value_rows = given.value_rows.data<float>();
  a.key_cache = given.key_cache.data<float>(), a.value_cache = given.value_cache.data<float>();
  a.scale = scale, a.softcap = softcap, a.window = window;
  run(context, a);
}

void AttendInt8::attend_codes(Context& context, bool has_sinks, bool has_nibbles) const {
  const int64_t packed = has_nibbles ? 2 : 1;
  const Given given{context.input(0), context.input(1), context.input(3),  context.input(5),
                    context.input(7), context.input(9), context.input(10), context.input(11)};
  const Tensor sinks = context.input(has_sinks ? 12 : 0);
  Attention a = checked(context, given, has_sinks ? &sinks : nullptr, false, is_ring, packed);
  const Tensor key_rows = context.input(2), value_rows = context.input(4), keys = context.input(6), values = context.input(8);
  const Codes codes{given.key_rows.data<int8_t>(), given.value_rows.data<int8_t>(), given.key_cache.data<int8_t>(),
                    given.value_cache.data<int8_t>(), speccompile::scales(key_rows, given.key_rows, "the scales of the rows of keys"),
                    speccompile::scales(value_rows, given.value_rows, "the scales of the rows of values", packed),
                    speccompile::scales(keys, given.key_cache, "the scales of the cache of keys"),
                    speccompile::scales(values, given.value_cache, "the scales of the cache of values", packed), has_nibbles};
  a.codes = &codes, a.scale = scale, a.softcap = softcap, a.window = window;
  run(context, a);
}

void EncodeInt8::compute(Context& context) const {
  const Tensor rows = context.input(0);
  const Shape& shape = rows.shape(4, "the rows");
  Shape one = shape;
  one.sizes[3] = 1;
  const Encoding e{rows.data<float>(), context.output<int8_t>(0, shape), context.output<float>(1, one), shape[3]};
  context.parallel(shape.rows(), kRowsApart, [&](int64_t first, int64_t last) {
    kernels().encode(e, first, last);
    return true;
  });
}

void EncodeInt4::compute(Context& context) const {
  const Tensor rows = context.input(0);
  const Shape& shape = rows.shape(4, "the rows");
  expect(shape[3] > 0 && shape[3] % 2 == 0, "the rows, of an even number of columns", shape);
  Shape half = shape, two = shape;
  half.sizes[3] /= 2, two.sizes[3] = 2;
  const Encoding e{rows.data<float>(), context.output<int8_t>(0, half), context.output<float>(1, two), shape[3]};
  context.parallel(shape.rows(), kRowsApart, [&](int64_t first, int64_t last) {
    kernels().encode_nibbles(e, first, last);
    return true;
  });
}

void DecodeInt4::compute(Context& context) const {
  const Tensor codes = context.input(0), given = context.input(1);
  const Shape& shape = codes.shape(4, "the codes");
  const float* its = scales(given, codes, "the scales", 2);
  Shape whole = shape;
  whole.sizes[3] *= 2;
  float* y = context.output<float>(0, whole);
  for (int64_t row = 0; row < shape.rows(); ++row)
    for (int64_t i = row * shape[3]; i < (row + 1) * shape[3]; ++i) {
      const int pair = static_cast<uint8_t>(codes.data<int8_t>()[i]) ^ 0x80;
      y[2 * i] = static_cast<float>(pair & 15) * its[2 * row] + its[2 * row + 1];
      y[2 * i + 1] = static_cast<float>(pair >> 4) * its[2 * row] + its[2 * row + 1];
    }
}

void DecodeInt8::compute(Context& context) const {
  const Tensor codes = context.input(0), given = context.input(1);
  const Shape& shape = codes.shape(4, "the codes");
  const float* its = scales(given, codes, "the scales");
  float* y = context.output<float>(0, shape);
  for (int64_t row = 0; row < shape.rows(); ++row)
    for (int64_t i = row * shape[3]; i < (row + 1) * shape[3]; ++i) y[i] = static_cast<float>(codes.data<int8_t>()[i]) * its[row];
}

}  // namespace speccompile
