// Measured costs of rounds and of prefill on this machine (serving/scheduler/latency.py).
#pragma once

#include <cstdint>
#include <optional>

namespace spc {

// Moving averages of seconds of rounds, chunks and copies. They decide when tokens come, never which.
class LatencyEstimates {
 public:
  // Record the duration of a round, of a prefill chunk of `tokens` tokens, and of copying one slot's state to another slot.
  void record_round(double seconds);
  void record_prefill(int64_t tokens, double seconds);
  void record_copy(double seconds);
  // Return the expected seconds of a prefill of `tokens` tokens; 0 before any measurement.
  double prefill_seconds(int64_t tokens) const;
  // Return the number of prompt tokens to prefill between two rounds, nullopt for a full chunk. Only powers of two, because every
  // other width would have to be bound as well. waiting: sequences that have a slot or find one, whose prompts are not read;
  // decoding: sequences that wait for the next round; taken: tokens of other prompts since the last one. 0 follows once they have
  // taken more than half of what may be read.
  std::optional<int64_t> chunk(int64_t waiting, int64_t decoding, int64_t taken = 0) const;
  // Return whether a prefill of `tokens` tokens takes at least as long as copying a slot.
  bool pays_to_copy(int64_t tokens) const { return copy_ <= prefill_seconds(tokens); }

 private:
  double round_ = 0, copy_ = 0, seconds_ = 0, tokens_ = 0;
};

}  // namespace spc
