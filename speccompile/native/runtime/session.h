// A generation over buffers of its own: prompts in, text or tokens out, a round at a time (runtime/bundle.py: Batch).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "bundle.h"
#include "drafter_state.h"
#include "decode_loop.h"

namespace spc {

// For one thread at a time, but `cancel`.
class Session {
 public:
  explicit Session(std::shared_ptr<const Bundle> bundle);

  // Who drafts from now on, in the place of the bundle's own index; empty for that one. A generation under way is dropped.
  // Throws Error(kUsage) where the bundle's graphs alone draft.
  void set_proposer(Proposer proposer);
  // That a round verifies.
  size_t max_draft_tokens() const { return static_cast<size_t>(bundle_->manifest().tokens); }

  // What its drafter has learned, and keeps from one generation to the next; at any time between two steps.
  const PersistentState& kept() const { return kept_; }

  // Checks the request and copies it; runs nothing. A generation under way is dropped. Throws Error(kPrompt) for a prompt that
  // the bundle cannot take, Error(kUsage) for an option that it cannot.
  void start(const Request& request);
  // The prefill, then one round a call; false once every row has ended. Throws Error(kCancelled) when it was cancelled: the
  // round has left nothing behind, and the generation is over.
  bool step();
  // From any thread: the step under way, or the next one.
  void cancel() { engine_->stop(); }

  size_t rows() const { return rows_.size(); }
  // What the last step has added; what steps before it have added as well, where nobody asked then. Throws Error(kUsage) for
  // a row that is not there.
  const std::string& new_text(size_t row);
  const TokenIds& new_tokens(size_t row);
  // What a row has until now: the object of `generate --json`, and what else a generation knows.
  Json result(size_t row);
  const TokenIds& tokens(size_t row) const { return at(row).token_ids; }
  const SequenceState& at(size_t row) const;
  // Of the prefill, and of every round.
  const std::vector<double>& round_seconds() const { return seconds_; }

 private:
  // What of a row was given away, and in which step.
  struct Delivered {
    size_t text = 0, tokens = 0, text_step = 0, tokens_step = 0;
    std::string piece;
    TokenIds ids;
  };
  enum class State { kIdle, kRunning, kFinished };

  const std::shared_ptr<const Bundle> bundle_;
  const std::unique_ptr<Engine> engine_;
  const PersistentState kept_;
  DecodeLoop loop_;
  Rows rows_;
  std::vector<Delivered> shown_;
  std::vector<double> seconds_;
  size_t steps_ = 0;
  bool has_proposer_ = false, speculative_ = false;
  State state_ = State::kIdle;
};

}  // namespace spc
