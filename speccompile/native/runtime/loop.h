// The loop: prefill, then rounds (runtime/loop.py). It knows graphs, buffers and counts, and no drafter.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "drafting.h"
#include "rounds.h"
#include "sampling.h"
#include "stopwatch.h"

namespace spc {

// Runs one batch at a time over one engine's buffers. What its graphs read and write is known by their names.
class Loop {
 public:
  // on_device: the engine runs on a GPU.
  Loop(Engine& engine, const Manifest& manifest, bool on_device);

  // Who drafts from now on, where no graph does; empty for nobody.
  void propose_with(Proposer proposer) { drafting_.propose_with(std::move(proposer)); }
  // How far drafts came true elsewhere, before the first batch.
  void expect(const Measured& measured) { drafting_.expect(measured); }
  // A batch begins; the next `step` is its prefill. adaptive: rounds draft as much as pays, wherever that changes no token.
  void begin(Rows& rows, bool speculative, bool adaptive);
  // The prefill, or a round, rows updated; nothing once every row has ended.
  void step(Rows& rows);

  Seconds seconds;

 private:
  void feed(Rows& rows, const std::vector<int64_t>& since);
  void feed(Rows& rows, const std::vector<int64_t>& since, const Span& lines, bool last);
  void decode(Rows& rows);
  double verify(Forward& forward, Rows& rows, bool taking);
  void advance(Forward& forward, const Rows& rows, const Ran& ran);
  Forward& forward(int64_t window, int64_t logit_rows, const Rows& rows, const Span& lines, bool taking);

  const Manifest& manifest_;
  Rounds rounds_;
  Stopwatch watch_;
  Drafting drafting_;
  std::optional<Sampler> sampler_;
  std::optional<Array> parents_;
  bool logprobs_ = false, is_new_ = false;
};

}  // namespace spc
