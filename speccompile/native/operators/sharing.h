// Decision whether an operator shares its work among the threads of the session.
#pragma once

#include <algorithm>
#include <array>

namespace speccompile {

// Chooses between sharing and working alone by measuring both, for one thread that runs graphs.
//
// Beside a busy neighbour the other threads are interrupted with a part of the work in hand, for milliseconds where a part takes
// microseconds, and the thread that runs the graph waits for them: two threads were slower than one by a third. Which way is
// faster depends on the machine's other load, so it is asked again, after pauses that double while the answer stays.
class Sharing {
 public:
  bool alone() const { return alone_; }

  // work: seconds that one thread would take for a call uninterrupted; seconds: those that it took. Their ratio is near the number
  // of threads on an idle machine, and at most 1 alone.
  void record(double work, double seconds) {
    work_ += work;
    seconds_ += seconds;
    if (seconds_ >= kStretch) end_stretch();
  }

 private:
  static constexpr double kStretch = 0.005, kFirstPause = 0.02, kLongestPause = 1.28;  // seconds

  void end_stretch() {
    const double stretch = work_ / seconds_;
    double& speed = speeds_[alone_];
    speed = on_trial_ || speed == 0 ? stretch : (speed + stretch) / 2;
    since_trial_ += seconds_;
    work_ = seconds_ = 0;
    if (on_trial_) {
      on_trial_ = false;
      since_trial_ = 0;
      const bool wins = speed > speeds_[!alone_];
      pause_ = wins ? kFirstPause : std::min(2 * pause_, kLongestPause);
      if (!wins) alone_ = !alone_;
    } else if (since_trial_ >= pause_ && (alone_ || speed < 1)) {  // nothing is faster alone that has a speed of 1
      alone_ = !alone_;
      on_trial_ = true;
    }
  }

  bool alone_ = false, on_trial_ = false;
  std::array<double, 2> speeds_{};  // of the last stretches shared, and alone: a single interruption is no reason to change
  double work_ = 0, seconds_ = 0, since_trial_ = 0, pause_ = kFirstPause;
};

}  // namespace speccompile
