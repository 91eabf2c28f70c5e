// Schedulers: many requests at once over one bundle.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <thread>
#include <utility>

#include "../serving/scheduler/service.h"
#include "../serving/scheduler/totals.h"
#include "handles.h"

struct spc_scheduler {
  std::shared_ptr<const spc::Bundle> bundle;
  spc::Totals totals;
  spc::Service service;

  spc_scheduler(std::shared_ptr<const spc::Bundle> bundle, const spc::Limits& limits, const std::map<std::string, std::string>& adapters)
      : bundle(std::move(bundle)), service(this->bundle, limits, &totals, adapters) {}
};

struct spc_submission {
  std::shared_ptr<spc::ServedRequest> request;
};

struct spc_delta {
  spc::OutputDelta delta;
};

namespace spc {
namespace {

// A number of an option, as far as its type goes.
template <class Number>
Number number_of(const std::string& name, const std::string& value) {
  Number found{};
  const char* const end = value.data() + value.size();
  const auto [at, error] = std::from_chars(value.data(), end, found);
  if (error == std::errc() && at == end && std::isfinite(static_cast<double>(found))) return found;
  throw Error(Kind::kUsage, name + ": received " + python_repr(value) + ", expected a number", "leave it out for the default");
}

bool flag_of(const std::string& name, const std::string& value) {
  if (value == "true" || value == "false") return value == "true";
  throw Error(Kind::kUsage, name + ": received " + python_repr(value) + ", expected true or false", "leave it out for true");
}

// Calls `take` with each name and value of a list that is closed by NULL; it returns whether the name is known.
template <class Take>
void for_each_option(const char* const* options, const char* known, const Take& take) {
  for (; options && *options; options += 2) {
    const std::string name = options[0];
    require_pointer(options[1], options[0]);
    if (!take(name, std::string(options[1])))
      throw Error(Kind::kUsage, "received the option " + python_repr(name) + ", expected one of " + known, "options are names and values in turn, closed by NULL");
  }
}

std::pair<std::string, std::string> adapter_of(const std::string& value) {
  const size_t equals = value.find('=');
  if (equals != std::string::npos && equals > 0 && equals + 1 < value.size()) return {value.substr(0, equals), value.substr(equals + 1)};
  throw Error(Kind::kUsage, "adapter: received " + python_repr(value) + ", expected NAME=FOLDER", "the folder is one that PEFT wrote");
}

// Return whether requests have priorities.
bool policy_of(const std::string& value) {
  if (value == "fcfs" || value == "priority") return value == "priority";
  throw Error(Kind::kUsage, "scheduling_policy: received " + python_repr(value) + ", expected fcfs or priority", "or leave it out");
}

struct SchedulerOptions {
  Limits limits;
  std::map<std::string, std::string> adapters;
};

SchedulerOptions scheduler_options(const char* const* options) {
  SchedulerOptions made;
  Limits& limits = made.limits;
  for_each_option(options, "requests, tokens, sequences, queue_seconds, seconds, client_rows, reuse, scheduling_policy, adapter", [&](const std::string& name, const std::string& value) {
    if (name == "requests")
      limits.requests = number_of<int64_t>(name, value);
    else if (name == "tokens")
      limits.tokens = number_of<int64_t>(name, value);
    else if (name == "sequences")
      limits.sequences = number_of<int64_t>(name, value);
    else if (name == "queue_seconds")
      limits.queue_seconds = number_of<double>(name, value);
    else if (name == "seconds")
      limits.seconds = number_of<double>(name, value);
    else if (name == "client_rows")
      limits.client_rows = number_of<int64_t>(name, value);
    else if (name == "reuse")
      limits.reuse = flag_of(name, value);
    else if (name == "scheduling_policy")
      limits.by_priority = policy_of(value);
    else if (name == "adapter")
      made.adapters.insert(adapter_of(value));
    else
      return false;
    return true;
  });
  return made;
}

Terms terms_of(const char* const* options) {
  Terms terms;
  for_each_option(options, "client, salt, reuse, priority", [&](const std::string& name, const std::string& value) {
    if (name == "client")
      terms.client = value;
    else if (name == "salt")
      terms.salt = value;
    else if (name == "reuse")
      terms.reuse = flag_of(name, value);
    else if (name == "priority")
      terms.priority = number_of<int64_t>(name, value);
    else
      return false;
    return true;
  });
  return terms;
}

// Longest wait that a condition variable takes.
constexpr double kForEver = 1e8;

double checked_seconds(double seconds) {
  if (!std::isnan(seconds)) return seconds < 0 ? kForEver : std::min(seconds, kForEver);
  throw Error(Kind::kUsage, "seconds: received nan, expected a number", "below 0 is for ever");
}

}  // namespace
}  // namespace spc

