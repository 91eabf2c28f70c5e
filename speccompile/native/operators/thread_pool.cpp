#include "thread_pool.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace speccompile {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSpin = std::chrono::microseconds(300);  // longer than the host takes between two graphs
constexpr int kPausesPerLook = 64;                      // at the clock
constexpr int kPausesBeforeYield = 2000;                // some 20 microseconds, longer than a part takes

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

// Signals go to the threads of the program, which expects them there.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

ThreadPool::ThreadPool(int workers) : shares_(static_cast<size_t>(workers) + 1) {
  const NoSignals blocked;  // threads inherit it
  try {
    for (int i = 0; i < workers; ++i) threads_.emplace_back([this, i] { help(i + 1); });
  } catch (const std::system_error&) {  // the system has no more threads: those there are do the work
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stops_ = true;
  }
  woken_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(Call call, void* work, int64_t parts) {
  call_ = call;
  work_ = work;
  parts_ = parts;
  const uint64_t ticket = state_.load(std::memory_order_relaxed) / kTicket + 1;
  state_.store(ticket * kTicket + kOpen);
  wake(parts - 1);
  take_parts(0, ticket);
  state_.fetch_and(~kOpen);
  for (int pauses = 0; state_.load(std::memory_order_acquire) & kInside; ++pauses)
    if (pauses < kPausesBeforeYield)
      pause_briefly();
    else
      std::this_thread::yield();  // to a worker that waits for this processor
}

void ThreadPool::take_parts(int64_t own, uint64_t ticket) {
  const auto shares = static_cast<int64_t>(shares_.size());
  for (int64_t i = 0; i < shares; ++i)
    for (int64_t part; take_part((own + i) % shares, ticket, &part);) call_(work_, part);
}

bool ThreadPool::take_part(int64_t share, uint64_t ticket, int64_t* part) {
  const auto shares = static_cast<int64_t>(shares_.size());
  const int64_t first = parts_ * share / shares, count = parts_ * (share + 1) / shares - first;
  std::atomic<uint64_t>& taken = shares_[static_cast<size_t>(share)].taken;
  const uint64_t none = ticket * kShareTicket;  // of this call
  for (uint64_t seen = taken.load(std::memory_order_relaxed);;) {
    const uint64_t before = seen / kShareTicket == none / kShareTicket ? seen : none;
    const auto done = static_cast<int64_t>(before - none);
    if (done >= count) return false;
    *part = first + done;
    if (taken.compare_exchange_weak(seen, before + 1, std::memory_order_relaxed)) return true;
  }
}

void ThreadPool::wake(int64_t wanted) {
  const int64_t asleep = sleeping_.load();
  if (asleep == 0) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);  // a worker that counts as asleep waits by now
  }
  for (int64_t i = 0; i < std::min(asleep, wanted); ++i) woken_.notify_one();
}

void ThreadPool::help(int64_t own) {
  uint64_t seen = 0;
  for (;;) {
    Clock::time_point start = Clock::now();
    for (int pauses = 1; !has_news(state_.load(std::memory_order_relaxed), seen); ++pauses) {
      pause_briefly();
      if (pauses % kPausesPerLook || Clock::now() - start < kSpin) continue;
      if (!sleep_until_work(seen)) return;
      start = Clock::now();  // the call that woke it may be over; others follow
    }
    if (!enter(&seen)) continue;
    take_parts(own, seen);
    state_.fetch_sub(1, std::memory_order_release);
  }
}

// Sleep until there is work, and return true; false when the pool ends.
bool ThreadPool::sleep_until_work(uint64_t seen) {
  std::unique_lock<std::mutex> lock(mutex_);
  sleeping_.fetch_add(1);
  if (!stops_ && !has_news(state_.load(), seen)) woken_.wait(lock);  // woken for nothing, it spins once more
  sleeping_.fetch_sub(1);
  return !stops_;
}

bool ThreadPool::enter(uint64_t* seen) {
  for (uint64_t state = state_.load(std::memory_order_relaxed); has_news(state, *seen);)
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed)) {
      *seen = state / kTicket;
      return true;
    }
  return false;
}

std::shared_ptr<ThreadPools> ThreadPools::of(int threads) {
  static auto* mutex = new std::mutex;
  static auto* known = new std::map<int, std::weak_ptr<ThreadPools>>;
  if (threads < 1) return nullptr;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::weak_ptr<ThreadPools>& entry = (*known)[threads];
  std::shared_ptr<ThreadPools> found = entry.lock();
  if (!found) entry = found = std::make_shared<ThreadPools>(threads);
  return found;
}

std::unique_ptr<ThreadPool> ThreadPools::take() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<ThreadPool> pool = std::move(idle_.back());
      idle_.pop_back();
      return pool;
    }
    idle_.reserve(idle_.capacity() + 1);  // for `give`, which cannot fail
  }
  return std::make_unique<ThreadPool>(threads_ - 1);
}

void ThreadPools::give(std::unique_ptr<ThreadPool> pool) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(pool));
}

}  // namespace speccompile
