#include "first_times.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../contract_table.h"
#include "speedup_model.h"
#include "window_invariance.h"

namespace spc {
namespace {

// Return the typical seconds of each part, on the clock of rounds, in up to `runs` runs, which end after `limit` seconds. The
// first run of a part counts only if it is the only one.
//
// Parts take turns: a process begins with cold caches, which would make the part that is timed first seem slow.
std::vector<double> seconds_of(const std::vector<std::function<void()>>& parts, int64_t runs, double limit) {
  const Clock now = clock(false);
  const double begun = wall_seconds();
  std::vector<Times> times;
  for (int64_t ran = 0; ran == 0 || (ran < runs && wall_seconds() - begun < limit); ++ran) {
    if (ran < 2) times.assign(parts.size(), Times());
    for (size_t part = 0; part < parts.size(); ++part) {
      const double start = now();
      parts[part]();
      times[part].add(now() - start);
    }
  }
  std::vector<double> seconds;
  for (const Times& found : times) seconds.push_back(found.typical);
  return seconds;
}

// Return what rounds of one sequence cost, in seconds, in the form of `SpeedupModel::measured_times`; nullopt for a bundle
// whose draft length does not adapt. runs: maximum number of runs of each part.
//
// The runs write their rows behind the committed length of every slot.
std::optional<Json> measure_times(DecodeLoop& loop, int64_t runs) {
  BoundGraphs& rounds = loop.rounds();
  const bool is_fused = rounds.graph(graph::kStep), has_draft = !is_fused && rounds.graph(graph::kDraft);
  const int64_t full = rounds.manifest.tokens + 1;
  if (full == 1 || !loop.drafting().may_adapt) return std::nullopt;
  write_neutral_inputs(rounds.engine, rounds.manifest);
  const Span rows = rounds.supports_batch_slices ? Span{0, 1} : rounds.all();
  VerifyPass& single = rounds.forward({1, 1, 1, 1, false, false, false, rows});
  VerifyPass& window = rounds.forward({full, full, 1, 1, is_fused, false, false, rows});
  const auto verify = [&rounds](int64_t width, VerifyPass& pass) {
    return [&rounds, &pass, width] {
      for (int64_t row = 0; row < rounds.manifest.batch_size; ++row) {
        rounds.n_given[row] = 1;
        rounds.n_total[row] = width;
        rounds.length[row] = 0;
      }
      pass.verify();
    };
  };
  std::vector<std::function<void()>> parts{verify(1, single), verify(full, window)};
  if (has_draft) parts.emplace_back([&window] { window.draft()(); });
  const std::vector<double> seconds = seconds_of(parts, runs, kTimingLimit);
  single.has_run = window.has_run = true;
  window.has_drafted = has_draft;
  return Json(Json::Object{{"autoregressive", seconds[0]},
                           {"windows", Json::Object{{std::to_string(full), seconds[1]}}},
                           {"drafting", has_draft ? seconds[2] : 0.0},
                           {"catch_up", 0.0}});
}

}  // namespace

void prepare_rounds(DecodeLoop& loop, RecordedTimes& times) {
  const std::optional<Json> known = times.known();
  if (!known)
    times.begin(measure_times(loop, kTimingRuns));
  else if ((*known)["autoregressive"].number() <= kSmallSeconds)
    times.begin(measure_times(loop, kSmallRuns));
  const std::optional<Json>& start = known ? known : times.known();  // what other processes found tells more than a few runs here
  if (start) loop.drafting().policy->expect_times(*start);
}

}  // namespace spc
