// The graphs of a round bound to their buffers, once for every set of widths, and the arrays that the host sees
// (runtime/rounds.py).
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "engine.h"

namespace spc {

class BoundGraphs;

// The target over a window, the arrays around it, and the draft that reads its path. Arrays have a line for every row of the
// batch.
class VerifyPass {
 public:
  struct Key {
    int64_t window, logit_rows, history;
    bool fused, logprobs;
    Span rows;  // of the batch
    bool operator==(const Key& other) const { return tie() == other.tie(); }

   private:
    std::tuple<int64_t, int64_t, int64_t, bool, bool, Span> tie() const { return {window, logit_rows, history, fused, logprobs, rows}; }
  };

  VerifyPass(BoundGraphs& rounds, const Key& key);
  // The drafter over the path of this run: it writes the window of the next round.
  const Run& draft();
  // Make what a `step` has drafted the window of the next round.
  void copy_next_inputs() const;
  // Log-probabilities of a row's new tokens of this round, whose number is that in the batch.
  std::vector<double> logprobs(size_t row, const int64_t* tokens, size_t count) const;

  const Key key;
  const Widths widths;
  Run verify;
  Array window, path, logits;  // int64 [B, W], int64 [B, W + 1], float32 [rows, logit_rows, V] where it was bound with them

 private:
  BoundGraphs& rounds_;
  Run draft_;
  std::vector<std::pair<Array, Array>> copies_;
  Array nodes_;
};

// A run of the drafter alone. path int64 [B, W + 1]: what it reads.
struct CatchUp {
  Run run;
  Array path;
};

// A bundle's counts, and what of its graphs has been bound.
class BoundGraphs {
 public:
  BoundGraphs(Engine& engine, const Manifest& manifest);
  // A run of the target at these widths. fused: of the `step` graph, which drafts as well.
  VerifyPass& forward(const VerifyPass::Key& key);
  // A run of the drafter over so many committed tokens and the next. Few widths serve all numbers of them.
  CatchUp& catch_up(int64_t tokens, int64_t history);
  const Graph* graph(const std::string& name) const;
  Span all() const { return {0, manifest.batch_size}; }

  Engine& engine;
  const Manifest& manifest;
  int64_t *const length, *const n_path, *const n_given, *const n_total;  // [B] each

 private:
  int64_t* count(const char* name) { return engine.host_view(name, {manifest.batch_size}).ints(); }

  std::list<VerifyPass> forwards_;  // the one used last stands first
  std::map<std::pair<int64_t, int64_t>, CatchUp> catch_ups_;
};

// Spans in parts of at most `size`, one part of each at a time. Shorter ones begin later, so that all end together.
//
// A part begins with the last `overlap` of the part before it. The part of a span that has not begun is empty, at its start.
std::vector<std::vector<Span>> right_aligned_chunks(const std::vector<Span>& spans, int64_t size, int64_t overlap = 0);

}  // namespace spc
