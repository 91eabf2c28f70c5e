#include "first_times.h"

#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "../contract_table.h"
#include "speedup_model.h"
#include "window_invariance.h"

namespace spc {
namespace {

using Way = std::vector<std::function<void()>>;

// Return the seconds at the end of the next turn, after `turns` turns: the third and later ones have two rounds. first: seconds of
// the first, whose runs allocate memory.
double end_of_next(double spent, double first, int64_t turns) {
  return turns == 1 ? 2 * spent : spent + 2 * (spent - first) / static_cast<double>(2 * turns - 3);
}

// Return the typical seconds of each graph run, on the clock of rounds, in up to `runs` timed rounds, which end after `limit`
// seconds; none if that ends before `least_turns`. ways: the ways to decode, each as the graph runs of a round.
//
// The first round of a way counts only if there is time for no other: it allocates; the first way then runs once more in any
// case. Ways take turns: a process begins with cold caches, which would make the one that is timed first seem slow. And from
// the third turn on a way runs a round before one is timed, and what was timed before counts no more: in use rounds follow
// rounds of their kind, whose weights a cache may hold. A round of a target that fits into one would seem half as long again
// behind a round with drafts.
std::vector<double> seconds_of(const std::vector<Way>& ways, int64_t runs, double limit, int64_t least_turns) {
  const Clock now = clock(false);
  const double begun = wall_seconds();
  double first = 0;
  int64_t turns = 0;
  std::vector<std::vector<Times>> times;
  const auto time = [&](size_t kind) {
    for (size_t part = 0; part < ways[kind].size(); ++part) {
      const double start = now();
      ways[kind][part]();
      times[kind][part].add(now() - start);
    }
  };
  for (; turns == 0 || (turns < runs && end_of_next(wall_seconds() - begun, first, turns) < limit); ++turns) {
    if (turns < 3) {
      times.clear();
      for (const Way& way : ways) times.emplace_back(way.size());
    }
    for (size_t kind = 0; kind < ways.size(); ++kind) {
      if (turns > 1)
        for (const auto& run : ways[kind]) run();
      time(kind);
    }
    if (!turns) first = wall_seconds() - begun;
  }
  std::vector<double> seconds;
  if (turns < least_turns) return seconds;
  if (turns == 1) {  // the first way is that without drafts, which all others are compared with: it may not be too slow
    times[0].assign(ways[0].size(), Times());
    time(0);
  }
  for (const auto& way : times)
    for (const Times& found : way) seconds.push_back(found.typical);
  return seconds;
}

// Return a verification of windows of `width` tokens in every batch slot, behind its first token.
std::function<void()> verification(BoundGraphs& rounds, VerifyPass& pass, int64_t width) {
  return [&rounds, &pass, width] {
    for (int64_t row = 0; row < rounds.manifest.batch_size; ++row) {
      rounds.n_given[row] = 1;
      rounds.n_total[row] = width;
      rounds.length[row] = 0;
    }
    pass.verify();
  };
}

// Return the width of the fused round that is timed beside the widest, 0 for none. Drafting is a part of a fused round, so that
// those of other widths do not lie between a round without drafts and the widest.
int narrow_width(const std::map<int, int>& widths, bool is_fused) {
  return is_fused && widths.size() > 2 ? std::next(widths.begin(), static_cast<std::ptrdiff_t>(widths.size() / 2))->first : 0;
}

// Return what rounds of one sequence cost, in seconds, in the form of `SpeedupModel::measured_times`; nullopt for a bundle
// whose draft length does not adapt, and if there is time for fewer turns: first runs tell less than a record.
//
// The runs write their rows behind the committed length of every slot.
std::optional<Json> measure_times(DecodeLoop& loop, int64_t least_turns) {
  BoundGraphs& rounds = loop.rounds();
  const bool is_fused = rounds.graph(graph::kStep), has_draft = !is_fused && rounds.graph(graph::kDraft);
  const int64_t full = rounds.manifest.tokens + 1;
  if (full == 1 || !loop.drafting().may_adapt) return std::nullopt;
  write_neutral_inputs(rounds.engine, rounds.manifest);
  const Span rows = rounds.supports_batch_slices ? Span{0, 1} : rounds.all();
  VerifyPass& single = rounds.forward({1, 1, 1, 1, false, false, false, rows});
  VerifyPass& window = rounds.forward({full, full, 1, 1, is_fused, false, false, rows});
  std::vector<Way> ways{{verification(rounds, single, 1)}, {verification(rounds, window, full)}};
  if (has_draft) ways[1].emplace_back([&window] { window.draft()(); });
  const int narrow = narrow_width(loop.drafting().widths, is_fused);
  if (narrow) {
    VerifyPass& between = rounds.forward({narrow, narrow, 1, 1, true, false, false, rows});
    ways.push_back({verification(rounds, between, narrow)});
    between.has_run = true;
  }
  const std::vector<double> seconds = seconds_of(ways, kTimingRuns, kTimingLimit, least_turns);
  single.has_run = window.has_run = true;
  window.has_drafted = has_draft;
  if (seconds.empty()) return std::nullopt;
  Json::Object windows;
  if (narrow) windows.emplace_back(std::to_string(narrow), seconds.back());
  windows.emplace_back(std::to_string(full), seconds[1]);
  return Json(Json::Object{{"autoregressive", seconds[0]},
                           {"windows", windows},
                           {"drafting", has_draft ? seconds[2] : 0.0},
                           {"catch_up", 0.0}});
}

}  // namespace

void prepare_rounds(DecodeLoop& loop, RecordedTimes& times) {
  const std::optional<Json> known = times.known();
  if (!known || (*known)["autoregressive"].number() <= kSmallSeconds) times.begin(measure_times(loop, known ? 2 : 1));
  const std::optional<Json>& start = known ? known : times.known();  // measurements of other processes tell more than a few runs here
  if (start) loop.drafting().policy->expect_times(*start);
}

}  // namespace spc
