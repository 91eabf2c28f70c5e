#include "round_times.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "../bundle/result_cache.h"
#include "../contract_table.h"

namespace spc {
namespace {

constexpr size_t kMostWidthDigits = 9;  // of an int

ResultCache cache() { return ResultCache(kTimesFolder); }

// All times of a record by name, those that may be 0 left out.
Json::Object numbers(const Json& times) {
  Json::Object found = times["windows"].object();
  found.emplace_back("autoregressive", times["autoregressive"]);
  return found;
}

bool is_time(const Json& value, bool may_be_zero) {
  return value.is_number() && std::isfinite(value.number()) && (value.number() > 0 || (may_be_zero && value.number() == 0));
}

bool is_whole(const Json& times) {
  if (!times["processes"].is_integer() || times["processes"].integer() <= 0) return false;
  if (!times["windows"].is_object() || !is_time(times["drafting"], true) || !is_time(times["catch_up"], true)) return false;
  const Json::Object every = numbers(times);
  return std::all_of(every.begin(), every.end(), [](const Json::Member& each) {
    const bool is_number = each.first.find_first_not_of("0123456789") == std::string::npos && each.first.size() <= kMostWidthDigits;
    const bool is_width = each.first == "autoregressive" || is_number;
    return is_width && is_time(each.second, false);
  });
}

double time_of(const Json::Object& times, const std::string& name) {
  const auto found = std::find_if(times.begin(), times.end(), [&](const Json::Member& each) { return each.first == name; });
  return found == times.end() ? 0 : found->second.number();
}

bool differ(const Json& known, const Json& merged) {
  const Json::Object before = numbers(known), now = numbers(merged);
  return std::any_of(now.begin(), now.end(), [&](const Json::Member& each) {
    const double old = time_of(before, each.first);
    return old == 0 || std::abs(each.second.number() / old - 1) > kChangedTimes;
  });
}

// The record with one process more. Windows that this one did not verify stay as they are.
Json mean(const Json& known, const Json& measured) {
  const int64_t count = std::min(known["processes"].integer(), kTimesProcesses - 1);
  const auto time = [&](double before, double now) {
    if (before == 0 || now == 0) return before == 0 ? now : before;
    return (static_cast<double>(count) * before + now) / static_cast<double>(count + 1);
  };
  const Json::Object before = known["windows"].object(), now = measured["windows"].object();
  Json::Object windows;
  for (const auto& [width, seconds] : before) windows.emplace_back(width, time(seconds.number(), time_of(now, width)));
  for (const auto& [width, seconds] : now)
    if (time_of(before, width) == 0) windows.emplace_back(width, seconds);
  Json::Object found;
  for (const char* const name : {"autoregressive", "drafting", "catch_up"})
    found.emplace_back(name, time(known[name].number(), measured[name].number()));
  found.emplace_back("windows", windows);
  found.emplace_back("processes", count + 1);
  return found;
}

}  // namespace

RecordedTimes::RecordedTimes(Json key) : key_(std::move(key)) {
  if (key_.is_null()) return;
  std::optional<Json> found = cache().read(key_);
  if (found && is_whole(*found)) known_ = written_ = std::move(found);
}

Json RecordedTimes::with(const Json& measured) const {
  if (known_) return mean(*known_, measured);
  Json found = measured;
  found.set("processes", 1);
  return found;
}

void RecordedTimes::begin(const std::optional<Json>& measured) {
  if (key_.is_null() || !measured) return;
  known_ = written_ = with(*measured);
  cache().store(key_, *known_);
}

void RecordedTimes::update(const std::optional<Json>& measured) {
  if (key_.is_null() || !measured) return;
  const Json found = with(*measured);
  if (written_ && !differ(*written_, found)) return;
  written_ = found;
  cache().store(key_, found);
}

Json times_key(Json engine, std::optional<int> threads) {
  engine.set("times", kTimesFormat);
  engine.set("threads", threads ? Json(*threads) : Json());
  return engine;
}

}  // namespace spc
