#include "window_invariance.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>

#include "../bundle/hashes.h"
#include "../bundle/result_cache.h"
#include "../progress.h"
#include "../system.h"
#include "host_drafts.h"
#include "random.h"
#include "bound_graphs.h"
#include "sampling_inputs.h"
#include "sessions.h"
#include "source_encoder.h"

namespace spc {
namespace {

std::string some(const std::vector<int64_t>& numbers) {
  const bool is_run = numbers.back() - numbers.front() + 1 == static_cast<int64_t>(numbers.size());
  if (numbers.size() > 2 && is_run) return std::to_string(numbers.front()) + " to " + std::to_string(numbers.back());
  std::string words;
  for (size_t i = 0; i < numbers.size(); ++i)
    words += (i == 0 ? "" : numbers.size() < 3 ? " and " : ", ") + std::to_string(numbers[i]);
  return words;
}

// Parents of a root and so many nodes, by depth: one branch of this depth, all others at the root.
std::vector<int64_t> deep_tree(int64_t nodes, int64_t depth) {
  const int64_t at_root = nodes - (depth - 1);
  std::vector<int64_t> parents = {-1};
  parents.insert(parents.end(), static_cast<size_t>(at_root), 0);
  if (depth > 1) parents.push_back(1);
  for (int64_t node = at_root + 1; static_cast<int64_t>(parents.size()) < nodes + 1; ++node) parents.push_back(node);
  parents.resize(static_cast<size_t>(nodes) + 1);
  return parents;
}

void fill(Engine& engine, const Graph& graph, const char* name, float value, const Widths& widths) {
  const Tensor* const tensor = graph.input(name);
  if (!tensor || tensor->role != role::kIo) return;
  const Array array = engine.host_view(tensor->buffer, tensor->concrete_shape(widths));
  std::fill_n(array.floats(), array.count(), value);
}

// Logits [rows, V] of one row of a batch, row by row.
using Logits = std::vector<std::vector<float>>;

class Comparison {
 public:
  Comparison(Engine& engine, const Manifest& manifest) : engine_(engine), manifest_(manifest), rounds_(engine, manifest) {
    write_neutral_inputs(engine, manifest);
    encode_example(engine, manifest);
    const bool is_chain = manifest.is_chain();
    depth_ = std::min(is_chain ? manifest.tokens : manifest.depth, manifest.max_length - 1);
    prefix_ = std::max<int64_t>(0, std::min({kInvariancePrefix, manifest.max_length - depth_ - 1, manifest.prefill_chunk}));
    Uniforms random(0, 0, Purpose::kNewToken);
    for (int64_t row = 0; row < manifest.batch_size; ++row) {
      std::vector<int64_t>& text = texts_.emplace_back();
      for (int64_t i = 0; i < prefix_ + manifest.tokens + 1; ++i)
        text.push_back(static_cast<int64_t>(random.raw() % static_cast<uint64_t>(manifest.vocabulary_size)));
      for (size_t i = static_cast<size_t>(prefix_) + 2; !is_chain && i < text.size(); ++i) text[i] = text[static_cast<size_t>(prefix_) + 1];
    }
  }

  WindowInvariance run() {
    commit_prefix();
    for (int64_t i = 0; i <= depth_; ++i) {
      const std::vector<Logits> found = read(prefix_ + i, 1, prefix_ + i, false, 1);
      single_.resize(found.size());
      for (size_t row = 0; row < found.size(); ++row) single_[row].push_back(found[row].front());
    }
    WindowInvariance result;
    const bool has_all_widths = manifest_.is_chain() || needs_proposer(manifest_);
    for (int64_t width = has_all_widths ? 2 : manifest_.tokens + 1; width <= manifest_.tokens + 1; ++width) {
      result.widths.push_back(width);
      if (has_recurrent_states(manifest_.graphs, component::kTarget)) commit_prefix();
      compare(read(prefix_, width, prefix_, true, 1), width, result);
    }
    return result;
  }

