// Threads that operators share their work with: one pool for all graphs that a thread runs, where ONNX Runtime has one for each
// session. Its threads spin for the next call while calls come in quick succession, and sleep while `Sharing` works alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace speccompile {

// The workers of one calling thread at a time.
class ThreadPool {
 public:
  using Call = void (*)(void* work, int64_t part) noexcept;

  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // call(work, part) for every part of [0, parts), here and on the workers; returns when all have ended. A worker that is
  // interrupted before it has taken a part holds up no other thread.
  void run(Call call, void* work, int64_t parts);

 private:
  static constexpr uint64_t kInside = 0xffff, kOpen = 0x10000, kTicket = 0x20000;
  static constexpr uint64_t kShareTicket = uint64_t{1} << 32;

  // The parts that one thread takes first, in one piece, so that no two threads write one cache line for each part. What it has
  // not taken when the others have ended theirs is taken by them.
  struct alignas(64) Share {
    std::atomic<uint64_t> taken{0};  // how many of them, and the number of the call; of an earlier call: none
  };

  void help(int64_t own);
  bool sleep_until_work(uint64_t seen);
  bool has_news(uint64_t state, uint64_t seen) const { return (state & kOpen) && state / kTicket != seen; }
  bool enter(uint64_t* seen);
  void take_parts(int64_t own, uint64_t ticket);
  bool take_part(int64_t share, uint64_t ticket, int64_t* part);
  void wake(int64_t wanted);

  Call call_ = nullptr;
  void* work_ = nullptr;
  int64_t parts_ = 0;
  std::vector<Share> shares_;  // of the caller, then of the workers
  alignas(64) std::atomic<uint64_t> state_{0};  // number of the call, whether it takes workers in, and how many are inside
  alignas(64) std::atomic<int> sleeping_{0};
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

// The pools of one number of threads, one for each thread that runs graphs.
class ThreadPools {
 public:
  // Return the pools that all sessions with this number of threads share; null for 0. They end with the last session.
  static std::shared_ptr<ThreadPools> of(int threads);

  explicit ThreadPools(int threads) : threads_(threads) {}

  int threads() const { return threads_; }

  // Borrows a pool, and makes one if all are in use.
  class Borrowed {
   public:
    explicit Borrowed(ThreadPools& owner) : owner_(owner), pool_(owner.take()) {}
    ~Borrowed() { owner_.give(std::move(pool_)); }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ThreadPool* operator->() const { return pool_.get(); }

   private:
    ThreadPools& owner_;
    std::unique_ptr<ThreadPool> pool_;
  };

 private:
  std::unique_ptr<ThreadPool> take();
  void give(std::unique_ptr<ThreadPool> pool) noexcept;

  const int threads_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ThreadPool>> idle_;
};

}  // namespace speccompile
