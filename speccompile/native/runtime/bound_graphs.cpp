#include "bound_graphs.h"

#include <algorithm>
#include <cstring>

#include "../errors.h"

namespace spc {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Kind::kBundle, "manifest.json: " + what, "build the bundle again");
}

Widths widths_of(const VerifyPass::Key& key, int64_t decoding_catch_up) {
  const int64_t catch_up = key.logit_rows > 1 && !key.fed ? decoding_catch_up : key.window + 1;
  return {{names::kWindow, key.window},
          {names::kLogitRows, key.logit_rows},
          {names::kCatchUp, catch_up},
          {names::kHistory, key.history},
          {names::kAllowed, key.allowed},
          {names::kMedia, key.media},
          {names::kAdjusted, key.adjusted}};
}

// Return the binding of `key`, made if absent. Beyond `kMaxBindings`, drop the least recently used one: a batch has a slice for
// every pair of slots, and the last chunk of a prompt has any width.
template <class Bound>
Bound& recent(std::list<Bound>& bound, BoundGraphs& rounds, const typename Bound::Key& key) {
  const auto found = std::find_if(bound.begin(), bound.end(), [&](const Bound& each) { return each.key == key; });
  if (found != bound.end())
    bound.splice(bound.begin(), bound, found);
  else
    bound.emplace_front(rounds, key);
  if (bound.size() > kMaxBindings) bound.pop_back();
  return bound.front();
}

// Return the bytes of a line of an array.
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
  if (const Tensor* const allowed = graph->input(names::kAllowed)) {  // of a bundle that takes constraints
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
  if (const Tensor* const each = graph->output(names::kNodes)) nodes = engine.host_view(names::kNodes, each->concrete_shape(widths));
  if (nodes.data && nodes.shape != Shape{rounds.manifest.batch_size, key.logit_rows}) refuse("nodes are not those of the window");
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

std::vector<const float*> VerifyPass::token_logits(size_t row, const int64_t* tokens, size_t count) const {
  const int64_t rows = logits.shape[1], vocabulary = logits.shape[2], line = static_cast<int64_t>(row) - key.rows.start;
  std::vector<const float*> found;
  for (size_t i = 0; i < count; ++i) {
    const int64_t at = static_cast<int64_t>(i);
    const int64_t node = nodes.data && at < rows ? nodes.ints()[static_cast<int64_t>(row) * rows + at] : at;
    if (node < 0 || node >= rows || tokens[i] < 0 || tokens[i] >= vocabulary)
      throw Error(Kind::kEngine, "the graph gave token " + std::to_string(tokens[i]) + " at node " + std::to_string(node), "build the bundle again");
    found.push_back(logits.floats() + (line * rows + node) * vocabulary);
  }
  return found;
}

Logprobs VerifyPass::logprobs(size_t row, const int64_t* tokens, size_t count, int64_t n_best) const {
  const std::vector<const float*> before = token_logits(row, tokens, count);
  Logprobs found;
  for (size_t i = 0; i < count; ++i) found.add(before[i], static_cast<size_t>(logits.shape[2]), tokens[i], n_best);
  return found;
}

CatchUp::CatchUp(BoundGraphs& rounds, const Key& key) : key(key) {
  const Widths widths = {{names::kWindow, key.width}, {names::kCatchUp, key.width + 1}, {names::kHistory, key.history}};
  run = rounds.engine.bind(graph::kDraft, widths, false, key.rows);
  path = rounds.engine.host_view(names::kPath, {rounds.manifest.batch_size, key.width + 1});
}

BoundGraphs::BoundGraphs(Engine& engine, const Manifest& manifest)
    : engine(engine),
      manifest(manifest),
      supports_batch_slices(engine.supports_batch_slices()),
      length(count(names::kLength)),
      n_path(count(names::kNPath)),
      n_given(count(names::kNGiven)),
      n_total(count(names::kNTotal)) {}

const Graph* BoundGraphs::graph(const std::string& name) const {
  for (const Graph& each : manifest.graphs)
    if (each.name == name) return &each;
  return nullptr;
}

VerifyPass& BoundGraphs::forward(const VerifyPass::Key& key) { return recent(forwards_, *this, key); }

CatchUp& BoundGraphs::catch_up(int64_t tokens, int64_t history, const Span& rows) {
  int64_t width = 1;
  while (width < tokens) width *= 2;
  return recent(catch_ups_, *this, {std::min(width, manifest.prefill_chunk), history, rows});
}

namespace {

std::vector<Span> chunks_of(const Span& span, int64_t size, int64_t overlap, const ChunkStop* stop_at) {
  std::vector<Span> found;
  for (int64_t start = span.start; span.size() > 0;) {
    int64_t stop = std::min(start + size, span.stop);
    if (stop_at) stop = (*stop_at)(start + overlap, stop);
    found.push_back({start, stop});
    if (stop >= span.stop) break;
    if (stop - overlap <= start) refuse("prefill_chunk is " + std::to_string(size) + ": expected at least " + std::to_string(overlap + 1));
    start = stop - overlap;
  }
  return found;
}

}  // namespace

std::vector<std::vector<Span>> right_aligned_chunks(const std::vector<Span>& spans, int64_t size, int64_t overlap, const std::vector<ChunkStop>& stops) {
  if (size - overlap < 1) refuse("prefill_chunk is " + std::to_string(size) + ": expected at least " + std::to_string(overlap + 1));
  std::vector<std::vector<Span>> chunks, parts;
  size_t most = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    chunks.push_back(chunks_of(spans[i], size, overlap, stops.empty() ? nullptr : &stops[i]));
    most = std::max(most, chunks.back().size());
  }
  for (size_t left = most; left > 0; --left) {
    std::vector<Span>& row = parts.emplace_back();
    for (size_t i = 0; i < spans.size(); ++i) row.push_back(chunks[i].size() >= left ? chunks[i][chunks[i].size() - left] : Span{spans[i].start, spans[i].start});
  }
  return parts;
}

}  // namespace spc
