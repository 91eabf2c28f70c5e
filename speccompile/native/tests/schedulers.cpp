// Schedulers over the C ABI: requests of several threads, cancelled ones, those that are left at its end, and wrong calls.
//
//   test_schedulers BUNDLE LIBRARY_OF_ONNXRUNTIME [requests a thread]
#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "../include/speccompile_scheduler.hpp"
#include "asked.h"

namespace speccompile {
namespace {

constexpr int kThreads = 4;
constexpr uint64_t kDifferent = 8;  // requests, of which many begin alike

// One prompt, with what a session says to it alone.
struct Known {
  Tokens prompt;
  Answer answer;

  Request request() const { return Request().prompt(prompt).set("max_new_tokens", kNewTokens); }
};

std::vector<Known> known_of(const Bundle& bundle) {
  Session session(bundle);
  std::vector<Known> found;
  const Tokens base = asked_of(bundle, 1).prompts[0];
  for (uint64_t seed = 0; seed < kDifferent; ++seed) {
    Tokens prompt = seed % 2 ? base : Tokens();
    const Tokens own = asked_of(bundle, seed + 2).prompts[0];
    prompt.insert(prompt.end(), own.begin(), own.end());
    found.push_back({prompt, generate(session, {{prompt}, kNewTokens, "adaptive"})[0]});
  }
  return found;
}

void check_answer(const Submission& submission, const Known& known) {
  Tokens tokens;
  std::optional<Result> last;
  while (const std::optional<Delta> delta = submission.next()) {
    CHECK(!last && delta->sequence() == 0, "a delta behind the last one");
    const Tokens fresh = delta->tokens();
    tokens.insert(tokens.end(), fresh.begin(), fresh.end());
    last = delta->result();
  }
  CHECK(last.has_value() && last->tokens() == known.answer.tokens && tokens == known.answer.tokens, "other tokens than alone");
  CHECK(text_of(*last) == known.answer.text, "another text than alone: %s", text_of(*last).c_str());
}

// A submission that ends as cancelled, or before.
void check_cancelled(const Submission& submission, const Known& known) {
  submission.cancel();
  const std::vector<Result> results = submission.results();
  CHECK(results.size() == 1, "%zu sequences", results.size());
  const Tokens tokens = results[0].tokens();
  CHECK(tokens.size() <= known.answer.tokens.size() && std::equal(tokens.begin(), tokens.end(), known.answer.tokens.begin()), "other tokens than alone");
}

// Waits for its end without blocking in the library, as a loop of events does.
void check_by_callback(Submission submission, const Known& known) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_ready = false;
  submission.on_ready([&] {
    const std::lock_guard<std::mutex> held(mutex);
    is_ready = true;
    changed.notify_one();
  });
  Tokens tokens;
  for (bool done = false; !done;) {
    {
      std::unique_lock<std::mutex> held(mutex);
      changed.wait(held, [&] { return is_ready; });
      is_ready = false;
    }
    while (true) {
      const auto [delta, ended] = submission.next(0);
      done = ended;
      if (!delta) break;
      const Tokens fresh = delta->tokens();
      tokens.insert(tokens.end(), fresh.begin(), fresh.end());
      done = delta->result().has_value();
    }
  }
  CHECK(tokens == known.answer.tokens, "other tokens than alone");
}

void test_threads(const Bundle& bundle, const std::vector<Known>& known, int requests) {
  const Scheduler scheduler(bundle, {{"requests", "1000"}});
  std::atomic<int> left{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Random random(static_cast<uint64_t>(thread));
      for (int i = 0; i < requests; ++i) {
        const Known& asked = known[static_cast<size_t>(random.integer(0, static_cast<int64_t>(kDifferent) - 1))];
        Submission submission = scheduler.submit(asked.request(), {{"client", thread % 2 ? "odd" : "even"}, {"salt", i % 3 ? "" : "own"}});
        const int64_t way = random.integer(0, 4);
        if (way == 0)
          check_cancelled(submission, asked);
        else if (way == 1)
          check_by_callback(std::move(submission), asked);
        else if (way == 2)
          ++left;  // it stays unread
        else
          check_answer(submission, asked);
        CHECK(!scheduler.stats().empty(), "no numbers");
      }
    });
  }
  for (std::thread& each : threads) each.join();
  scheduler.close();
  const std::string stats = scheduler.stats();
  const std::string expected = "\"submitted\": " + std::to_string(kThreads * requests);
  CHECK(stats.find("\"waiting\": 0, \"running\": 0, " + expected) != std::string::npos, "%s", stats.c_str());
  try {
    scheduler.submit(known[0].request());
    CHECK(false, "a closed scheduler has taken a request");
  } catch (const Error& error) {
    CHECK(error.kind == SPC_OVERLOADED, "%s", error.what());
  }
}

