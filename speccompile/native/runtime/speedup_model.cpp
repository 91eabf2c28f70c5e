#include "speedup_model.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "../contract_table.h"

namespace spc {

void Times::add(double seconds) {
  ++count;
  last_[known_++ % kLast] = seconds;
  if (!is_held_) summarize();
}

void Times::summarize() {
  const size_t known = std::min(known_, kLast);
  double sorted[kLast];
  std::copy(last_, last_ + known, sorted);
  std::sort(sorted, sorted + known);
  typical = sorted[(known - 1) / 4];
}

void Times::expect(double seconds, int64_t times, bool held) {
  typical = expected_ = seconds;
  count = times;
  is_held_ = held;
}

void Times::follow(double beside, double expected, double share) {
  if (expected_ > 0 && !known_) typical = expected_ + share * (beside - expected);
}

void Times::release() {
  is_held_ = false;
  if (known_) summarize();
}

RoundTimes::RoundTimes(const std::map<int, int>& accepts) {
  for (const auto& each : accepts) windows[each.first];
}

RoundTimes RoundTimes::expected(double share) const {
  RoundTimes found = *this;
  found.autoregressive = found.drafting = Times();
  found.autoregressive.expect(at(share), autoregressive.count);
  found.drafting.expect(found.autoregressive.typical / autoregressive.typical * drafting.typical, drafting.count);
  for (auto& [width, times] : found.windows) {
    const int64_t count = times.count;
    times = Times();
    if (count) times.expect(at(share * width), count);
  }
  return found;
}

double RoundTimes::at(double width) const {
  double low = 1, seconds = autoregressive.typical, slope = 0;  // of the line through the last two timed widths so far
  double from = low, start = seconds;
  for (const auto& [each, times] : windows) {
    if (each == 1 || !times.count) continue;
    if (low > 1 && low > width) break;
    slope = std::max(0.0, (times.typical - seconds) / (each - low));
    from = low;
    start = seconds;
    low = each;
    seconds = times.typical;
  }
  return std::max(start + slope * (width - from), start * std::min(1.0, width));
}

SpeedupModel::SpeedupModel(std::map<int, int> drafts, bool fused, int tree_depth)
    : accepts(std::move(drafts)),
      full(accepts.rbegin()->first),
      is_tree(tree_depth > 0),
      acceptance(is_tree ? Acceptance(accepts.at(full), std::next(accepts.begin())->first - 1, tree_depth) : Acceptance(accepts.at(full))),
      fused_(fused) {
  set_batch_size(1);
}

RoundTimes& SpeedupModel::costs_of(int rows) {
  for (auto& [other, costs] : costs_)
    if (other == rows) return costs;
  return costs_.emplace_back(rows, RoundTimes(accepts)).second;
}

bool SpeedupModel::set_batch_size(int rows) {
  if (rows == rows_) return false;
  rows_ = rows;
  times_ = &costs_of(rows);
  if (knows(*times_)) return true;
  const std::pair<int, RoundTimes>* nearest = nullptr;
  for (const auto& each : costs_)
    if (knows(each.second) && (!nearest || std::abs(each.first - rows) < std::abs(nearest->first - rows))) nearest = &each;
  if (nearest) *times_ = nearest->second.expected(static_cast<double>(rows) / nearest->first);
  return true;
}

bool SpeedupModel::knows(const RoundTimes& costs) const {
  return costs.autoregressive.count >= kWarmUpRounds && costs.windows.at(full).count > 0 && (fused_ || costs.drafting.count > 0);
}

std::optional<Json> SpeedupModel::measured_times() const {
  const RoundTimes& costs = costs_.front().second;
  const auto has_measured = [&](const auto& each) { return (is_tree || each.first == full) && each.second.is_measured(); };
  const bool has_window = std::any_of(costs.windows.begin(), costs.windows.end(), has_measured);
  if (!costs.autoregressive.is_measured() || !has_window || !(fused_ || costs.drafting.is_measured())) return std::nullopt;
  Json::Object found;
  for (const auto& [width, times] : costs.windows)
    if (width > 1 && times.count) found.emplace_back(std::to_string(width), times.typical);
  return Json(Json::Object{{"autoregressive", costs.autoregressive.typical},
                           {"windows", found},
                           {"drafting", costs.drafting.typical},
                           {"catch_up", reading_.typical}});
}

void SpeedupModel::expect_times(const Json& times) {
  RoundTimes& costs = costs_.front().second;
  std::map<int, double> known;
  for (const auto& [width, seconds] : times["windows"].object()) known[std::atoi(width.c_str())] = seconds.number();
  const bool fits = std::all_of(known.begin(), known.end(), [&](const auto& each) { return costs.windows.count(each.first); });
  if (knows(costs) || !known.count(full) || !fits) return;
  expected_.emplace(accepts);
  for (RoundTimes* const each : {&costs, &*expected_}) {
    each->autoregressive.expect(times["autoregressive"].number(), kWarmUpRounds);
    for (const auto& [width, seconds] : known) each->windows.at(width).expect(seconds, 1, true);
    if (!fused_) each->drafting.expect(times["drafting"].number(), 1, true);
  }
  is_held_ = true;
  if (times["catch_up"].number() > 0) reading_.expect(times["catch_up"].number(), 1);
}

void SpeedupModel::add_autoregressive(double seconds) {
  RoundTimes& costs = *times_;
  costs.autoregressive.add(seconds);
  if (times_ != &costs_.front().second) return;
  const auto follow = [&](Times& times) {
    if (is_held_) times.release();
    const double share = fused_ ? 1.0 : 0.5;  // of the host's part, in each of the runs of a round
    if (expected_) times.follow(costs.autoregressive.typical, expected_->autoregressive.typical, share);
  };
  for (auto& [width, times] : costs.windows) follow(times);
  follow(costs.drafting);
  is_held_ = false;
}

void SpeedupModel::add_reading(int64_t tokens, double seconds) {
  if (tokens >= kMinTimedCatchUp) reading_.add(seconds / static_cast<double>(tokens));
}

bool SpeedupModel::is_based() const { return times_->autoregressive.count >= kWarmUpRounds; }

bool SpeedupModel::is_known() const { return knows(*times_); }

std::pair<double, int> SpeedupModel::best(int current) const {
  const std::vector<double> tokens = acceptance.tokens();
  const std::map<int, double> seconds = this->seconds();
  const double rows = acceptance.rows(), rounds = acceptance.rounds(), without = (1 - rounds) * seconds.at(1);
  const auto speed_at = [&](int width) {
    const double accepted = tokens[static_cast<size_t>(accepts.at(width))];
    return (1 + rows * (accepted - 1)) / (rounds * seconds.at(width) + without);
  };
  const double kept = speed_at(current);
  double best = kept;
  int found = current;
  for (const auto& [width, limit] : accepts) {
    if (!limit) continue;
    const double speed = speed_at(width), margin = times_->windows.at(width).is_measured() ? kWidthMargin : kNewWidthMargin;
    if (speed > std::max(best, kept * (1 + margin))) {
      best = speed;
      found = width;
    }
  }
  return {best * times_->autoregressive.typical, found};
}

int SpeedupModel::wider(int width) const {
  const auto next = accepts.upper_bound(width);
  return next == accepts.end() ? full : next->first;
}

double SpeedupModel::usual_gain() const {
  const double tokens = acceptance.usual_tokens()[static_cast<size_t>(accepts.at(full))];
  return tokens * times_->autoregressive.typical / seconds().at(full);
}

double SpeedupModel::trial_cost(int64_t lag) const {
  return static_cast<double>(lag) * reading_.typical + seconds().at(full) - times_->autoregressive.typical;
}

std::optional<double> SpeedupModel::estimated_speedup(const std::vector<int64_t>& draft_lengths, int64_t new_tokens) const {
  const RoundTimes& costs = expected_ ? *expected_ : costs_.front().second;
  const bool has_drafted = std::any_of(draft_lengths.begin(), draft_lengths.end(), [](int64_t drafts) { return drafts > 0; });
  if (!has_drafted || !knows(costs)) return std::nullopt;
  const std::map<int, double> known = seconds_of(costs);
  const double single = costs.autoregressive.typical;
  double drafted = 0;
  int64_t without = 0;
  for (const int64_t drafts : draft_lengths) {
    const auto width = known.upper_bound(static_cast<int>(drafts));
    if (drafts == 0)
      ++without;
    else  // no less than a round without drafts, whatever a busy machine says
      drafted += std::max(single, width == known.end() ? known.at(full) : width->second);
  }
  return static_cast<double>(new_tokens) * single / (static_cast<double>(without) * single + drafted);
}

std::map<int, double> SpeedupModel::seconds() const { return seconds_of(*times_); }

// Return the seconds of all widths on lines through the timed ones, ascending. The first line reaches below the first of them;
// beyond the last the seconds stay the same.
static std::map<int, double> on_lines(const std::vector<std::pair<int, double>>& timed, const std::map<int, Times>& windows) {
  std::map<int, double> found;
  size_t place = 0;
  for (const auto& each : windows) {
    const int width = each.first;
    while (place + 2 < timed.size() && width >= timed[place + 1].first) ++place;
    const auto [low, seconds] = timed[place];
    const auto [high, more] = timed[std::min(place + 1, timed.size() - 1)];
    found[width] = width >= high ? more : seconds + (more - seconds) / std::max(1, high - low) * (width - low);
  }
  return found;
}

std::map<int, double> SpeedupModel::seconds_of(const RoundTimes& costs) const {
  const double single = costs.autoregressive.typical;
  std::vector<std::pair<int, double>> timed;
  if (!fused_) timed.emplace_back(1, single);
  for (const auto& [width, times] : costs.windows)
    if (width > 1 && times.count) timed.emplace_back(width, times.typical);
  if (timed.empty()) timed.emplace_back(full, costs.windows.at(full).typical);
  std::map<int, double> found = on_lines(timed, costs.windows);
  // Drafting is a part of fused rounds, so that the lines do not begin at a round without.
  for (auto& [width, seconds] : found) {
    if (!fused_)
      seconds = costs.drafting.typical + seconds;
    else if (width < timed.front().first)
      seconds = std::max(single, seconds);
  }
  return found;
}

}  // namespace spc
