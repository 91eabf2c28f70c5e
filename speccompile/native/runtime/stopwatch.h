// The time that rounds take, the host's part and all; not the time of whoever reads their tokens (runtime/stopwatch.py).
#pragma once

#include <time.h>

#include "../system.h"

namespace spc {

using Clock = double (*)();  // seconds since some moment

// A clock that counts in larger steps, in seconds, cannot tell rounds of a millisecond apart.
constexpr double kFine = 1e-5;

inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// What tells how long a round takes. on_device: it runs on a GPU, and the processor waits for it.
//
// Elsewhere the thread that decodes computes: its processor time is the round's, whoever else wants the processor. Other
// threads of the session compute beside it, and it waits for them by spinning.
inline Clock clock(bool on_device) {
  timespec step{};
  const bool known = !on_device && clock_getres(CLOCK_THREAD_CPUTIME_ID, &step) == 0;
  return known && step.tv_sec == 0 && static_cast<double>(step.tv_nsec) * 1e-9 <= kFine ? thread_seconds : wall_seconds;
}

// Laps without gaps: what lies between two is part of the second, unless it was a pause.
class Stopwatch {
 public:
  explicit Stopwatch(Clock now) : now_(now), start_(now()), paused_(start_) {}

  // A lap begins now.
  void start() { start_ = now_(); }

  // Seconds of the lap that ends now; the next one begins.
  double lap() {
    const double now = now_(), seconds = now - start_;
    start_ = now;
    return seconds;
  }

  void pause() { paused_ = now_(); }

  // On any thread: what its clock says now goes on from what the other's said at `pause`.
  void resume() { start_ += now_() - paused_; }

 private:
  Clock now_;
  double start_, paused_;
};

}  // namespace spc
