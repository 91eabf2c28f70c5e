// One sequence of a request, from its submission to its end (serving/scheduler/scheduled.py).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../runtime/generation_result.h"
#include "request.h"

namespace spc {

// Terms on which a request is served. client: its name, for `Limits::client_rows`; salt: only requests with the same one share
// cached tokens; reuse: whether cached tokens of other texts may serve it, and its own may serve others. priority: lower numbers
// get a slot earlier, see `Limits::by_priority`.
struct Terms {
  std::string client, salt;
  bool reuse = true;
  int64_t priority = 0;
};

// arrival_time: by the service's clock.
struct ScheduledSequence {
  ScheduledSequence(std::shared_ptr<ServedRequest> request, int64_t index, SequenceState row, bool speculative, bool adaptive, Terms terms,
                    double arrival_time)
      : request(std::move(request)), index(index), row(std::move(row)), speculative(speculative), adaptive(adaptive), terms(std::move(terms)), arrival_time(arrival_time) {}

  // Return the salt with the source: only sequences with the same one share cached tokens.
  std::string sharing_salt() const { return terms.salt + row.source_key(); }
  // Return whether two sequences have in common what they must to share cached tokens: the salt, the source and the adapter.
  bool shares_with(const ScheduledSequence& other) const { return sharing_salt() == other.sharing_salt() && row.adapter_key == other.row.adapter_key; }
  // Return whether it gets a slot earlier than another one.
  bool is_before(const ScheduledSequence& other) const {
    return std::tie(terms.priority, arrival_time, index) < std::tie(other.terms.priority, other.arrival_time, other.index);
  }
  // Return whether it counts in the queue: as its request, or on its own once it has had a slot.
  bool is_head() const { return index == 0 || start_time; }
  // Return whether it has waited for longer than `limit`. Once its request has begun, it never has.
  bool is_late(const std::optional<double>& limit, double now) const { return limit && now - arrival_time > *limit && !request->begun; }
  // Tokens in the caches after the prefill: all but the last token, which the next round reads.
  TokenIds cached_token_ids() const;
  // Return whether tokens have come since `record_tokens`.
  bool has_new_tokens() const { return row.path_lengths.size() > rounds_; }
  // Record new tokens. Return their number, and the seconds since the previous ones; nullopt for the first.
  std::pair<int64_t, std::optional<double>> record_tokens(double now);
  // Deliver the output since the last call. finished: the finished sequence, with the last delta.
  void emit(std::shared_ptr<const FinishedSequence> finished = nullptr);
  // Return its times until now.
  GenerationTimes spent(double now) const;

  const std::shared_ptr<ServedRequest> request;
  const int64_t index;
  SequenceState row;
  const bool speculative, adaptive;
  const Terms terms;
  const double arrival_time;
  std::optional<int64_t> slot;
  int64_t cached = 0;
  std::optional<double> start_time, last_token_time, first_token_time;  // it got its first slot; its last tokens; its first
  std::vector<double> gaps;         // seconds between the tokens of consecutive rounds
  double verify = 0, draft = 0;     // seconds of its rounds

 private:
  std::pair<int64_t, int64_t> last_round();

  size_t shown_ = 0, told_ = 0, rounds_ = 0, emitted_rounds_ = 0;
};

}  // namespace spc
