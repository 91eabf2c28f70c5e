// Decode loop: prefill, then rounds (runtime/rounds/decode_loop.py). It handles graphs, buffers and counts, but no drafter.
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

// Loop that runs one batch at a time over one engine's buffers, which it finds by name.
class DecodeLoop {
 public:
  // on_device: the engine runs on a GPU.
  DecodeLoop(Engine& engine, const Manifest& manifest, bool on_device);

  // Set the proposer of drafts, for rounds in which no graph drafts; empty for none.
  void set_proposer(Proposer proposer) { drafting_.set_proposer(std::move(proposer)); }
  // Set the acceptance measured elsewhere, before the first batch.
  void expect_acceptance(const MeasuredAcceptance& measured) { drafting_.expect_acceptance(measured); }
  // Set or return the costs of rounds, see `DraftLengthPolicy`.
  void expect_times(const Json& times) { drafting_.expect_times(times); }
  std::optional<Json> measured_times() const { return drafting_.measured_times(); }
  double autoregressive_seconds() const { return drafting_.autoregressive_seconds(); }
  // Begin a batch; the next `step` is its prefill. adaptive: adapt the draft length wherever that changes no token.
  void begin(Rows& rows, bool speculative, bool adaptive);
  // Run the prefill or a round and update the rows; do nothing once every row has ended.
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
