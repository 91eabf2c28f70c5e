// Session: generation over separate buffers, prompts in, text or tokens out, one round at a time (runtime/bundle.py).
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decoder.h"
#include "generation_result.h"

namespace spc {

// Session over a bundle. Not thread-safe, except `cancel`.
class Session {
 public:
  explicit Session(std::shared_ptr<const Bundle> bundle);

  // Set a proposer that replaces the bundle's own index; empty restores the index. Drops the current generation. Throws
  // Error(kUsage) if only graphs draft in this bundle.
  void set_proposer(Proposer proposer);
  const Bundle& bundle() const { return *decoder_.bundle; }
  // Return the maximum number of drafts that a round verifies.
  size_t max_draft_tokens() const { return static_cast<size_t>(decoder_.bundle->manifest().tokens); }

  // Return the drafter's persistent state; valid between two steps.
  const PersistentState& kept() const { return decoder_.kept; }

  // Load or unload an adapter of the target: see `Adapters`. Drops the current generation.
  void load_adapter(const std::string& name, const std::string& folder);
  void unload_adapter(const std::string& name);

  // Write the text of the latest generation of one prompt, which ends if it is under way, and the states that it left, into a
  // file. Throws Error(kUsage) if there is none, or the file cannot be written.
  void save(const std::string& path);
  // Restore what `save` wrote, in either runtime, and return its tokens; the next generation of one prompt goes on from the tokens
  // with which both begin. Drops the current generation. adapter: name of that generation's, "" for the base; none if it is not
  // known yet. is_replaced: whether that generation writes the file. Throws Error(kUsage), with nothing changed, for a file that is
  // damaged, of another bundle or of another adapter, or with notes that would be lost.
  const TokenIds& load(const std::string& path, const std::optional<std::string>& adapter = std::nullopt, bool is_replaced = false);

  // Let the next generation of one prompt go on from the tokens with which it begins as the last one did.
  void reuse_last() { decoder_.loop.resume = decoder_.loop.left; }

  // Let the next generation encode its source, also one that the last one had.
  void forget_sources() { decoder_.loop.forget_sources(); }

  // Check and copy the request; run nothing. Drops the current generation. Throws Error(kPrompt) for an invalid prompt,
  // Error(kUsage) for an invalid option.
  void start(const Request& request);
  // Run the prefill, then one round per call; return false once every row has ended. Throws Error(kCancelled) if cancelled: the
  // round leaves no trace, and the generation is over.
  bool step();
  // Cancel the current step, or the next one. Thread-safe.
  void cancel() { decoder_.engine->stop(); }

  size_t rows() const { return rows_.size(); }
  // Return what the last step added, and what earlier steps added if it was not fetched then. Throws Error(kUsage) for an
  // unknown row.
  const std::string& new_text(size_t row);
  const TokenIds& new_tokens(size_t row);
  // Return the current result of a row: the object of `generate --json`, and further fields of a generation.
  Json result(size_t row);
  const TokenIds& tokens(size_t row) const { return at(row).token_ids; }
  const SequenceState& at(size_t row) const;
  // Return the seconds of the prefill and of every round.
  const std::vector<double>& round_seconds() const { return seconds_; }

 private:
  // Text and tokens of a row that were delivered, and in which step.
  struct Delivered {
    size_t text = 0, tokens = 0, text_step = 0, tokens_step = 0;
    std::string piece;
    TokenIds ids;
  };
  enum class State { kIdle, kRunning, kFinished };

  std::map<int64_t, SlotContent> shipped_prefixes();

  Decoder decoder_;
  TokenIds loaded_;
  Rows rows_;
  std::vector<Delivered> shown_;
  std::vector<double> seconds_;
  size_t steps_ = 0;
  bool speculative_ = false;
  State state_ = State::kIdle;
};

}  // namespace spc
