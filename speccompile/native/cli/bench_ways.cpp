#include "bench_ways.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace spc::cli {
namespace {

constexpr double kPercentiles[] = {50, 90, 99};
constexpr size_t kAll = static_cast<size_t>(-1);

// Return numpy's percentile: interpolated between the two nearest values. `sorted` has one or more.
double percentile(const std::vector<double>& sorted, double share) {
  const double place = share / 100 * static_cast<double>(sorted.size() - 1), below = std::floor(place), part = place - below;
  const double low = sorted[static_cast<size_t>(below)],
               high = sorted[std::min(static_cast<size_t>(below) + 1, sorted.size() - 1)];
  return part < 0.5 ? low + (high - low) * part : high - (high - low) * (1 - part);
}

Json percentiles(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  return Json(Json::Object{{"p50", percentile(seconds, kPercentiles[0])},
                           {"p90", percentile(seconds, kPercentiles[1])},
                           {"p99", percentile(seconds, kPercentiles[2])}});
}

// The same at 1, 5, 10, .., 95, 99 per cent.
Json distribution(std::vector<double> seconds) {
  Json::List found;
  if (seconds.empty()) return Json(found);
  std::sort(seconds.begin(), seconds.end());
  found.emplace_back(percentile(seconds, 1));
  for (int share = 5; share < 100; share += 5) found.emplace_back(percentile(seconds, share));
  found.emplace_back(percentile(seconds, 99));
  return Json(std::move(found));
}

template <class F>
std::vector<double> each_of(const Generations& generations, F f) {
  std::vector<double> found;
  for (const Generation* each : generations)
    if (const std::optional<double> value = f(*each)) found.push_back(*value);
  return found;
}

template <class F>
double median_of(const Generations& generations, F f) {
  return median(each_of(generations, [&](const Generation& one) { return std::optional<double>(f(one)); }));
}

// New tokens a round over all of them, the prefill's tokens left out; nothing without a round.
std::optional<double> mean_accepted(const Generations& generations) {
  int64_t rounds = 0, tokens = 0;
  for (const Generation* each : generations) {
    rounds += each->rounds();
    tokens += each->rounds() ? each->count() - 1 : 0;
  }
  return rounds ? std::optional<double>(static_cast<double>(tokens) / static_cast<double>(rounds)) : std::nullopt;
}

Json group_way(const std::vector<const Repeats*>& answers) {
  double total = 0;
  Generations first;
  for (const Repeats* repeats : answers) {
    std::vector<double> rates;  // over all turns
    for (const Answers& turns : *repeats) {
      double tokens = 0, seconds = 0;
      for (const Generation& each : turns) {
        tokens += static_cast<double>(each.count());
        seconds += each.seconds;
      }
      rates.push_back(tokens / seconds);
    }
    total += median(rates);
    add_generations(*repeats, 1, first);
  }
  return Json(Json::Object{{"tokens_per_second", total / static_cast<double>(answers.size())},
                           {"mean_accepted", known(mean_accepted(first))}});
}

Json make_group(const std::string& name, const std::vector<const PromptRuns*>& cases) {
  std::vector<const Repeats*> ours, theirs;
  for (const PromptRuns* each : cases) {
    if (!each->speculative.empty()) ours.push_back(&each->speculative);
    theirs.push_back(&each->autoregressive);
  }
  const Json speculative = ours.empty() ? Json() : group_way(ours), alone = group_way(theirs);
  const Json speedup =
      ours.empty() ? Json() : Json(speculative["tokens_per_second"].number() / alone["tokens_per_second"].number());
  return Json(Json::Object{{"group", name},
                           {"prompts", static_cast<int64_t>(cases.size())},
                           {"speculative", speculative},
                           {"autoregressive", alone},
                           {"speedup", speedup}});
}

Json share(int64_t part, int64_t whole) {
  return whole ? Json(static_cast<double>(part) / static_cast<double>(whole)) : Json();
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::optional<double> known_median(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional<double>(median(values));
}

Json known(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json make_way(const std::vector<const Repeats*>& answers) {
  Generations every, first;
  for (const Repeats* repeats : answers) {
    add_generations(*repeats, kAll, every);
    add_generations(*repeats, 1, first);
  }
  std::vector<double> gaps, inter_token;
  for (const Generation* each : every) {
    const std::vector<int64_t> tokens = each->new_tokens();
    gaps.insert(gaps.end(), each->gaps.begin(), each->gaps.end());
    for (size_t i = 0; i < tokens.size(); ++i)
      inter_token.insert(inter_token.end(), static_cast<size_t>(std::max<int64_t>(0, tokens[i])),
                         each->gaps[i] / static_cast<double>(tokens[i]));
  }
  int64_t new_tokens = 0, rounds = 0, drafting = 0, drafts = 0;
  for (const Generation* each : first) {
    new_tokens += each->count();
    rounds += each->rounds();
    drafting +=
        std::count_if(each->draft_lengths.begin(), each->draft_lengths.end(), [](int64_t length) { return length != 0; });
    drafts += std::accumulate(each->draft_lengths.begin(), each->draft_lengths.end(), int64_t{0});
  }
  const auto host_a_round = [](const Generation& one) {
    return one.rounds() ? std::optional<double>(one.host() / static_cast<double>(one.rounds()) * 1e6) : std::nullopt;
  };
  return Json(Json::Object{
      {"tokens_per_second", median_of(every, [](const Generation& one) { return one.rate(); })},
      {"decode_tokens_per_second",
       known(known_median(each_of(every, [](const Generation& one) { return one.decode_rate(); })))},
      {"first_token_seconds", median_of(every, [](const Generation& one) { return one.first_token(); })},
      {"inter_token_seconds", percentiles(inter_token)},
      {"inter_token_distribution", distribution(inter_token)},
      {"round_seconds", percentiles(gaps)},
      {"encode_seconds", Json()},  // prompts have no pictures here
      {"prefill_seconds", median_of(every, [](const Generation& one) { return one.prefill; })},
      {"verify_seconds", median_of(every, [](const Generation& one) { return one.verify; })},
      {"draft_seconds", median_of(every, [](const Generation& one) { return one.draft; })},
      {"host_seconds", median_of(every, [](const Generation& one) { return one.host(); })},
      {"host_microseconds_per_round", known(known_median(each_of(every, host_a_round)))},
      {"new_tokens", new_tokens},
      {"rounds", rounds},
      {"drafting_rounds", drafting},
      {"mean_accepted", known(mean_accepted(first))},
      {"mean_draft_length", share(drafts, rounds)},
  });
}

Json make_groups(const std::vector<PromptRuns>& cases) {
  std::vector<std::pair<std::string, std::vector<const PromptRuns*>>> groups;
  std::vector<const PromptRuns*> all;
  for (const PromptRuns& each : cases) {
    auto place = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == each.group; });
    if (place == groups.end()) place = groups.insert(place, {each.group, {}});
    place->second.push_back(&each);
    all.push_back(&each);
  }
  Json::List found;
  if (groups.size() == 1 && groups[0].first == kPlainGroup) return Json(found);
  for (const auto& [name, members] : groups) found.push_back(make_group(name, members));
  found.push_back(make_group("overall", all));
  return Json(std::move(found));
}

Json acceptance_by_depth(const std::vector<PromptRuns>& cases, const Manifest& manifest) {
  std::vector<std::pair<int64_t, int64_t>> rounds;  // how deep each drafted, and how many drafts it accepted
  Generations first;
  for (const PromptRuns& each : cases) add_generations(each.speculative, 1, first);
  for (const Generation* one : first) {
    for (size_t i = 0; i < one->draft_lengths.size(); ++i) {
      // a tree that has room left counts as deep as so many drafts can be
      rounds.emplace_back(std::min(one->draft_lengths[i], manifest.depth), one->path_lengths[i] - 1);
    }
  }
  Json::List found;
  for (int64_t depth = 1; depth <= manifest.depth && !rounds.empty(); ++depth) {
    int64_t so_deep = 0, here = 0, before = 0;
    for (const auto& [drafted, accepted] : rounds) {
      if (drafted < depth) continue;
      ++so_deep;
      here += accepted >= depth;
      before += accepted >= depth - 1;
    }
    found.push_back(Json(Json::Object{{"depth", depth},
                                      {"rounds", so_deep},
                                      {"accepted", share(here, so_deep)},
                                      {"accepted_after_previous", share(here, before)}}));
  }
  return Json(std::move(found));
}

}  // namespace spc::cli
