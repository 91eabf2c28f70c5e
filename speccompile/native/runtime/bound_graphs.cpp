#include "bound_graphs.h"

#include <algorithm>
#include <cstring>

#include "../errors.h"
#include "logprobs.h"

namespace spc {
namespace {

// Runs that stay bound. A batch of rows has as many ranges as pairs of them, and prompts end with parts of any width: bound are
// those that were used last, which decoding uses again and again.

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Kind::kBundle, "manifest.json: " + what, "build the bundle again");
}

Widths widths_of(const VerifyPass::Key& key, int64_t decoding_catch_up) {
  const int64_t catch_up = key.logit_rows > 1 ? decoding_catch_up : key.window + 1;
  return {{names::kWindow, key.window},
          {names::kLogitRows, key.logit_rows},
          {names::kCatchUp, catch_up},
          {names::kHistory, key.history},
          {names::kAllowed, 1}};
}

// How many bytes a line of an array has.
size_t line_bytes(const Array& array) { return array.bytes() / static_cast<size_t>(array.shape.front()); }

}  // namespace

VerifyPass::VerifyPass(BoundGraphs& rounds, const Key& key)
    : key(key), widths(widths_of(key, rounds.manifest.catch_up)), rounds_(rounds) {
  Engine& engine = rounds.engine;
  const char* const name = key.fused ? graph::kStep : graph::kVerify;
  const Graph* const graph = rounds.graph(name);
  if (!graph) refuse(std::string("the bundle has no graph '") + name + "'");
  verify = engine.bind(name, widths, key.logprobs, key.rows);
  window = engine.host_view(names::kWindow, {rounds.manifest.batch_size, key.window});
  path = engine.host_view(names::kPath, {rounds.manifest.batch_size, key.window + 1});
  if (const Tensor* const allowed = graph->input(names::kAllowed)) {  // of a bundle that takes constraints: nobody has any here
    const Array everything = engine.host_view(names::kAllowed, allowed->concrete_shape(widths));
    std::memset(everything.data, 1, everything.bytes());
  }
  for (const NextRoundInput& copied : kNextRoundInputs) {
    const Tensor* const drafted = graph->output(copied.drafted);
    if (!drafted) continue;
    const Shape shape = drafted->concrete_shape(widths);
    const auto& [from, to] = copies_.emplace_back(engine.host_view(copied.drafted, shape), engine.host_view(copied.buffer, shape));
    if (from.dtype != to.dtype) refuse(std::string(copied.drafted) + " has not the dtype of " + copied.buffer);
  }
  if (const Tensor* const nodes = graph->output(names::kNodes)) nodes_ = engine.host_view(names::kNodes, nodes->concrete_shape(widths));
  if (nodes_.data && nodes_.shape != Shape{rounds.manifest.batch_size, key.logit_rows}) refuse("nodes are not those of the window");
  if (!key.logprobs) return;
  const Tensor* const tensor = graph->output(names::kLogits);
  const Shape shape = {key.rows.size(), key.logit_rows, rounds.manifest.vocabulary_size};
  if (!tensor || shape_for_rows(*tensor, widths, key.rows.size()) != shape) refuse("logits are not those of the window");
  logits = engine.host_view(names::kLogits, shape);
}

const Run& VerifyPass::draft() {
  if (!draft_) draft_ = rounds_.engine.bind(graph::kDraft, widths, false, key.rows);
  return draft_;
}

void VerifyPass::copy_next_inputs() const {
  for (const auto& [drafted, destination] : copies_) {
    const size_t line = line_bytes(drafted), start = static_cast<size_t>(key.rows.start) * line;
    std::memcpy(static_cast<char*>(destination.data) + start, static_cast<char*>(drafted.data) + start,
                static_cast<size_t>(key.rows.size()) * line);
  }
}

std::vector<double> VerifyPass::logprobs(size_t row, const int64_t* tokens, size_t count) const {
  const int64_t rows = logits.shape[1], vocabulary = logits.shape[2], line = static_cast<int64_t>(row) - key.rows.start;
  std::vector<double> found;
  for (size_t i = 0; i < count; ++i) {
    const int64_t at = static_cast<int64_t>(i);
    const int64_t node = nodes_.data && at < rows ? nodes_.ints()[static_cast<int64_t>(row) * rows + at] : at;
    if (node < 0 || node >= rows || tokens[i] < 0 || tokens[i] >= vocabulary)
      throw Error(Kind::kEngine, "the graph gave token " + std::to_string(tokens[i]) + " at node " + std::to_string(node), "build the bundle again");
    const int64_t place = line * rows + node;
    found.push_back(chosen_logprob(logits.floats() + place * vocabulary, static_cast<size_t>(vocabulary), tokens[i]));
  }
  return found;
}

BoundGraphs::BoundGraphs(Engine& engine, const Manifest& manifest)
    : engine(engine),
      manifest(manifest),
      length(count(names::kLength)),
      n_path(count(names::kNPath)),
      n_given(count(names::kNGiven)),
      n_total(count(names::kNTotal)) {}

const Graph* BoundGraphs::graph(const std::string& name) const {
  for (const Graph& each : manifest.graphs)
    if (each.name == name) return &each;
  return nullptr;
}

VerifyPass& BoundGraphs::forward(const VerifyPass::Key& key) {
  const auto found = std::find_if(forwards_.begin(), forwards_.end(), [&](const VerifyPass& each) { return each.key == key; });
  if (found != forwards_.end())
    forwards_.splice(forwards_.begin(), forwards_, found);
  else
    forwards_.emplace_front(*this, key);
  if (forwards_.size() > kMaxBindings) forwards_.pop_back();
  return forwards_.front();
}

CatchUp& BoundGraphs::catch_up(int64_t tokens, int64_t history) {
  int64_t width = 1;
  while (width < tokens) width *= 2;
  width = std::min(width, manifest.prefill_chunk);
  const auto found = catch_ups_.find({width, history});
  if (found != catch_ups_.end()) return found->second;
  const Widths widths = {{names::kWindow, width}, {names::kCatchUp, width + 1}, {names::kHistory, history}};
  CatchUp made{engine.bind(graph::kDraft, widths, false), engine.host_view(names::kPath, {manifest.batch_size, width + 1})};
  return catch_ups_.emplace(std::pair(width, history), std::move(made)).first->second;
}

std::vector<std::vector<Span>> right_aligned_chunks(const std::vector<Span>& spans, int64_t size, int64_t overlap) {
  const int64_t stride = size - overlap;
  if (stride < 1) refuse("prefill_chunk is " + std::to_string(size) + ": expected at least " + std::to_string(overlap + 1));
  std::vector<int64_t> counts;
  for (const Span& span : spans) {
    const int64_t behind = std::max<int64_t>(0, span.size() - overlap);
    counts.push_back(std::max((behind + stride - 1) / stride, std::min<int64_t>(span.size(), 1)));
  }
  std::vector<std::vector<Span>> parts;
  const int64_t most = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  for (int64_t left = most; left > 0; --left) {
    std::vector<Span>& row = parts.emplace_back();
    for (size_t i = 0; i < spans.size(); ++i) {
      const int64_t start = std::min(spans[i].start + std::max<int64_t>(0, counts[i] - left) * stride, spans[i].stop);
      row.push_back({start, counts[i] >= left ? std::min(start + size, spans[i].stop) : start});
    }
  }
  return parts;
}

}  // namespace spc
