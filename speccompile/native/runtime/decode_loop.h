// The loop: prefill, then rounds (runtime/loop.py). It knows graphs, buffers and counts, and no drafter.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "draft_controller.h"
#include "bound_graphs.h"
#include "sampling_inputs.h"
#include "stopwatch.h"

namespace spc {

// Runs one batch at a time over one engine's buffers. What its graphs read and write is known by their names.
class DecodeLoop {
 public:
  // on_device: the engine runs on a GPU.
  DecodeLoop(Engine& engine, const Manifest& manifest, bool on_device);

  // Who drafts from now on, where no graph does; empty for nobody.
  void set_proposer(Proposer proposer) { drafting_.set_proposer(std::move(proposer)); }
  // How far drafts came true elsewhere, before the first batch.
  void expect_acceptance(const MeasuredAcceptance& measured) { drafting_.expect_acceptance(measured); }
  // A batch begins; the next `step` is its prefill. adaptive: rounds draft as much as pays, wherever that changes no token.
  void begin(Rows& rows, bool speculative, bool adaptive);
  // The prefill, or a round, rows updated; nothing once every row has ended.
  void step(Rows& rows);

  Seconds seconds;

 private:
  void prefill(Rows& rows, const std::vector<int64_t>& since);
  void prefill(Rows& rows, const std::vector<int64_t>& since, const Span& lines, bool last);
  void decode(Rows& rows);
  double verify(VerifyPass& forward, Rows& rows, bool taking);
  void prepare_next_windows(VerifyPass& forward, const Rows& rows, const RunInfo& ran);
  VerifyPass& forward(int64_t window, int64_t logit_rows, const Rows& rows, const Span& lines, bool taking);

  const Manifest& manifest_;
  BoundGraphs rounds_;
  Stopwatch watch_;
  DraftController drafting_;
  std::optional<SamplingInputs> sampler_;
  std::optional<Array> parents_;
  bool logprobs_ = false, is_new_ = false;
};

}  // namespace spc
