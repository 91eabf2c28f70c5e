// Times attention over committed rows of float, int8 and {int8, int4} caches, in turns, on one thread.
//
//   attention_times PATH CONTEXT TOKENS HEADS GROUPS WIDTH SECONDS
//
// PATH is one of the paths of the kernels, or `best`. Caches of several layers are read in turn, more than the processor's caches
// hold. One line of JSON for each kind of cache: the median of the turns' seconds a layer, and the bytes of a layer's cache.
// With SECONDS 0 each kind is computed once, in `measured_call`, whose instructions callgrind counts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "../../speccompile/native/kernels/choose.h"
#include "peaks.h"

namespace {

using namespace speccompile;

constexpr int64_t kColdBytes = int64_t{96} << 20;  // of the smallest kind's caches: more than the processor's hold

struct Shape {
  int64_t context, tokens, heads, groups, width;

  int64_t rows() const { return context * groups; }
};

std::vector<float> normal(int64_t count) {
  std::minstd_rand random(1);
  std::normal_distribution<float> draw;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& each : x) each = draw(random);
  return x;
}

// One kind of cache, for several layers, and the in-step rows.
struct Kind {
  const char* name;
  int64_t key_bytes, value_bytes, key_scales, value_scales;  // of a row

  int64_t bytes_of_row() const { return key_bytes + value_bytes + 4 * (key_scales + value_scales); }
};

struct Layer {
  std::vector<uint8_t> keys, values;
  std::vector<float> key_scales, value_scales;

  Layer(const Kind& kind, int64_t rows)
      : keys(filled(rows * kind.key_bytes)), values(filled(rows * kind.value_bytes)),
        key_scales(static_cast<size_t>(rows * kind.key_scales), 0.01f), value_scales(static_cast<size_t>(rows * kind.value_scales), 0.01f) {}

  // Floats between 0.0078 and 0.0079 of every four bytes, codes of 0 to 63.
  static std::vector<uint8_t> filled(int64_t bytes) {
    std::vector<uint8_t> x(static_cast<size_t>(bytes));
    for (size_t i = 0; i < x.size(); ++i) x[i] = i % 4 < 3 ? static_cast<uint8_t>(i * 7 % 64) : 0x3c;
    return x;
  }
};

class Case {
 public:
  Case(const Kind& kind, const Shape& shape, int64_t layers)
      : kind_(kind), shape_(shape), query_(normal(shape.tokens * shape.heads * shape.width)), context_(query_.size()),
        bias_(static_cast<size_t>(shape.tokens * shape.tokens)), positions_(static_cast<size_t>(shape.tokens)), rows_(kind, shape.groups * shape.tokens) {
    for (int64_t i = 0; i < layers; ++i) layers_.emplace_back(kind, shape.rows());
    for (int64_t t = 0; t < shape.tokens; ++t) {
      positions_[static_cast<size_t>(t)] = shape.context + t;
      for (int64_t r = 0; r < shape.tokens; ++r) bias_[static_cast<size_t>(t * shape.tokens + r)] = r <= t ? 0.0f : kHidden;
    }
  }

  void compute(const Kernels& kernels, size_t layer) {
    const Layer& cache = layers_[layer % layers_.size()];
    const auto codes = [](const std::vector<uint8_t>& x) { return reinterpret_cast<const int8_t*>(x.data()); };
    const auto floats = [](const std::vector<uint8_t>& x) { return reinterpret_cast<const float*>(x.data()); };
    const Codes coded{codes(rows_.keys), codes(rows_.values), codes(cache.keys), codes(cache.values), rows_.key_scales.data(),
                      rows_.value_scales.data(), cache.key_scales.data(), cache.value_scales.data(), kind_.value_scales == 2};
    Attention a{};
    a.query = query_.data(), a.bias = bias_.data(), a.length = &shape_.context, a.positions = positions_.data();
    a.context = context_.data(), a.batch = 1, a.tokens = shape_.tokens, a.heads = shape_.heads, a.groups = shape_.groups;
    a.rows = shape_.tokens, a.capacity = shape_.context, a.key_width = a.value_width = shape_.width, a.scale = 0.125f;
    if (kind_.key_scales) {
      a.codes = &coded;
    } else {
      a.key_rows = floats(rows_.keys), a.value_rows = floats(rows_.values);
      a.key_cache = floats(cache.keys), a.value_cache = floats(cache.values);
    }
    if (!kernels.attend(a, 0, attention_units(a))) std::abort();
  }

  size_t layers() const { return layers_.size(); }
  const Kind& kind() const { return kind_; }

 private:
  Kind kind_;
  Shape shape_;
  std::vector<float> query_, context_, bias_;
  std::vector<int64_t> positions_;
  Layer rows_;
  std::vector<Layer> layers_;
};

__attribute__((noinline)) void measured_call(Case& each, const Kernels& kernels, size_t layer) {
  each.compute(kernels, layer);
  asm volatile("" ::: "memory");  // so that this call is not the last thing done, and stays a function
}

void measure(const Kernels& kernels, const Shape& shape, double seconds) {
  const int64_t w = shape.width;
  const Kind kinds[] = {{"float", 4 * w, 4 * w, 0, 0}, {"int8", w, w, 1, 1}, {"int8_int4", w, w / 2, 1, 2}};
  const int64_t least = kinds[2].bytes_of_row() * shape.rows();
  std::vector<Case> cases;
  for (const Kind& kind : kinds) cases.emplace_back(kind, shape, seconds > 0 ? (kColdBytes + least - 1) / least : 1);
  std::vector<std::vector<double>> times(cases.size());
  double used = 0;
  for (size_t turn = 0; turn == 0 || used < seconds; ++turn) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const double start = thread_seconds();
      measured_call(cases[i], kernels, turn);
      times[i].push_back(thread_seconds() - start);
      used += times[i].back();
    }
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    std::nth_element(times[i].begin(), times[i].begin() + static_cast<int64_t>(times[i].size() / 2), times[i].end());
    std::printf("{\"path\": \"%s\", \"cache\": \"%s\", \"seconds\": %.5g, \"bytes\": %lld}\n", kernels.name, cases[i].kind().name,
                times[i][times[i].size() / 2], static_cast<long long>(cases[i].kind().bytes_of_row() * shape.rows()));
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 8) {
    std::fprintf(stderr, "usage: attention_times PATH CONTEXT TOKENS HEADS GROUPS WIDTH SECONDS\n");
    return 2;
  }
  if (std::strcmp(words[1], "best") && !use_path(words[1])) {
    std::fprintf(stderr, "received the path %s, which this processor cannot run\n", words[1]);
    return 2;
  }
  measure(kernels(), {std::atoll(words[2]), std::atoll(words[3]), std::atoll(words[4]), std::atoll(words[5]), std::atoll(words[6])}, std::atof(words[7]));
  return 0;
}
