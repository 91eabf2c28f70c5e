#include "round_times.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "../bundle/cache.h"
#include "../contract_table.h"
#include "invariance_cache.h"

namespace spc {
namespace {

InvarianceCache cache() { return InvarianceCache(cache_folder(kTimesFolder)); }

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
  if (!times["windows"].is_object() || !is_time(times["drafting"], true) || !is_time(times["catch_up"], true)) return false;
  const Json::Object every = numbers(times);
  return std::all_of(every.begin(), every.end(), [](const Json::Member& each) {
    const bool is_width = each.first == "autoregressive" || each.first.find_first_not_of("0123456789") == std::string::npos;
    return is_width && is_time(each.second, false);
  });
}

bool differ(const Json& known, const Json& measured) {
  const Json::Object before = numbers(known), now = numbers(measured);
  return std::any_of(now.begin(), now.end(), [&](const Json::Member& each) {
    const auto found = std::find_if(before.begin(), before.end(), [&](const Json::Member& other) { return other.first == each.first; });
    if (found == before.end()) return true;
    const double ratio = each.second.number() / found->second.number();
    return ratio <= 1 / kChangedTimes || ratio >= kChangedTimes;
  });
}

}  // namespace

RecordedTimes::RecordedTimes(Json key) : key_(std::move(key)) {
  if (key_.is_null()) return;
  std::optional<Json> found = cache().read(key_);
  if (found && is_whole(*found)) known_ = std::move(found);
}

void RecordedTimes::update(const std::optional<Json>& measured) {
  if (key_.is_null() || !measured || (known_ && !differ(*known_, *measured))) return;
  known_ = measured;
  cache().keep(key_, *measured);
}

Json times_key(Json engine, std::optional<int> threads) {
  engine.set("times", kTimesFormat);
  engine.set("threads", threads ? Json(*threads) : Json());
  return engine;
}

}  // namespace spc
