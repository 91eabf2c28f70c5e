// Sessions over the C ABI: several threads on one bundle, and generations that are cancelled.
//
//   test_sessions BUNDLE LIBRARY_OF_ONNXRUNTIME [generations that are cancelled]
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "asked.h"

namespace speccompile {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kThreads = 4;

template <class F>
void on_threads(int count, F f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&f, i] { f(i); });
  for (std::thread& each : threads) each.join();
}

// Every thread asks all, in another order, and gets what each gives alone.
void ask_all(Session& session, const std::vector<Asked>& asked, const std::vector<Answers>& alone, int thread) {
  for (size_t i = 0; i < asked.size(); ++i) {
    const size_t at = (i * 3 + static_cast<size_t>(thread)) % asked.size();
    CHECK(generate(session, asked[at]) == alone[at], "thread %d, request %zu: other tokens or text than alone", thread, at);
  }
}

void test_concurrency(const Arguments& arguments) {
  std::vector<Asked> asked;
  std::vector<Answers> alone;
  std::vector<Session> sessions;
  {
    const Bundle bundle = arguments.open();
    for (uint64_t seed = 0; seed < 8; ++seed) {
      asked.push_back(asked_of(bundle, seed));
      Session session(bundle);
      alone.push_back(generate(session, asked.back()));
    }
    for (int i = 0; i < kThreads; ++i) sessions.emplace_back(bundle);
  }  // sessions keep what they need
  on_threads(kThreads, [&](int thread) { ask_all(sessions[static_cast<size_t>(thread)], asked, alone, thread); });
  on_threads(kThreads, [&](int thread) {  // a bundle each, and one for all
    const Bundle own = arguments.open(thread % 2 ? kSeveral : "1");
    Session session(own), second(own);
    ask_all(session, asked, alone, thread);
    ask_all(second, {asked[0]}, {alone[0]}, thread);
  });
}

// Generations from the rows' prompts alone, of as many tokens as the rows of a batch had when they
// were cut off.
class Shorter {
 public:
  Shorter(const Bundle& bundle, const Asked& asked) : session_(bundle), asked_(asked) {}

  const Answer& of(size_t row, size_t tokens) {
    const auto [place, is_new] = known_.try_emplace({row, tokens});
    if (is_new && tokens) place->second = generate(session_, {{asked_.prompts[row]}, tokens, "autoregressive"})[0];
    if (is_new && !tokens) place->second.text = nothing_like(generate(session_, {{asked_.prompts[row]}, 1, "adaptive"})[0]);
    return place->second;
  }

 private:
  static std::string nothing_like(const Answer& answer) { return answer.text == "null" ? "null" : "\"\""; }

  Session session_;
  const Asked& asked_;
  std::map<std::pair<size_t, size_t>, Answer> known_;
};

// Steps until the end or until it is cancelled. Returns how many tokens each row had before the last call.
std::vector<size_t> run(Session& session, bool& cancelled) {
  std::vector<size_t> had(session.rows());
  for (bool going = true; going;) {
    int done = -1;
    spc_error* error = spc_session_step(session.get(), &done);
    cancelled = error != nullptr;
    if (error) {
      CHECK(spc_error_kind(error) == SPC_CANCELLED, "%s", spc_error_message(error));
      CHECK(done == -1, "what a failing step would have written is %d", done);
      spc_error_free(error);
      return had;
    }
    going = !done;
    for (size_t row = 0; row < had.size(); ++row) had[row] += session.new_tokens(row).size();
  }
  return had;
}

// Check that a cancelled generation keeps its tokens of earlier rounds, and that no later round runs.
void check_cancelled(Session& session, Shorter& shorter, const std::vector<size_t>& had) {
  for (const bool again : {false, true}) {
    const Answers left = results_of(session);
    for (size_t row = 0; row < left.size(); ++row) {
      CHECK(left[row].tokens.size() == had[row], "row %zu has %zu tokens, %zu before the round that was cancelled", row,
            left[row].tokens.size(), had[row]);
      CHECK(left[row] == shorter.of(row, had[row]), "row %zu: other tokens or text than asked for %zu tokens: %s", row,
            had[row], left[row].text.c_str());
      CHECK(session.new_tokens(row).empty(), "row %zu streams tokens of a round that was cancelled", row);
    }
    CHECK(again || !session.step(), "a step after the cancelled one");
  }
}

void test_cancel(const Arguments& arguments, int trials) {
  const Bundle bundle = arguments.open();
  Session session(bundle);
  Random random(1);
  int cut_off = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const Asked asked = asked_of(bundle, static_cast<uint64_t>(trial % 7));
    Shorter shorter(bundle, asked);
    const auto start = Clock::now();
    const Answers whole = generate(session, asked);
    const auto delay = (Clock::now() - start) * random.integer(0, 110) / 100;
    session.cancel();  // of a generation that is over; it does not touch the next one
    session.start(asked.request());
    std::thread other([&] {
      std::this_thread::sleep_for(delay);
      session.cancel();
    });
    bool cancelled = false;
    const std::vector<size_t> had = run(session, cancelled);
    other.join();
    if (cancelled) check_cancelled(session, shorter, had);
    cut_off += cancelled;
    CHECK(generate(session, asked) == whole, "trial %d: another answer after a cancelled one", trial);
  }
  CHECK(cut_off > 0, "none of %d generations was cut off", trials);
}

void test_cancel_between_steps(const Arguments& arguments) {
  const Bundle bundle = arguments.open();
  Session session(bundle);
  const Asked asked = asked_of(bundle, 3);
  const Answers whole = generate(session, asked);
  Shorter shorter(bundle, asked);
  for (int steps = 0; steps < 4; ++steps) {
    session.start(asked.request());
    bool going = true;
    for (int i = 0; i < steps && going; ++i) going = session.step();
    if (!going) break;  // too short to be cut off here
    std::vector<size_t> had(session.rows());
    for (size_t row = 0; row < had.size(); ++row) had[row] = session.new_tokens(row).size();
    session.cancel();
    bool cancelled = false;
    run(session, cancelled);
    CHECK(cancelled, "after %d steps", steps);
    check_cancelled(session, shorter, had);
  }
  CHECK(generate(session, asked) == whole, "another answer after a cancelled one");
}

// From a thread that never stops cancelling: the session is started all the time, and no other error comes.
void test_cancel_while_starting(const Arguments& arguments, int trials) {
  const Bundle bundle = arguments.open();
  Session session(bundle);
  const Asked asked = asked_of(bundle, 5);
  const Answers whole = generate(session, asked);
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) session.cancel();
  });
  for (int i = 0; i < trials; ++i) {
    bool cancelled = false;
    session.start(asked.request());
    run(session, cancelled);
  }
  over = true;
  other.join();
  CHECK(generate(session, asked) == whole, "another answer after cancelled ones");
}

}  // namespace
}  // namespace speccompile

int main(int count, char** words) {
  const speccompile::Arguments arguments = speccompile::arguments_of(count, words);
  speccompile::test_concurrency(arguments);
  const int trials = count > 3 ? std::atoi(words[3]) : 40;
  speccompile::test_cancel(arguments, trials);
  speccompile::test_cancel_between_steps(arguments);
  speccompile::test_cancel_while_starting(arguments, 6 * trials);
  return 0;
}