 private:
  // States are then those after the same committed tokens.
  void commit_prefix() {
    if (prefix_) read(0, prefix_, 0, true, prefix_);
  }

  static float neutral(std::string_view name) {
    const auto found = std::find_if(std::begin(kNeutral), std::end(kNeutral), [&](const auto& each) { return each.first == name; });
    return static_cast<float>(found->second);
  }

  // Logits of a window, of its last token where all are given, else of every token. drafting: by the graph that decoding
  // would run.
  std::vector<Logits> read(int64_t start, int64_t width, int64_t length, bool drafting, int64_t given) {
    const int64_t rows = given > 1 || width == 1 ? 1 : width;
    VerifyPass& forward = rounds_.forward({width, rows, 1, 1, drafting && rounds_.graph(graph::kStep), true, false, rounds_.all()});
    if (has_input(manifest_, names::kUniforms)) {
      const Array uniforms = engine_.host_view(names::kUniforms, {manifest_.batch_size, rows});
      std::fill_n(uniforms.floats(), uniforms.count(), neutral(names::kUniforms));
    }
    for (size_t row = 0; row < texts_.size(); ++row) {
      std::copy_n(texts_[row].begin() + static_cast<std::ptrdiff_t>(start), width, forward.window.ints() + static_cast<int64_t>(row) * width);
      rounds_.n_given[row] = given;
      rounds_.n_total[row] = width;
      rounds_.length[row] = length;
    }
    forward.verify();
    std::vector<Logits> found(texts_.size());
    const int64_t size = forward.logits.shape[2];
    for (size_t row = 0; row < texts_.size(); ++row) {
      const float* at = forward.logits.floats() + static_cast<int64_t>(row) * rows * size;
      for (int64_t i = 0; i < rows; ++i, at += size) found[row].emplace_back(at, at + size);
    }
    return found;
  }

  // For a node of a tree the logits behind as many drafts, where there are any that are equal; else the nearest ones.
  const std::vector<float>& expected(size_t row, size_t place, const std::vector<float>& got) const {
    if (manifest_.is_chain()) return single_[row][place];
    const std::vector<float>* nearest = &single_[row].front();
    for (const std::vector<float>& each : single_[row])
      if (difference(each, got) < difference(*nearest, got)) nearest = &each;
    return *nearest;
  }

  static double difference(const std::vector<float>& one, const std::vector<float>& other) {
    double most = 0;
    for (size_t i = 0; i < one.size(); ++i) most = std::max(most, static_cast<double>(std::fabs(one[i] - other[i])));
    return most;
  }

  void compare(const std::vector<Logits>& window, int64_t width, WindowInvariance& result) {
    double largest = 0, scale = 1e-30;
    bool is_equal = true;
    for (size_t row = 0; row < window.size(); ++row) {
      const size_t count = manifest_.is_chain() ? std::min(window[row].size(), single_[row].size()) : window[row].size();
      for (size_t i = 0; i < count; ++i) {
        const std::vector<float>& got = window[row][i];
        const std::vector<float>& want = expected(row, i, got);
        is_equal = is_equal && std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0;
        largest = std::max(largest, difference(want, got));
        for (const float each : want) scale = std::max(scale, static_cast<double>(std::fabs(each)));
      }
    }
    if (is_equal) return;
    result.differing.push_back(width);
    result.largest = std::max(result.largest, largest / scale);
  }

