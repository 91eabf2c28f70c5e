#include "waiting_queue.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace spc {
namespace {

bool is_head(const Scheduled& served) { return served->is_head(); }

}  // namespace

int64_t WaitingQueue::requests() const {
  return std::count_if(line_.begin(), line_.end(), is_head);
}

int64_t WaitingQueue::tokens() const {
  return std::accumulate(line_.begin(), line_.end(), int64_t{0}, [](int64_t sum, const Scheduled& served) {
    return is_head(served) ? sum + served->row.size() : sum;
  });
}

const char* WaitingQueue::exceeded_limit(int64_t tokens, int64_t free) const {
  if (requests() >= free + limits_.requests) return "requests";
  int64_t queued_tokens = 0, number = 0;
  for (const Scheduled& served : line_)
    if (is_head(served) && number++ >= free) queued_tokens += served->row.size();
  return number > free && queued_tokens + tokens > limits_.tokens ? "tokens" : nullptr;
}

void WaitingQueue::add(const std::vector<Scheduled>& sequences) {
  auto place = line_.end();
  while (place != line_.begin() && (*std::prev(place))->terms.priority > sequences[0]->terms.priority) --place;
  line_.insert(place, sequences.begin(), sequences.end());
}

std::vector<Scheduled> WaitingQueue::ahead_of(const ScheduledSequence& served) const {
  std::vector<Scheduled> found;
  std::copy_if(line_.begin(), line_.end(), std::back_inserter(found), [&](const Scheduled& other) { return other->terms.priority <= served.terms.priority; });
  return found;
}

void WaitingQueue::put_back(const Scheduled& served) {
  line_.insert(std::find_if(line_.begin(), line_.end(), [&](const Scheduled& other) { return served->is_before(*other); }), served);
}

Scheduled WaitingQueue::first(const std::function<bool(const ScheduledSequence&)>& may) const {
  const auto found = std::find_if(line_.begin(), line_.end(), [&](const Scheduled& served) { return may(*served); });
  return found == line_.end() ? nullptr : *found;
}

Scheduled WaitingQueue::pop(const std::function<bool(const ScheduledSequence&)>& may) {
  Scheduled served = first(may);
  if (served) line_.erase(std::find(line_.begin(), line_.end(), served));
  return served;
}

std::vector<Scheduled> WaitingQueue::pop_expired(const std::function<bool(const ScheduledSequence&)>& is_over) {
  std::vector<Scheduled> found;
  std::deque<Scheduled> kept;
  std::partition_copy(line_.begin(), line_.end(), std::back_inserter(found), std::back_inserter(kept),
                      [&](const Scheduled& served) { return is_over(*served); });
  line_ = std::move(kept);
  return found;
}

}  // namespace spc