extern "C" {

spc_error* spc_scheduler_create(const spc_bundle* bundle, const char* const* options, spc_scheduler** scheduler) {
  return spc::call_with({{bundle, "bundle"}, {scheduler, "scheduler"}}, [&] {
    const spc::SchedulerOptions asked = spc::scheduler_options(options);
    *scheduler = new spc_scheduler(bundle->bundle, asked.limits, asked.adapters);
  });
}

void spc_scheduler_free(spc_scheduler* scheduler) {
  spc_error_free(spc::call_guarded([&] {
    if (scheduler && scheduler->service.is_own_thread())
      std::thread([scheduler] { delete scheduler; }).detach();  // a wake-up has called this: it ends once that has returned
    else
      delete scheduler;
  }));
}

spc_error* spc_scheduler_close(spc_scheduler* scheduler, double seconds) {
  return spc::call_with({{scheduler, "scheduler"}}, [&] {
    const double most = spc::checked_seconds(seconds);
    if (scheduler->service.is_own_thread())
      throw spc::Error(spc::Kind::kUsage, "spc_scheduler_close: called by a wake-up, on the thread whose end it waits for", "call it from another thread");
    scheduler->service.close(true, seconds < 0 ? std::nullopt : std::optional<double>(most));
  });
}

spc_error* spc_scheduler_submit(spc_scheduler* scheduler, const spc_request* request, const char* const* terms, spc_submission** submission) {
  return spc::call_with({{scheduler, "scheduler"}, {request, "request"}, {submission, "submission"}}, [&] {
    auto made = std::make_unique<spc_submission>();
    const spc::Terms asked_terms = spc::terms_of(terms);
    made->request = spc::with_request(*request, *scheduler->bundle, [&](const spc::Request& asked) { return scheduler->service.submit(asked, asked_terms); });
    scheduler->totals.submitted();
    *submission = made.release();
  });
}

spc_error* spc_scheduler_stats(const spc_scheduler* scheduler, spc_result** stats) {
  return spc::call_with({{scheduler, "scheduler"}, {stats, "stats"}}, [&] {
    const spc::Service& service = scheduler->service;
    *stats = new spc_result{scheduler->totals.to_json(service.waiting(), service.running()).dump(), {}};
  });
}

size_t spc_submission_sequences(const spc_submission* submission) {
  return submission ? static_cast<size_t>(submission->request->sequences) : 0;
}

spc_error* spc_submission_next(spc_submission* submission, double seconds, spc_delta** delta, int* done) {
  return spc::call_with({{submission, "submission"}, {delta, "delta"}, {done, "done"}}, [&] {
    const double most = spc::checked_seconds(seconds);
    auto room = std::make_unique<spc_delta>();  // first: a delta that was taken must not be lost
    std::optional<spc::OutputDelta> found = submission->request->wait(most);
    const bool has_ended = !found && submission->request->has_ended();
    if (found) room->delta = std::move(*found);
    *delta = found ? room.release() : nullptr;
    *done = has_ended;
  });
}

spc_error* spc_submission_on_ready(spc_submission* submission, void (*wake)(void* user), void* user) {
  return spc::call_with({{submission, "submission"}}, [&] {
    std::function<void()> listener;
    if (wake) listener = [wake, user] { wake(user); };
    const std::shared_ptr<spc::ServedRequest> held = submission->request;  // `wake` may free the submission
    held->on_ready(std::move(listener));
  });
}

void spc_submission_cancel(spc_submission* submission) {
  if (submission) submission->request->cancel();
}

void spc_submission_free(spc_submission* submission) {
  spc_error_free(spc::call_guarded([&] {
    if (!submission) return;
    const std::unique_ptr<spc_submission> freed(submission);
    freed->request->on_ready({});
    if (!freed->request->has_ended()) freed->request->cancel();
  }));
}

size_t spc_delta_sequence(const spc_delta* delta) { return delta ? static_cast<size_t>(delta->delta.index) : 0; }

void spc_delta_text(const spc_delta* delta, const char** text, size_t* size) {
  if (text) *text = delta ? delta->delta.text.data() : "";
  if (size) *size = delta ? delta->delta.text.size() : 0;
}

void spc_delta_tokens(const spc_delta* delta, const int64_t** ids, size_t* count) {
  if (ids) *ids = delta ? delta->delta.token_ids.data() : nullptr;
  if (count) *count = delta ? delta->delta.token_ids.size() : 0;
}

spc_error* spc_delta_result(const spc_delta* delta, spc_result** result) {
  return spc::call_with({{delta, "delta"}, {result, "result"}}, [&] {
    const spc::FinishedSequence* const finished = delta->delta.finished.get();
    *result = finished ? new spc_result{finished->json.dump(), finished->token_ids} : nullptr;
  });
}

void spc_delta_free(spc_delta* delta) { delete delta; }

}  // extern "C"
