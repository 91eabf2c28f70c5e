// Time of rounds, including the host's work but not the time of the caller that reads tokens (runtime/stopwatch.py).
#pragma once

#include <time.h>

#include "../system.h"

namespace spc {

using Clock = double (*)();  // seconds since a fixed moment

// Maximum resolution in seconds: a coarser clock cannot distinguish rounds of a millisecond.
constexpr double kFine = 1e-5;

inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Return the clock of rounds. on_device: rounds run on a GPU and the CPU waits for them, so wall time counts.
//
// On the CPU the decoding thread computes: its CPU time is the round's time, independent of other processes. It waits for
// the session's other threads by spinning.
inline Clock clock(bool on_device) {
  timespec step{};
  const bool known = !on_device && clock_getres(CLOCK_THREAD_CPUTIME_ID, &step) == 0;
  return known && step.tv_sec == 0 && static_cast<double>(step.tv_nsec) * 1e-9 <= kFine ? thread_seconds : wall_seconds;
}

// Stopwatch of laps without gaps: time between two laps belongs to the second, unless it was a pause.
class Stopwatch {
 public:
  explicit Stopwatch(Clock now) : now_(now), start_(now()), paused_(start_) {}

  // Begin a lap.
  void start() { start_ = now_(); }

  // End the lap, return its seconds, and begin the next one.
  double lap() {
    const double now = now_(), seconds = now - start_;
    start_ = now;
    return seconds;
  }

  void pause() { paused_ = now_(); }

  // Continue the lap, also on another thread, whose clock replaces the clock at `pause`.
  void resume() { start_ += now_() - paused_; }

 private:
  Clock now_;
  double start_, paused_;
};

}  // namespace spc