// Requests that nobody waits for: their futures have what sessions say, an error of the request, and an end with the scheduler.
void test_futures(const Bundle& bundle, const std::vector<Known>& known) {
  std::vector<std::future<std::vector<Result>>> left;
  {
    const Scheduler scheduler(bundle, {{"requests", "1000"}});
    std::vector<std::future<std::vector<Result>>> futures;
    for (int round = 0; round < 4; ++round)
      for (const Known& each : known) futures.push_back(scheduler.async(each.request()));
    for (size_t i = 0; i < futures.size(); ++i) {
      const std::vector<Result> results = futures[i].get();
      CHECK(results.size() == 1 && results[0].tokens() == known[i % known.size()].answer.tokens, "other tokens than alone");
    }
    for (const Known& each : known) left.push_back(scheduler.async(each.request()));
  }
  for (size_t i = 0; i < left.size(); ++i) {
    CHECK(left[i].wait_for(std::chrono::seconds(0)) == std::future_status::ready, "a future that outlives its scheduler");
    const Tokens tokens = left[i].get().at(0).tokens();
    CHECK(tokens.size() <= known[i].answer.tokens.size() && std::equal(tokens.begin(), tokens.end(), known[i].answer.tokens.begin()), "other tokens than alone");
  }
  const Scheduler hasty(bundle, {{"queue_seconds", "1e-9"}, {"client_rows", "1"}});
  std::vector<std::future<std::vector<Result>>> late;
  for (int i = 0; i < 8; ++i) late.push_back(hasty.async(known[0].request()));
  int refused = 0;
  for (auto& each : late) {
    try {
      each.get();
    } catch (const Error& error) {
      CHECK(error.kind == SPC_OVERLOADED, "%s", error.what());
      ++refused;
    }
  }
  CHECK(refused > 0, "nobody waited too long");
}

// Submissions that outlive their scheduler, and a bundle that does not.
void test_end(const Arguments& arguments, const std::vector<Known>& known) {
  std::vector<Submission> submissions;
  {
    std::optional<Bundle> bundle(arguments.open());
    const Scheduler scheduler(*bundle);
    bundle.reset();
    for (int i = 0; i < 6; ++i) submissions.push_back(scheduler.submit(known[static_cast<size_t>(i)].request()));
    check_answer(submissions[0], known[0]);
  }
  for (size_t i = 1; i < submissions.size(); ++i) check_cancelled(submissions[i], known[i]);
}

void test_full_queue(const Bundle& bundle, const std::vector<Known>& known) {
  const Scheduler scheduler(bundle, {{"requests", "1"}, {"client_rows", "1"}});
  std::vector<Submission> taken;
  int refused = 0;
  for (int i = 0; i < 40; ++i) {
    try {
      taken.push_back(scheduler.submit(known[0].request()));
    } catch (const Error& error) {
      CHECK(error.kind == SPC_OVERLOADED, "%s", error.what());
      ++refused;
    }
  }
  CHECK(refused > 0, "a queue of one has taken 40 requests");
  for (const Submission& each : taken) check_answer(each, known[0]);
}

void refused(spc_error* error, const char* what) {
  CHECK(spc_error_kind(error) == SPC_USAGE, "%s: kind %d: %s", what, spc_error_kind(error), spc_error_message(error));
  spc_error_free(error);
}

#define REFUSED(call) refused(call, #call)

