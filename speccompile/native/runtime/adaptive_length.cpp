#include "adaptive_length.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "../contract_table.h"

namespace spc {

AdaptiveDraftLength::AdaptiveDraftLength(std::map<int, int> accepts, bool fused, int tree_depth)
    : model_(std::move(accepts), fused, tree_depth), width_(model_.full), gap_(kFirstGap), waited_(kFirstGap), since_decision_(kDecisionRounds) {}

void AdaptiveDraftLength::expect(const MeasuredAcceptance& measured) { model_.acceptance.expect(measured); }

int AdaptiveDraftLength::begin(int64_t prompt, int64_t room) {
  trial_loss_ -= kTrialShare * autoregressive() * new_tokens_;
  max_new_tokens_ = static_cast<double>(room);
  new_tokens_ = 0;
  model_.acceptance.limit_weight(kPriorRounds);
  gap_ = waited_ = kFirstGap;
  width_ = model_.full;
  tried_ = has_paused_ = false;
  paused_ = model_.is_known();
  recent_loss_ = 0;
  if (!paused_) return width_;
  trial_loss_ = std::max(trial_loss_, -std::max(most_saved(), model_.trial_cost(prompt)));
  return next_width(prompt);
}

void AdaptiveDraftLength::join(int64_t, int64_t room) {
  max_new_tokens_ = std::max(max_new_tokens_, new_tokens_ + static_cast<double>(room));
  const double rows = model_.rows();
  model_.acceptance.limit_weight(std::max(kPriorRounds, static_cast<double>(kMemory) * rows / (rows + 1)));  // its acceptance is unknown
}

void AdaptiveDraftLength::record_batch_size(int rows) {
  if (model_.set_batch_size(rows) && paused_) gap_ = waited_ = kFirstGap;  // the cost of drafting has changed
}

int AdaptiveDraftLength::next_width(int64_t lag) {
  if (paused_) return waited_ >= gap_ && resumes(lag) ? width_ : 1;
  if (!model_.is_based() || since_autoregressive_ >= (speedup_ > kClearSpeedup ? kRareRefresh : kRefresh)) return 1;
  if (since_decision_ % kLosingRounds && !on_trial_) return width_;
  trial_loss_ = std::max(trial_loss_, -most_saved());
  on_trial_ = on_trial_ && recent_loss_ > 0;
  const bool is_losing = recent_loss_ >= patience();
  const int64_t wait = on_trial_ ? 0 : is_losing ? kLosingRounds : kDecisionRounds;
  if (tried_ && since_decision_ >= wait && model_.is_known()) {
    std::tie(speedup_, width_) = model_.best(width_);
    since_decision_ = 0;
    if (is_losing && (on_trial_ || speedup_ < 1 - kTrialShare)) {
      if (!on_trial_) trial_loss_ = std::min(trial_loss_, 0.0);  // drafts were expected to pay: their loss takes nothing from later trials
      gap_ = !has_paused_ || loss_since_resume_ < 0 ? kFirstGap : std::min(2 * gap_, kLongestGap);
      paused_ = has_paused_ = true;
      waited_ = 0;
      return 1;
    }
  }
  return width_;
}

bool AdaptiveDraftLength::resumes(int64_t lag) {
  const bool begins = new_tokens_ == 0;
  if (!begins) model_.acceptance.halve();
  const auto [gain, best] = model_.best(model_.full);
  const double price = model_.trial_cost(lag), left = expected_tokens() - new_tokens_;
  const bool pays = (gain > 1 + kTrialShare && price <= (1 - 1 / gain) * autoregressive() * left) ||
                    (begins && gain > 1 - kFirstMargin);
  if (!pays && !may_try(price, begins && gain > 1 - kFirstTrial ? kFirstShare : 0.0)) {
    // Rounds without drafts tell nothing of a text: drafts that did not pay at its beginning hardly do soon.
    gap_ = std::min((begins ? 4 : 2) * gap_, kLongestGap);
    waited_ = 0;
    return false;
  }
  recent_loss_ = 0;
  on_trial_ = !pays;
  if (!pays) {
    model_.acceptance.limit_weight(1);
    recent_loss_ = patience();
  }
  // A round with all nodes of a tree may cost as much as several narrower ones; one that is a little wider shows whether it would pay.
  width_ = model_.is_tree ? model_.wider(best) : model_.full;
  tried_ = paused_ = false;
  loss_since_resume_ = 0;
  since_decision_ = best == width_ ? 0 : kDecisionRounds;  // one round shows what all widths accept
  return true;
}

double AdaptiveDraftLength::expected_tokens() const { return std::min(max_new_tokens_, std::max(static_cast<double>(kExpectedNewTokens), 1.5 * new_tokens_)); }

double AdaptiveDraftLength::patience() const {
  const double single = autoregressive();
  return kLossPatienceRounds * single + std::min(std::max(0.0, -trial_loss_), kMaxSavedRounds * single) / 2;
}

double AdaptiveDraftLength::most_saved() const {
  return std::max(kMaxSavedRounds * autoregressive(), model_.trial_cost(0));  // at least one trial
}

bool AdaptiveDraftLength::may_try(double price, double first_share) const {
  const double expected = autoregressive() * expected_tokens(), share = (trial_loss_ + price) / expected - kTrialShare;
  return price <= first_share * expected || share <= 0 || (share <= kMostShare && share <= kWonShare * (model_.usual_gain() - 1));
}

void AdaptiveDraftLength::record_autoregressive(std::optional<double> seconds) {
  if (seconds) model_.add_autoregressive(*seconds);
  if (model_.is_based()) since_autoregressive_ = 0;
  new_tokens_ += 1;
  waited_ += 1;
}

void AdaptiveDraftLength::record_verify(int width, std::optional<double> seconds, const std::vector<int>& accepted, int without) {
  const int limit = model_.accepts.at(width);
  const size_t step = model_.is_tree ? static_cast<size_t>(std::max(1, limit)) : 1;  // numbers of a row, the last of this width
  int drafts = 0;
  for (size_t last = step - 1; last < accepted.size(); last += step) drafts += accepted[last];
  const double tokens = 1 + drafts / (static_cast<double>(accepted.size() / step) + without);
  Times& times = model_.times().windows.at(width);
  if (seconds) times.add(*seconds);
  model_.acceptance.add(accepted, limit, without);
  if (times.count) add_loss(times.typical - tokens * autoregressive());
  new_tokens_ += tokens;
  since_autoregressive_ += 1;
  since_decision_ += 1;
  tried_ = true;
}

void AdaptiveDraftLength::record_draft(std::optional<double> seconds) {
  if (seconds) model_.times().drafting.add(*seconds);
  add_loss(model_.times().drafting.typical);
}

void AdaptiveDraftLength::record_catch_up(int64_t tokens, double seconds, double lost) {
  model_.add_reading(tokens, seconds);
  add_loss(lost);
}

void AdaptiveDraftLength::add_loss(double seconds) {
  trial_loss_ += seconds;
  loss_since_resume_ += seconds;
  recent_loss_ = std::max(0.0, recent_loss_ + seconds);
}

}  // namespace spc