  Engine& engine_;
  const Manifest& manifest_;
  BoundGraphs rounds_;
  int64_t depth_ = 0, prefix_ = 0;
  std::vector<std::vector<int64_t>> texts_;
  std::vector<Logits> single_;
};

// The file that this code lies in: with its kernels, what computes.
std::string own_file() {
  Dl_info found = {};
  const bool known = dladdr(reinterpret_cast<const void*>(&compare_windows), &found) != 0 && found.dli_fname;
  return known ? found.dli_fname : "";
}

// Return the hash of this library's bytes, computed once a process.
const std::string& own_hash() {
  // never destroyed: threads may still open bundles
  static const auto* const hash = new std::string(hash_file(own_file()));
  return *hash;
}

// Parse a cached result. Return false if it has another form.
bool parse(const Json& found, WindowInvariance& to) {
  if (!found["widths"].is_list() || !found["differing"].is_list() || !found["largest"].is_number()) return false;
  for (const Json& each : found["widths"].list()) to.widths.push_back(each.integer());
  for (const Json& each : found["differing"].list()) to.differing.push_back(each.integer());
  to.largest = found["largest"].number();
  return true;
}

void warn_of(const WindowInvariance& found, const std::string& engine) {
  if (found.exact()) return;
  // what is left to the library is so in every precision
  const char* const hint = kernels_in_use() != kNoKernels ? "generate with --autoregressive (autoregressive=True) where that matters"
                                                          : "use the kernels: unset SPECCOMPILE_KERNELS";
  warn("engine " + engine + " is not exact on this processor, so speculation may change tokens: " + found.reason() + "\nhint: " + hint);
}

}  // namespace

Json engine_key(const std::string& folder, const EngineEntry& entry, std::optional<int> threads, const std::string& onnxruntime) {
  const std::string kernels = kernels_in_use();
  const bool are_ours = kernels != kNoKernels;
  return Json(Json::Object{{"format", kInvarianceFormat},
                           {"processor", processor()},
                           {"onnxruntime", onnxruntime},
                           {"kernels", Json::List{kernels, are_ours ? own_hash() : ""}},
                           {"bundle", hash_file(folder + "/" + kHashes)},
                           {"engine", entry.name},
                           {"threads", !are_ours && threads ? Json(*threads) : Json()}});  // on which the project's do not depend
}

std::string WindowInvariance::reason() const {
  if (widths.empty()) return "there is no window but one of a single token";
  if (exact()) return "windows of " + some(widths) + " tokens give the logits of single tokens, bit for bit";
  char part[32];
  std::snprintf(part, sizeof part, "%.1g", largest);
  return "windows of " + some(differing) + " tokens give other logits than single tokens, by up to " + part + " of the largest";
}

Json WindowInvariance::to_json() const {
  return Json::Object{{"exact", exact()},
                      {"reason", reason()},
                      {"widths", list_of(widths)},
                      {"differing", list_of(differing)},
                      {"largest", largest}};
}

void write_neutral_inputs(Engine& engine, const Manifest& manifest) {
  const Widths widths = {{names::kLogitRows, 1}, {names::kHistory, 1}};
  for (const Graph& graph : manifest.graphs) {
    for (const auto& [name, value] : kNeutral) fill(engine, graph, name, static_cast<float>(value), widths);
    if (const Tensor* parents = graph.input(names::kParents)) {
      const Array array = engine.host_view(names::kParents, parents->concrete_shape(widths));
      const std::vector<int64_t> tree = deep_tree(manifest.tokens, manifest.depth);
      for (size_t i = 0; i < array.count(); ++i) array.ints()[i] = tree[i % tree.size()];
    }
  }
}

WindowInvariance compare_windows(Engine& engine, const Manifest& manifest) {
  if (manifest.tokens == 0) return {};
  return Comparison(engine, manifest).run();
}

std::optional<WindowInvariance> cached_invariance(const Json& key) {
  const std::optional<Json> known = ResultCache(kInvarianceFolder).read(key);
  WindowInvariance found;
  return known && parse(*known, found) ? std::optional<WindowInvariance>(found) : std::nullopt;
}

WindowInvariance check_invariance(const Json& key, const EngineEntry& entry, SharedEngine& program, const Manifest& manifest) {
  std::optional<WindowInvariance> found = cached_invariance(key);
  if (!found) {
    const std::unique_ptr<Engine> engine = program.open();
    found = compare_windows(*engine, manifest);
    ResultCache(kInvarianceFolder).store(key, Json::Object{{"widths", list_of(found->widths)},
                                                           {"differing", list_of(found->differing)},
                                                           {"largest", found->largest}});
  }
  warn_of(*found, entry.name);
  return *found;
}

}  // namespace spc
