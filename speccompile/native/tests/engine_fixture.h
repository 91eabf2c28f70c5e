// An engine for whatever a manifest says: buffers end exactly where it says, and graphs write anything into their outputs.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <utility>

#include "../errors.h"
#include "../runtime/engine.h"
#include "check.h"

class AnyEngine : public spc::Engine {
 public:
  AnyEngine(const spc::EngineEntry& entry, uint64_t seed)
      : entry_(entry), dtypes_(spc::buffer_dtypes(entry.graphs)), random_(seed) {}

  spc::Array host_view(const std::string& buffer, const spc::Shape& shape) override {
    const std::string& dtype = spc::dtype_of(dtypes_, buffer);
    const auto [place, is_new] = memories_.try_emplace({buffer, shape}, nullptr, &std::free);
    spc::Array made{place->second.get(), shape, dtype};
    if (!is_new) return made;
    for (const int64_t size : shape) CHECK(size >= 0, "the buffer %s with a size of %lld", buffer.c_str(), static_cast<long long>(size));
    left_ -= made.bytes() <= kMost ? static_cast<int64_t>(made.bytes()) : left_ + 1;
    if (left_ < 0) {
      memories_.erase(place);
      throw std::bad_alloc();  // as on a machine without more memory
    }
    place->second.reset(std::calloc(made.bytes(), 1));
    made.data = place->second.get();
    return made;
  }

  void write_state(const std::string& buffer, const spc::Shape& shape, const void* values) override {
    const spc::Array held = host_view(buffer, shape);
    std::memcpy(held.data, values, held.bytes());
  }

  bool supports_batch_slices() const override { return spc::supports_batch_slices(entry_.graphs); }

  spc::Run bind(const std::string& graph, const spc::Widths& widths, bool logits, std::optional<spc::Span> rows = std::nullopt) override {
    entry_.file(graph);
    std::vector<spc::Array> outputs;
    for (const spc::Graph& each : entry_.graphs)
      if (each.name == graph) outputs = bind_all(each, widths, logits, rows);
    return [this, outputs] {
      if (--runs_ < 0) throw spc::Error(spc::Kind::kEngine, "enough");
      for (const spc::Array& output : outputs) fill(output);
    };
  }

  bool has(const std::string& graph) const override { return entry_.has(graph); }
  void stop() override {}
  void resume() override {}

 private:
  static constexpr size_t kMost = 16 << 20;  // bytes in all: sanitizers fill what they hand out

  std::vector<spc::Array> bind_all(const spc::Graph& graph, const spc::Widths& widths, bool logits, std::optional<spc::Span> rows) {
    for (const spc::Tensor& tensor : graph.inputs) {
      const spc::Array made = host_view(tensor.buffer, tensor.concrete_shape(widths));
      for (size_t i = 0; tensor.role == "index" && i < made.count(); ++i) made.ints()[i] = static_cast<int64_t>(i);
    }
    std::vector<spc::Array> outputs;
    for (const spc::Tensor& tensor : graph.outputs)
      if (tensor.role != "optional" || (logits && tensor.name == "logits"))
        outputs.push_back(lines(tensor, widths, rows));
    return outputs;
  }

  // Return the part of a buffer that a run over these rows writes.
  spc::Array lines(const spc::Tensor& tensor, const spc::Widths& widths, std::optional<spc::Span> rows) {
    if (!rows || !tensor.is_batched) return host_view(tensor.buffer, tensor.concrete_shape(widths));
    const spc::Shape some = spc::shape_for_rows(tensor, widths, rows->size());
    if (spc::is_scratch(tensor)) return host_view(tensor.buffer, some);
    spc::Array whole = host_view(tensor.buffer, tensor.concrete_shape(widths));
    whole.data = static_cast<char*>(whole.data) + static_cast<size_t>(rows->start) * (whole.bytes() / static_cast<size_t>(whole.shape.front()));
    whole.shape = some;
    return whole;
  }

  // Small numbers, as they would be; now and then what no graph should give.
  void fill(const spc::Array& output) {
    constexpr int64_t kEnds[] = {-1, INT64_MAX, INT64_MIN, 1 << 20};
    const bool is_wild = random_.integer(0, 9) == 0;
    const int64_t most = random_.integer(1, 6);
    for (size_t i = 0; output.dtype == "int64" && i < output.count(); ++i)
      output.ints()[i] = is_wild && random_.integer(0, 3) == 0 ? kEnds[random_.integer(0, 3)] : random_.integer(0, most);
    const size_t written = std::min<size_t>(output.count(), 4096);
    for (size_t i = 0; output.dtype == "float32" && i < written; ++i) output.floats()[i] = random_.any();
  }

  const spc::EngineEntry& entry_;
  const spc::Dtypes dtypes_;
  speccompile::Random random_;
  std::map<std::pair<std::string, spc::Shape>, std::unique_ptr<void, decltype(&std::free)>> memories_;
  int64_t left_ = kMost;
  int runs_ = 40;
};
