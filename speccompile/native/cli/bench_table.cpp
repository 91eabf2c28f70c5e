// A short report for machines without Python.
#include "bench_report.h"
#include "text_table.h"

namespace spc::cli {
namespace {

constexpr size_t kTitle = 26, kMode = 16, kWidth = 8;  // characters of columns

using Statistic = std::optional<double>;

// Median over the generations for which there is a value.
template <class F>
Statistic median_of(const Generations& runs, F value) {
  std::vector<double> found;
  for (const Generation* each : runs)
    if (const Statistic one = value(*each)) found.push_back(*one);
  return found.empty() ? std::nullopt : Statistic(median(found));
}

std::string cell(const Statistic& value, const char* form) { return value ? number(form, *value) : "-"; }

Statistic rate(const Generation& one) { return one.rate(); }
Statistic decode_rate(const Generation& one) { return one.decode_rate(); }
Statistic first_token(const Generation& one) { return one.first_token * 1e3; }

// New tokens a round over all of them, the prefill's tokens left out; nothing without a round.
Statistic mean_accepted(const Generations& runs) {
  double rounds = 0, tokens = 0;
  for (const Generation* each : runs) {
    rounds += static_cast<double>(each->rounds);
    tokens += each->rounds ? static_cast<double>(each->count() - 1) : 0;
  }
  return rounds > 0 ? Statistic(tokens / rounds) : std::nullopt;
}

// Return the median ratio of a rate over pairs of generations that ran one after the other.
Statistic speedup(const Generations& ours, const Generations& theirs, Statistic (*rate)(const Generation&)) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double one = rate(*ours[i]).value_or(0), other = rate(*theirs[i]).value_or(0);
    if (one > 0 && other > 0) ratios.push_back(one / other);
  }
  return ratios.empty() ? std::nullopt : Statistic(median(ratios));
}

// Describe the run and the machine.
std::string head(const Measurements& measured) {
  const Bundle& bundle = *measured.bundle;
  const std::optional<int> threads = bundle.program().threads();
  std::string text = bundle.manifest().name + " on " + bundle.entry().name;
  if (threads) text += ", threads: " + std::to_string(*threads);
  if (!bundle.kernels().empty()) text += ", kernels: " + bundle.kernels();
  text += "\n" + std::to_string(measured.cases.size()) + " prompts, up to " + measured.options["max_new_tokens"].dump() +
          " new tokens, " + std::to_string(measured.cases[0].autoregressive.size()) +
          " repeats; medians over prompts and repeats\n" + bundle.manifest().decoding + " decoding at temperature " +
          number("%g", measured.options["sampling"]["temperature"].number());
  if (bundle.speculative())
    text += ", verified by " + bundle.manifest().method + (bundle.exact() ? "" : ": APPROXIMATE, the output may change");
  return text + "\n";
}

std::string modes(const Measurements& measured, const Generations& ours, const Generations& theirs) {
  std::vector<std::pair<const char*, const Generations*>> shown = {{"speculative", &ours}, {"autoregressive", &theirs}};
  if (ours.empty()) shown.erase(shown.begin());
  std::string title, lines[4] = {"tokens/s", "tokens/s without prefill", "first token ms", "mean accepted"};
  for (std::string& line : lines) line = left(line, kTitle);
  for (const auto& [name, runs] : shown) {
    title += right(name, kMode);
    lines[0] += right(cell(median_of(*runs, rate), "%.1f"), kMode);
    lines[1] += right(cell(median_of(*runs, decode_rate), "%.1f"), kMode);
    lines[2] += right(cell(median_of(*runs, first_token), "%.2f"), kMode);
    lines[3] += right(cell(mean_accepted(*runs), "%.2f"), kMode);
  }
  std::string text = left("", kTitle) + title + "\n";
  for (const std::string& line : lines) text += line + "\n";
  if (ours.empty()) return text + "the bundle has no drafter: autoregressive only\n";
  const int64_t width = measured.bundle->manifest().tokens + 1;
  return text + "speedup " + cell(speedup(ours, theirs, rate), "%.2f") + ", without prefill " +
         cell(speedup(ours, theirs, decode_rate), "%.2f") + "; speculation breaks even at a mean accepted of " +
         number("%.2f", measured.costs.round_seconds(width) / measured.costs.round_seconds(1)) + "\n";
}

std::string costs(const GraphCosts& found) {
  std::string widths = left("window width", kTitle), times = left("verify ms", kTitle);
  for (const auto& [width, seconds] : found.verify) {
    widths += right(std::to_string(width), kWidth);
    times += right(number("%.2f", seconds * 1e3), kWidth);
  }
  const std::string draft = found.draft ? "draft " + number("%.2f ms, ", *found.draft * 1e3) : "";
  return "costs over " + std::to_string(found.context) + " tokens of context\n" + widths + "\n" + times + "\n" + draft +
         number("host %.1f us a round\n", found.host * 1e6);
}

// Say whether both modes gave the same tokens, and where they first differ.
std::string equality(const Measurements& measured) {
  if (!measured.bundle->speculative()) return "";
  if (!measured.differences) return "drafts are drawn: the two ways give other tokens, by the same probabilities\n";
  const auto token = [](const std::optional<int64_t>& id) { return id ? std::to_string(*id) : std::string("None"); };
  const size_t count = measured.cases.size();
  std::string text = "same tokens on " + std::to_string(count - measured.differences->size()) + " of " +
                     std::to_string(count) + " prompts\n";
  for (const Divergence& each : *measured.differences)
    text += "prompt " + std::to_string(each.prompt) + ", turn " + std::to_string(each.turn) + ": new token " +
            std::to_string(each.index) + " is " + token(each.speculative) + " speculatively and " +
            token(each.autoregressive) + " autoregressively\n";
  return text;
}

}  // namespace

std::string write_table(const Measurements& measured) {
  Generations ours, theirs;
  for (const PromptRuns& each : measured.cases) {
    add_generations(each.speculative, each.speculative.size(), ours);
    add_generations(each.autoregressive, each.autoregressive.size(), theirs);
  }
  return head(measured) + "\n" + modes(measured, ours, theirs) + "\n" + costs(measured.costs) + "\n" + equality(measured) +
         "`speccompile bench BUNDLE --measured FILE` writes the full report of what --json prints";
}

}  // namespace spc::cli
