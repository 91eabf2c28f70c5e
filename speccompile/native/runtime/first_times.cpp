#include "first_times.h"

#include <functional>
#include <optional>
#include <string>

#include "../contract_table.h"
#include "speedup_model.h"
#include "window_invariance.h"

namespace spc {
namespace {

// Return the typical seconds of up to `runs` runs, which end after `limit` seconds, on the clock of rounds. The first of several
// runs is not counted: it allocates memory.
double seconds_of(const std::function<void()>& run, int64_t runs, double limit) {
  const Clock now = clock(false);
  const double begun = wall_seconds();
  Times times;
  double first = 0.0;
  for (int64_t ran = 0; ran == 0 || (ran < runs && wall_seconds() - begun < limit); ++ran) {
    const double start = now();
    run();
    const double taken = now() - start;
    if (ran == 0)
      first = taken;
    else
      times.add(taken);
  }
  return times.is_measured() ? times.typical : first;
}

// Return what rounds of one sequence cost, in seconds, in the form of `SpeedupModel::measured_times`; nullopt for a bundle
// whose draft length does not adapt. runs: maximum number of runs of each part.
//
// What the runs commit lies behind the length of every slot.
std::optional<Json> measure_times(DecodeLoop& loop, int64_t runs) {
  BoundGraphs& rounds = loop.rounds();
  const bool is_fused = rounds.graph(graph::kStep), has_draft = !is_fused && rounds.graph(graph::kDraft);
  const int64_t full = rounds.manifest.tokens + 1;
  if (full == 1 || !loop.drafting().may_adapt) return std::nullopt;
  write_neutral_inputs(rounds.engine, rounds.manifest);
  const Span rows = rounds.supports_batch_slices ? Span{0, 1} : rounds.all();
  VerifyPass& single = rounds.forward({1, 1, 1, false, false, false, rows});
  VerifyPass& window = rounds.forward({full, full, 1, is_fused, false, false, rows});
  const double share = kTimingLimit / (2 + has_draft);
  const auto verify = [&](int64_t width, VerifyPass& pass) {
    return seconds_of(
        [&] {
          for (int64_t row = 0; row < rounds.manifest.batch_size; ++row) {
            rounds.n_given[row] = 1;
            rounds.n_total[row] = width;
            rounds.length[row] = 0;
          }
          pass.verify();
        },
        runs, share);
  };
  const double autoregressive = verify(1, single), wide = verify(full, window);
  const double drafting = has_draft ? seconds_of([&] { window.draft()(); }, runs, share) : 0.0;
  single.has_run = window.has_run = true;
  window.has_drafted = has_draft;
  return Json(Json::Object{{"autoregressive", autoregressive},
                           {"windows", Json::Object{{std::to_string(full), wide}}},
                           {"drafting", drafting},
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
