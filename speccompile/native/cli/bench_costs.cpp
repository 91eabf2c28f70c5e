#include "bench_costs.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "../errors.h"
#include "../operators/float_mode.h"
#include "../progress.h"
#include "../runtime/decode_loop.h"
#include "bench_runs.h"

namespace spc::cli {
namespace {

// Return the widths to measure: on a processor all up to 8 and some wide ones; the decoding window's always.
std::set<int64_t> curve_widths(const Manifest& manifest, bool on_device) {
  const int64_t decoding = manifest.tokens + 1, widest = std::max(manifest.prefill_chunk, decoding);
  std::set<int64_t> widths(std::begin(kDeviceWidths), std::end(kDeviceWidths));
  if (!on_device) {
    widths = {std::begin(kWideWidths), std::end(kWideWidths)};
    for (int64_t width = 1; width <= kEveryWidth; ++width) widths.insert(width);
  }
  widths.erase(widths.upper_bound(widest), widths.end());
  widths.insert(decoding);
  return widths;
}

// Return token ids spread over the whole vocabulary, so that their rows of the embedding lie far apart.
TokenIds context_tokens(const Manifest& manifest, int64_t count) {
  TokenIds ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(i * 7919 % manifest.vocabulary_size);
  return ids;
}

// Return the seconds that the host adds to the graphs of a round, and leave the context in the caches. No token ends the generation.
double host_seconds(Engine& engine, const Bundle& bundle, int64_t context) {
  const Manifest& manifest = bundle.manifest();
  DecodeLoop loop(engine, manifest, bundle.entry().graphs, bundle.entry().provider != provider::kCpu);
  Options options;
  options.max_new_tokens = std::min(kHostNewTokens, manifest.max_length - context);
  std::vector<double> found;
  for (int i = 0; i < kHostGenerations; ++i) {
    Rows rows;
    rows.emplace_back(context_tokens(manifest, context), options, SamplingParams(), manifest.max_length, std::vector<int64_t>(),
                      bundle.text(), std::vector<std::string>());
    if (manifest.source) rows[0].source = example_source(manifest);
    loop.begin(rows, bundle.speculative(), false);
    double seconds = 0;
    while (rows[0].is_active()) {
      const double start = wall_seconds();
      loop.step();
      seconds += wall_seconds() - start;
    }
    const double host = seconds - loop.seconds.prefill - loop.seconds.verify - loop.seconds.draft;
    found.push_back(host / static_cast<double>(rows[0].path_lengths.size() - 1));
  }
  return median(found);
}

// The graphs of a round at several widths. One row is active; its draft follows every window that has room.
class CostRounds {
 public:
  CostRounds(Engine& engine, const Manifest& manifest, int64_t context)
      : engine_(engine), manifest_(manifest), context_(context), decoding_(manifest.tokens + 1) {
    if (!engine.has(graph::kDraft)) return;
    run(decoding_);  // the draft reads the target's outputs of a decoding window, also after other widths
    draft_ = engine.bind(graph::kDraft, widths(decoding_), false);
  }

  // Seconds of `verify` or `step`, and of `draft` where there is one.
  std::pair<double, std::optional<double>> run(int64_t width) {
    const Run& verify = bound(width);
    begin();
    const double start = wall_seconds();
    verify();
    const double verified = wall_seconds();
    if (!draft_ || width == 1) return {verified - start, std::nullopt};
    draft_();
    return {verified - start, wall_seconds() - verified};
  }

 private:
  const Run& bound(int64_t width) {
    const auto found = verify_.find(width);
    if (found != verify_.end()) return found->second;
    const Array window = engine_.host_view(names::kWindow, {manifest_.batch_size, width});
    const TokenIds tokens = context_tokens(manifest_, width);
    for (size_t i = 0; i < window.count(); ++i) window.ints()[i] = tokens[i % tokens.size()];
    const bool is_fused = engine_.has(graph::kStep) && width == decoding_;
    return verify_.emplace(width, engine_.bind(is_fused ? graph::kStep : graph::kVerify, widths(width), false)).first->second;
  }

  Widths widths(int64_t width) const {
    return {{names::kWindow, width},
            {names::kLogitRows, width},
            {names::kCatchUp, manifest_.catch_up},
            {names::kHistory, 1},
            {names::kAllowed, 1},
            {names::kMedia, 1},
            {names::kAdjusted, 1}};
  }

  // One token is given and nothing is a draft: what a graph computes depends on the widths alone.
  void begin() {
    for (const auto& [name, value] : {std::pair(names::kNGiven, int64_t{1}), {names::kNTotal, 1}, {names::kLength, context_}}) {
      const Array counts = engine_.host_view(name, {manifest_.batch_size});
      std::fill_n(counts.ints(), counts.count(), 0);
      counts.ints()[0] = value;
    }
  }

  Engine& engine_;
  const Manifest& manifest_;
  const int64_t context_, decoding_;
  std::map<int64_t, Run> verify_;
  Run draft_;
};

}  // namespace

GraphCosts measure_costs(const Bundle& bundle, int64_t context) {
  const Manifest& manifest = bundle.manifest();
  const int64_t most = manifest.max_length - 2;
  if (context > most)
    throw Error(Kind::kUsage,
                "context: received " + std::to_string(context) + " tokens, expected 1 to " + std::to_string(most),
                "two tokens less than the bundle's cache.max_length at most");
  const std::set<int64_t> widths = curve_widths(manifest, bundle.entry().provider != provider::kCpu);
  const Step step("cost of a round over " + std::to_string(context) + " tokens of context");
  const speccompile::FloatMode mode;
  const std::unique_ptr<Engine> engine = bundle.program().open();
  GraphCosts costs;
  costs.context = context;
  costs.host = host_seconds(*engine, bundle, context);
  CostRounds rounds(*engine, manifest, context);
  for (const int64_t width : widths)
    for (int i = 0; i < kWarmUpRuns; ++i) rounds.run(width);
  std::map<int64_t, std::vector<double>> verify;
  std::vector<double> draft;
  for (int i = 0; i < kCostRepeats; ++i) {
    for (const int64_t width : widths) {
      rounds.run(width);  // warms the processor's caches
      const auto [verified, drafted] = rounds.run(width);
      verify[width].push_back(verified);
      if (drafted) draft.push_back(*drafted);
    }
  }
  for (const auto& [width, times] : verify) costs.verify[width] = median(times);
  if (!draft.empty()) costs.draft = median(draft);
  return costs;
}

}  // namespace spc::cli
