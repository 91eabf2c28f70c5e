#include "pace.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "../contract_table.h"

namespace spc {

Pace::Pace(std::map<int, int> accepts, bool fused)
    : speed_(std::move(accepts), fused), width_(speed_.full), gap_(kFirstGap), waited_(kFirstGap) {}

void Pace::expect(const Measured& measured) { speed_.acceptance.expect(measured); }

int Pace::begin(int64_t prompt, int64_t room) {
  lost_ -= kTrialShare * speed_.single.typical * taken_;
  room_ = static_cast<double>(room);
  taken_ = 0;
  speed_.acceptance.trust(kCarriedRounds);
  gap_ = waited_ = kFirstGap;
  width_ = speed_.full;
  tried_ = false;
  paused_ = speed_.is_known();
  streak_ = 0;
  if (!paused_) return width_;
  lost_ = std::max(lost_, -std::max(most_saved(), speed_.price(prompt)));
  return choose(prompt);
}

int Pace::choose(int64_t lag) {
  if (paused_) return waited_ >= gap_ && resumes(lag) ? width_ : 1;
  if (!speed_.is_based() || since_single_ >= (gain_ > kClear ? kSeldom : kRefresh)) return 1;
  if (tried_ && speed_.is_known()) {
    std::tie(gain_, width_) = speed_.best(width_);
    on_trial_ = on_trial_ && streak_ > 0;
    if (streak_ >= patience() && (on_trial_ || gain_ < 1 - kTrialShare)) {
      gap_ = spent_ < 0 ? kFirstGap : std::min(2 * gap_, kLongestGap);
      paused_ = true;
      waited_ = 0;
      return 1;
    }
  }
  return width_;
}

bool Pace::resumes(int64_t lag) {
  const double gain = speed_.best(width_).first, price = speed_.price(lag), left = horizon() - taken_;
  const bool pays = gain > 1 + kTrialShare && price <= (1 - 1 / gain) * speed_.single.typical * left;
  if (!pays && lost_ + price > budget()) {
    gap_ = std::min(2 * gap_, kLongestGap);
    waited_ = 0;
    return false;
  }
  streak_ = 0;
  on_trial_ = !pays;
  if (!pays) {
    speed_.acceptance.trust(1);
    streak_ = patience();
  }
  width_ = speed_.full;
  tried_ = paused_ = false;
  spent_ = 0;
  return true;
}

double Pace::horizon() const { return std::min(room_, std::max(static_cast<double>(kHorizon), 1.5 * taken_)); }

double Pace::patience() const {
  const double single = speed_.single.typical;
  return kPatience * single + std::min(std::max(0.0, -lost_), kSavedRounds * single) / 2;
}

double Pace::most_saved() const {
  return std::max(kSavedRounds * speed_.single.typical, speed_.price(0));  // at least one trial
}

double Pace::budget() const { return kTrialShare * speed_.single.typical * horizon(); }

void Pace::single(double seconds) {
  speed_.single.add(seconds);
  taken_ += 1;
  waited_ += 1;
  since_single_ = 0;
}

void Pace::verified(int width, double seconds, const std::vector<int>& accepted, int without) {
  int drafts = 0;
  for (const int count : accepted) drafts += count;
  const double tokens = 1 + drafts / (static_cast<double>(accepted.size()) + without);
  Times& times = speed_.windows.at(width);
  times.add(seconds);
  speed_.acceptance.add(accepted, speed_.accepts.at(width), without);
  lose(times.typical - tokens * speed_.single.typical);
  taken_ += tokens;
  since_single_ += 1;
  tried_ = true;
}

void Pace::drafted(double seconds) {
  speed_.drafting.add(seconds);
  lose(speed_.drafting.typical);
}

void Pace::caught_up(int64_t tokens, double seconds, double lost) {
  speed_.add_reading(tokens, seconds);
  lose(lost);
}

void Pace::lose(double seconds) {
  lost_ = std::max(lost_ + seconds, -most_saved());
  spent_ += seconds;
  streak_ = std::max(0.0, streak_ + seconds);
}

}  // namespace spc
