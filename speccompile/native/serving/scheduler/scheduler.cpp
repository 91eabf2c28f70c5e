#include "scheduler.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "../../contract_table.h"
#include "../../images/media.h"
#include "pictures.h"

namespace spc {
namespace {

// Return the requests of some sequences, each once, in their order.
std::vector<std::shared_ptr<ServedRequest>> requests_of(const std::vector<Scheduled>& sequences) {
  std::vector<std::shared_ptr<ServedRequest>> found;
  for (const Scheduled& served : sequences)
    if (std::find(found.begin(), found.end(), served->request) == found.end()) found.push_back(served->request);
  return found;
}

int64_t prompt_size(const ScheduledSequence& served) { return static_cast<int64_t>(served.row.prompt.size()); }

}  // namespace

Scheduler::Scheduler(std::shared_ptr<const Bundle> bundle, const Limits& limits, Observer& observer,
                     const std::map<std::string, std::string>& adapters, Now clock)
    : limits_(limits),
      observer_(observer),
      clock_(std::move(clock)),
      decoder_(std::move(bundle)),
      loop_(decoder_.loop),
      slots_(decoder_.bundle->manifest().batch_size, [this](int64_t slot, int64_t count) { return loop_.usable(slot, count); }),
      waiting_(limits_) {
  limits_.check();
  if (!limits_.sessions.empty()) kept_.emplace(limits_.sessions, limits_.sessions_gb, decoder_.saved, loop_);
  for (const auto& [name, folder] : adapters) decoder_.adapters.load(name, folder);
}

int64_t Scheduler::waiting() const {
  const std::lock_guard<std::mutex> held(mutex_);
  return waiting_.requests();
}

std::shared_ptr<const Error> Scheduler::failure() const {
  const std::lock_guard<std::mutex> held(mutex_);
  return failure_;
}

bool Scheduler::is_idle() const {
  const std::lock_guard<std::mutex> held(mutex_);
  return waiting_.is_empty() && running_ == 0;
}

bool Scheduler::wait_for_work() {
  std::unique_lock<std::mutex> held(mutex_);
  const auto is_idle = [this] { return waiting_.is_empty() && running_ == 0; };
  changed_.wait(held, [&] { return closing_ || !is_idle(); });
  return !is_idle();
}

void Scheduler::drain(bool cancels) {
  {
    const std::lock_guard<std::mutex> held(mutex_);
    closing_ = true;
    if (cancels) cancelled_ = true;
  }
  changed_.notify_all();
}

void Scheduler::step() {
  finish_expired();
  admit();
  decode();
  read();
  report();
}

// End sequences that are cancelled or exceed a time limit.
void Scheduler::finish_expired() {
  const double now = clock_();
  std::vector<Scheduled> over, late;
  int64_t tokens = 0;
  {
    const std::lock_guard<std::mutex> held(mutex_);
    over = waiting_.pop_expired([&](const ScheduledSequence& served) { return !end_of(served, now).empty(); });
    late = waiting_.pop_expired([&](const ScheduledSequence& served) { return served.is_late(limits_.queue_seconds, now); });
    tokens = waiting_.tokens();
  }
  const std::vector<Scheduled> present = slots_.running();
  over.insert(over.end(), present.begin(), present.end());
  for (const Scheduled& served : over) {
    const std::string reason = end_of(*served, now);
    if (reason.empty()) continue;
    served->row.finish(reason);
    end(served);
  }
  for (const auto& request : requests_of(late)) {
    observer_.refused("queue_seconds");
    const std::string message = "no row was free within " + Json(*limits_.queue_seconds).repr() + " seconds";
    request->deliver(std::make_shared<const OverloadedError>(message, retry_after(tokens)));
  }
}

// Return the reason why a sequence has to end now, or "". A sequence whose prompt leaves no capacity has ended.
std::string Scheduler::end_of(const ScheduledSequence& served, double now) const {
  if (served.request->is_cancelled() || cancelled_) return finish::kCancelled;
  if (limits_.seconds && now - served.arrival_time > *limits_.seconds) return finish::kTimeout;
  return served.row.finish_reason;
}

// Assign a batch slot to the next sequence, unless another sequence is still in its prefill.
void Scheduler::admit() {
  if (!has_room()) return;
  const std::vector<Scheduled> present = slots_.running();
  const Scheduled served = reading_ ? reading_ : next(present);
  if (!served || (kept_ && !kept_->has_read(present.empty()))) return;
  const SlotAssignment place = slots_.choose(*served);
  const double now = clock_();
  const bool is_first = !served->start_time;
  const std::optional<int64_t> found = restored(*served, place);
  const int64_t reuse = found ? *found : copied(*served, place);
  slots_.assign(place.slot, served);
  const int64_t cached = loop_.admit(place.slot, served->row, served->speculative, served->adaptive, reuse);
  {
    const std::lock_guard<std::mutex> held(mutex_);
    publish();
  }
  served->cached = is_first ? cached : std::min(cached, served->cached);
  if (!is_first) return;
  served->start_time = now;
  served->request->begun = true;
  observer_.admitted(prompt_size(*served), cached, now - served->arrival_time);
}

// Take a sequence out of the queue whose pictures are encoded, and begin to read the file that its prompt goes on from.
Scheduled Scheduler::next(const std::vector<Scheduled>& present) {
  const ClientRows of_client = client_rows(present);
  AwaitedPictures pictures(slots_);
  {
    const std::lock_guard<std::mutex> held(mutex_);
    reading_ = waiting_.pop([&](const ScheduledSequence& each) { return may_begin(each, of_client) && !pictures.lacks(each); });
    if (reading_) publish();
  }
  if (!reading_) {
    if (present.empty()) pictures.wait();  // the caller has nothing else to do
    return nullptr;
  }
  if (present.empty()) loop_.start();
  if (kept_ && reading_->terms.reuse)
    kept_->read_ahead(reading_->row.identity(), {reading_->terms.salt, reading_->row.adapter_key}, slots_.choose(*reading_).reuse);
  return reading_;
}

// Return the number of slots that are taken, with that of a sequence whose file is being read.
int64_t Scheduler::taken() const { return static_cast<int64_t>(slots_.running().size()) + (reading_ && !reading_->slot ? 1 : 0); }

// Restore a longer prefix of the prompt, and of the tokens so far, than a slot holds, from the folder of sessions or from the bundle:
// of recurrent states only the whole text of a file. Return the number of cached tokens, nullopt if none was restored.
std::optional<int64_t> Scheduler::restored(const ScheduledSequence& served, const SlotAssignment& place) {
  if (!served.terms.reuse) return std::nullopt;
  const TokenIds text = served.row.identity();
  const auto length = [&](const SlotContent& content) { return common_prefix_length(content.tokens, served.cached_token_ids()); };
  std::optional<SlotContent> found;
  if (kept_) found = kept_->restore(text, {served.terms.salt, served.row.adapter_key}, place.slot, place.reuse);
  if (!served.row.adapter) {
    std::optional<SlotContent> shipped = decoder_.prefixes.restore(text, place.slot, found ? length(*found) : place.reuse);
    if (shipped) found = std::move(shipped);
  }
  if (!found) return std::nullopt;
  loop_.hold(*found);
  return loop_.resumable(*found, served.row, served.speculative);
}

// Copy the slot that holds the longest prefix of the prompt to the assigned slot if that pays. Return the number of cached tokens.
//
// Always copy for all sequences of a prompt except the first: a prompt is prefilled only once.
int64_t Scheduler::copied(const ScheduledSequence& served, const SlotAssignment& place) {
  if (!place.source) return place.reuse;
  const int64_t own = slots_.cached_prefix_length(place.slot, served);
  if (served.index == 0 && !costs_.pays_to_copy(place.reuse - own)) return own;
  const double start = clock_();
  loop_.copy(*place.source, place.slot);
  costs_.record_copy(clock_() - start);
  return place.reuse;
}

// Run one round of all decoding slots.
void Scheduler::decode() {
  if (running_ <= (reading_ ? 1 : 0)) return;
  const double start = clock_();
  const Parts before = loop_.seconds;
  loop_.decode();
  costs_.record_round(clock_() - start);
  distribute(before);
}

// Prefill a chunk of a prompt, small while others decode; more prompts follow until half its time is taken.
void Scheduler::read() {
  const int64_t decoding = running_ - 1, waiting = 1 + std::min(queued(), slots_.size() - running_);
  std::optional<int64_t> most = costs_.chunk(waiting, decoding);
  for (int64_t taken = 0; most != 0;) {
    const int64_t count = prefill(most);
    if (!most || !count || reading_) return;
    taken += std::max(count, kSmallestChunk);
    most = costs_.chunk(waiting, decoding, taken);
    if (most != 0) admit();
  }
}

// Prefill a chunk of the prompt in progress. Return its number of tokens, 0 while there is none to read.
int64_t Scheduler::prefill(std::optional<int64_t> most) {
  const Scheduled served = reading_;
  if (!served || !served->slot) return 0;
  images::SequenceMedia* const media = served->row.media.get();
  if (media && !media->prepare(served->cached, running_ == 1)) return 0;  // another slot no longer holds what it did: a picture is encoded beside rounds
  const double start = clock_();
  const Parts before = loop_.seconds;
  const int64_t count = loop_.prefill(*served->slot, most);
  costs_.record_prefill(count, clock_() - start);
  token_seconds_ = costs_.prefill_seconds(1);
  given_ += count;
  if (loop_.is_prefilled(*served->slot)) {
    reading_ = nullptr;
    if (!loop_.supports_prefix_reuse) keep(*served, loop_.content(*served->slot));  // rounds move states beyond the text
  }
  distribute(before);
  return count;
}

// Deliver the tokens of a run to all decoding sequences, and to one whose prefill it has completed. Without batch slices, slots
// decode while a prompt is prefilled. before: the loop's seconds before the run.
void Scheduler::distribute(const Parts& before) {
  const double now = clock_(), verify = loop_.seconds.verify - before.verify, draft = loop_.seconds.draft - before.draft;
  std::vector<Scheduled> fresh;
  std::vector<int64_t> drafts, accepted;
  for (const Scheduled& served : slots_.running()) {
    if (!served->has_new_tokens()) continue;
    fresh.push_back(served);
    if (!served->first_token_time) continue;
    drafts.push_back(served->row.draft_lengths.back());
    accepted.push_back(drafts.back() ? served->row.path_lengths.back() - 1 : 0);
  }
  int64_t tokens = 0;
  for (const Scheduled& served : fresh) {
    served->row.read();
    const auto [count, gap] = served->record_tokens(now);
    given_ += count;
    if (!gap) {
      observer_.first_token(now - served->arrival_time);
      continue;
    }
    observer_.inter_token_latency(*gap, count);
    served->verify += verify;
    served->draft += draft;
    tokens += count;
  }
  if (!drafts.empty()) observer_.round(tokens, drafts, accepted);
  for (const Scheduled& served : fresh) {  // deltas are delivered after they have been counted
    if (served->row.is_active())
      served->emit();
    else
      end(served);
  }
}

// End a sequence: release its slot and deliver the rest of its output.
void Scheduler::end(const Scheduled& served) {
  if (served == reading_) reading_ = nullptr;
  if (served->slot) {
    slots_.release(*served, loop_.release(*served->slot).tokens);
    keep(*served, loop_.left);
    const std::lock_guard<std::mutex> held(mutex_);
    publish();
  }
  std::shared_ptr<const FinishedSequence> made = finished(*served);
  observer_.ended(*made);
  served->emit(std::move(made));
}

// Keep a text for later services.
void Scheduler::keep(const ScheduledSequence& served, const std::optional<SlotContent>& content) {
  if (kept_ && served.terms.reuse) kept_->keep({served.terms.salt, served.row.adapter_key}, content);
}

std::shared_ptr<const FinishedSequence> Scheduler::finished(ScheduledSequence& served) {
  const GenerationTimes spent = served.spent(clock_());
  SequenceState& row = served.row;
  FinishedSequence made;
  made.text = row.text;
  made.finish_reason = row.finish_reason;
  made.token_ids = row.token_ids;
  made.logprobs = row.logprobs;
  made.top_logprobs = row.top_logprobs;
  made.path_lengths.assign(row.path_lengths.begin() + (row.path_lengths.empty() ? 0 : 1), row.path_lengths.end());
  made.draft_lengths.assign(row.draft_lengths.begin() + (row.draft_lengths.empty() ? 0 : 1), row.draft_lengths.end());
  made.prompt_tokens = prompt_size(served);
  made.cached_tokens = spent.cached_tokens;
  made.seconds = spent.seconds;
  made.prefill_seconds = spent.prefill;
  made.verify_seconds = spent.verify;
  made.draft_seconds = spent.draft;
  made.queue_seconds = spent.queue;
  made.first_token_seconds = spent.first_token;
  made.speculative = served.speculative;
  made.json = generation_json(*decoder_.bundle, row, spent, served.speculative);
  return std::make_shared<const FinishedSequence>(std::move(made));
}

// Report the present state to the observer.
void Scheduler::report() {
  tell_queue();
  int64_t tokens = 0;
  for (const Scheduled& served : slots_.running()) tokens += served->row.size();
  observer_.stepped(given_, static_cast<double>(tokens) / static_cast<double>(slots_.size() * decoder_.bundle->manifest().max_length));
  given_ = 0;
}

void Scheduler::tell_queue() { observer_.queued(waiting(), running()); }

// Return the seconds until the waiting prompts will have been prefilled, estimated from measured costs.
double Scheduler::retry_after(int64_t waiting_tokens) const { return std::max(1.0, token_seconds_ * static_cast<double>(waiting_tokens)); }

void Scheduler::fail(const Error& error) {
  const auto told = std::make_shared<const Error>(error);
  const std::vector<Scheduled> present = slots_.running();
  std::vector<Scheduled> all = present;
  {
    const std::lock_guard<std::mutex> held(mutex_);
    failure_ = told;
    const std::vector<Scheduled> waiting = waiting_.pop_expired([](const ScheduledSequence&) { return true; });
    all.insert(all.end(), waiting.begin(), waiting.end());
    if (reading_) all.push_back(reading_);  // it may have had no slot yet
    slots_.clear();
    reading_ = nullptr;
    publish();
  }
  for (const auto& request : requests_of(all)) {
    observer_.failed();
    request->deliver(told);
  }
  for (const Scheduled& served : present)
    if (loop_.slot(*served->slot).sequence) loop_.release(*served->slot);
  loop_.left.reset();  // the engine may have stopped in the middle of a run
  tell_queue();
}

}  // namespace spc
