// Graphs of a round, bound to their buffers once per set of widths, and the host's arrays (runtime/rounds/bound_graphs.py).
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "engine.h"
#include "logprobs.h"

namespace spc {

class BoundGraphs;

// Target run over a window, its arrays, and the draft run that reads its path. Arrays have a line per batch slot.
class VerifyPass {
 public:
  // allowed: width of that input, see TokenMasks. media: rows of pictures, see MediaInputs. adjusted: width of those inputs, see LogitAdjustments. fused: the pass of the `step` graph, which also drafts. fed: the pass is part of a prefill, all of whose tokens the drafter
  // reads. rows: its batch slots.
  struct Key {
    int64_t window, logit_rows, history, allowed;
    bool fused, logprobs, fed;
    Span rows;
    int64_t media = 1, adjusted = 1;
    bool operator==(const Key& other) const { return tie() == other.tie(); }

   private:
    std::tuple<int64_t, int64_t, int64_t, int64_t, bool, bool, bool, Span, int64_t, int64_t> tie() const {
      return {window, logit_rows, history, allowed, fused, logprobs, fed, rows, media, adjusted};
    }
  };

  VerifyPass(BoundGraphs& rounds, const Key& key);
  // Return the run of the drafter over the path of this run: it writes the window of the next round.
  const Run& draft();
  // Copy the drafts of a fused `step` into the window of the next round.
  void copy_next_inputs() const;
  // Return the logits [V] before each of a row's new tokens of this round. row: number in the batch.
  std::vector<const float*> token_logits(size_t row, const int64_t* tokens, size_t count) const;
  // Return the log-probabilities of a row's new tokens of this round, and of the `n_best` best ones.
  Logprobs logprobs(size_t row, const int64_t* tokens, size_t count, int64_t n_best) const;

  const Key key;
  const Widths widths;
  Run verify;
  bool has_run = false, has_drafted = false;  // at these sizes: a first run allocates memory and is slower
  Array window, path, logits;  // int64 [B, W], int64 [B, W + 1], float32 [rows, logit_rows, V] where it was bound with them
  Array nodes;                 // of trees int64 [B, logit_rows]: the node before each new token of a slot

 private:
  BoundGraphs& rounds_;
  Run draft_;
  std::vector<std::pair<Array, Array>> copies_;
};

// Run of the drafter alone. path int64 [B, W + 1]: the tokens that it reads.
struct CatchUp {
  struct Key {
    int64_t width, history;
    Span rows;
    bool operator==(const Key& other) const { return width == other.width && history == other.history && rows == other.rows; }
  };

  CatchUp(BoundGraphs& rounds, const Key& key);

  const Key key;
  Run run;
  Array path;
};

// One run of the target. width: of the decoding window; prefill_tokens: most prompt tokens of a slot, 0 in a round; is_reread:
// committed tokens that a drafter missed run again; is_first: no run had these sizes before; nodes: of the pass.
struct RunInfo {
  int64_t width, prefill_tokens;
  bool is_reread, is_first;
  Array nodes;
};

// Counts of a bundle, and its bound graphs.
class BoundGraphs {
 public:
  BoundGraphs(Engine& engine, const Manifest& manifest);
  // Return the pass of the target at these widths.
  VerifyPass& forward(const VerifyPass::Key& key);
  // Return the drafter's run over `tokens` committed tokens and the next one. A few widths serve all numbers.
  CatchUp& catch_up(int64_t tokens, int64_t history, const Span& rows);
  const Graph* graph(const std::string& name) const;
  Span all() const { return {0, manifest.batch_size}; }

  Engine& engine;
  const Manifest& manifest;
  const bool supports_batch_slices;  // a run may cover a slice of the batch slots
  int64_t *const length, *const n_path, *const n_given, *const n_total;  // [B] each

 private:
  int64_t* count(const char* name) { return engine.host_view(name, {manifest.batch_size}).ints(); }

  // The most recently used one first.
  std::list<VerifyPass> forwards_;
  std::list<CatchUp> catch_ups_;
};

// Start of a chunk and where it would end -> where it ends, at most `size` tokens after its start.
using ChunkStop = std::function<int64_t(int64_t start, int64_t stop)>;

// Split spans into chunks of at most `size`. Chunk i of all spans runs together; shorter spans begin later, so that all end
// with the last chunk.
//
// A chunk begins with the last `overlap` positions of the chunk before it. Before a span begins, its chunks are empty.
// stops: of each span, by default anywhere.
std::vector<std::vector<Span>> right_aligned_chunks(const std::vector<Span>& spans, int64_t size, int64_t overlap = 0, const std::vector<ChunkStop>& stops = {});

}  // namespace spc