void test_wrong_calls(const Bundle& bundle, const Known& known) {
  const Scheduler scheduler(bundle);
  const Request request = known.request();
  const Submission submission = scheduler.submit(request);
  spc_scheduler* made = nullptr;
  spc_submission* taken = nullptr;
  spc_delta* delta = nullptr;
  spc_result* result = nullptr;
  int done = -1;
  for (const char* const name : {"requests", "sequences", "seconds", "queue_seconds", "client_rows", "reuse", "adapter", "unknown"}) {
    const char* const options[] = {name, "-1", nullptr};
    REFUSED(spc_scheduler_create(bundle.get(), options, &made));
  }
  const char* const nothing[] = {"requests", nullptr};
  const char* const unknown[] = {"urgency", "1", nullptr};
  REFUSED(spc_scheduler_create(bundle.get(), nothing, &made));
  REFUSED(spc_scheduler_create(nullptr, nullptr, &made));
  REFUSED(spc_scheduler_create(bundle.get(), nullptr, nullptr));
  REFUSED(spc_scheduler_close(nullptr, 1));
  REFUSED(spc_scheduler_close(scheduler.get(), std::numeric_limits<double>::quiet_NaN()));
  REFUSED(spc_scheduler_submit(nullptr, request.get(), nullptr, &taken));
  REFUSED(spc_scheduler_submit(scheduler.get(), nullptr, nullptr, &taken));
  REFUSED(spc_scheduler_submit(scheduler.get(), request.get(), nullptr, nullptr));
  REFUSED(spc_scheduler_submit(scheduler.get(), request.get(), unknown, &taken));
  REFUSED(spc_scheduler_submit(scheduler.get(), Request().get(), nullptr, &taken));
  REFUSED(spc_scheduler_submit(scheduler.get(), known.request().prompt(known.prompt).get(), nullptr, &taken));
  REFUSED(spc_scheduler_stats(nullptr, &result));
  REFUSED(spc_scheduler_stats(scheduler.get(), nullptr));
  REFUSED(spc_submission_next(nullptr, 0, &delta, &done));
  REFUSED(spc_submission_next(submission.get(), 0, nullptr, &done));
  REFUSED(spc_submission_next(submission.get(), 0, &delta, nullptr));
  REFUSED(spc_submission_on_ready(nullptr, nullptr, nullptr));
  REFUSED(spc_delta_result(nullptr, &result));
  REFUSED(spc_request_add_stop_token(nullptr, 1));
  CHECK(!made && !taken && !delta && !result && done == -1, "a refused call has written something");
  CHECK(spc_submission_sequences(nullptr) == 0 && spc_delta_sequence(nullptr) == 0, "nothing has sequences");
  spc_submission_cancel(nullptr);
  spc_submission_free(nullptr);
  spc_delta_free(nullptr);
  spc_scheduler_free(nullptr);
  check_answer(submission, known);
}

// A wake-up that waits for the scheduler that calls it, which is refused, and frees it, which is not.
struct Ending {
  spc_scheduler* scheduler = nullptr;
  std::thread::id submitter = std::this_thread::get_id();
  std::promise<int> told;
  bool is_done = false;

  static void wake(void* user) {
    Ending& own = *static_cast<Ending*>(user);
    if (own.is_done || std::this_thread::get_id() == own.submitter) return;
    own.is_done = true;
    spc_error* const error = spc_scheduler_close(own.scheduler, 1);
    const int kind = spc_error_kind(error);
    spc_error_free(error);
    spc_scheduler_free(own.scheduler);
    own.told.set_value(kind);
  }
};

void test_wake_ends_its_scheduler(const Bundle& bundle, const Known& known) {
  Ending ending;
  const Request request = known.request();
  spc_submission* submission = nullptr;
  check(spc_scheduler_create(bundle.get(), nullptr, &ending.scheduler));
  check(spc_scheduler_submit(ending.scheduler, request.get(), nullptr, &submission));
  check(spc_submission_on_ready(submission, Ending::wake, &ending));
  CHECK(ending.told.get_future().get() == SPC_USAGE, "a wake-up may wait for its own thread");
  spc_submission_free(submission);
}

}  // namespace
}  // namespace speccompile

int main(int count, char** words) {
  const speccompile::Arguments arguments = speccompile::arguments_of(count, words);
  const speccompile::Bundle bundle = arguments.open();
  const std::vector<speccompile::Known> known = speccompile::known_of(bundle);
  speccompile::test_threads(bundle, known, count > 3 ? std::atoi(words[3]) : 40);
  speccompile::test_futures(bundle, known);
  speccompile::test_end(arguments, known);
  speccompile::test_full_queue(bundle, known);
  speccompile::test_wrong_calls(bundle, known[0]);
  speccompile::test_wake_ends_its_scheduler(bundle, known[0]);
  return 0;
}
