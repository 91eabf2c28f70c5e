#include "bench_report.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "../errors.h"
#include "../system.h"
#include "bench_costs.h"
#include "bench_prompts.h"
#include "bench_roofline.h"
#include "bench_runs.h"
#include "bench_ways.h"

namespace spc::cli {
namespace {

Json known_token(const std::optional<int64_t>& token) { return token ? Json(*token) : Json(); }

// Return the sizes of this process after the generations.
Json memory_now() {
  const std::map<std::string, int64_t> sizes = process_memory();
  Json memory{Json::Object{}};
  for (const char* name : {"resident", "anonymous", "mapped", "peak", "proportional"})
    if (const auto found = sizes.find(name); found != sizes.end()) memory.set(name, found->second);
  return memory;
}

// Committed tokens at the middle of a generation, on average over all of them.
int64_t mean_context(const std::vector<PromptRuns>& cases) {
  Generations runs;
  for (const PromptRuns& each : cases) add_generations(each.autoregressive, each.autoregressive.size(), runs);
  double sum = 0;
  for (const Generation* one : runs) sum += static_cast<double>(one->prompt_tokens) + static_cast<double>(one->count()) / 2;
  return static_cast<int64_t>(std::nearbyint(sum / static_cast<double>(runs.size())));
}

bool is_full(const PromptRuns& each) {
  Generations runs;
  for (const Repeats* way : {&each.speculative, &each.autoregressive}) add_generations(*way, way->size(), runs);
  return std::any_of(runs.begin(), runs.end(), [](const Generation* one) { return one->finish_reason == finish::kCapacity; });
}

// The median of the ratios of a rate, each of two generations that ran one after the other.
template <class Rate>
Json speedup(const std::vector<PromptRuns>& cases, Rate rate) {
  std::vector<double> ratios;
  for (const PromptRuns& each : cases) {
    Generations ours, theirs;
    add_generations(each.speculative, each.speculative.size(), ours);
    add_generations(each.autoregressive, each.autoregressive.size(), theirs);
    for (size_t i = 0; i < ours.size(); ++i) {
      const std::optional<double> one = rate(*ours[i]), other = rate(*theirs[i]);
      if (one.value_or(0) > 0 && other.value_or(0) > 0) ratios.push_back(*one / *other);
    }
  }
  return known(known_median(ratios));
}

Json differences_of(const std::vector<PromptRuns>& cases) {
  Json::List found;
  for (const PromptRuns& each : cases) {
    if (const std::optional<Divergence> difference = each.difference())
      found.push_back(Json(Json::Object{{"prompt", difference->prompt},
                                        {"turn", difference->turn},
                                        {"index", difference->index},
                                        {"speculative", known_token(difference->speculative)},
                                        {"autoregressive", known_token(difference->autoregressive)}}));
  }
  return Json(std::move(found));
}

// Choice of tokens: the given options, and the seed of a bundle that samples.
struct Choice {
  double temperature = 0;
  std::optional<Value> seed;
  Json limits{Json::Object{}};
};

Choice choice_of(const Arguments& given, const Manifest& manifest) {
  Choice made;
  for (const auto& [name, value] : sampling_of(given)) {
    if (name == "temperature")
      made.temperature = value.number;
    else if (name == "seed")
      made.seed = value;
    else
      made.limits.set(name, value.is_whole ? Json(value.whole) : Json(value.number));
  }
  if (!made.seed && made.temperature != 0 && manifest.decoding == decoding::kSampling) made.seed = Value::of(uint64_t{0});
  return made;
}

// Return the form in which questions are written; null without any.
Json conversation_of(const Bundle& bundle, bool asks) {
  if (!asks) return {};
  return bundle.chat().is_there() ? "chat_template" : "plain";
}

// Return some members of a row of the proof.
Json members(const Json& row, std::initializer_list<const char*> names) {
  Json found{Json::Object{}};
  for (const char* name : names) found.set(name, row[name]);
  return found;
}

// Return the quality behind pictures as the build measured it (speccompile/bundle/image_quality.py); null where it did not.
Json pictures_of(const Bundle& bundle) {
  for (const Json& row : bundle.opened().proof["images"].list()) {
    const Json::List& engines = row["engines"].list();
    const auto is_own = [&](const Json& name) { return name.is_text() && name.text() == bundle.entry().name; };
    if (std::none_of(engines.begin(), engines.end(), is_own)) continue;
    if (row["quality"].is_null()) return {};
    Json found = members(row["quality"], {"tokens", "same_argmax", "kl_divergence"});
    const Json& encoder = row["encoder"];
    found.set("encoder", encoder.is_null() ? Json() : members(encoder, {"precision", "rms_error", "same_argmax", "kl_divergence"}));
    return found;
  }
  return {};
}

}  // namespace

Json make_report(const Arguments& given) {
  const std::vector<Question> questions = read_questions(given.text("--prompts"));
  const bool asks =
      std::any_of(questions.begin(), questions.end(), [](const Question& each) { return each.category.has_value(); });
  const std::shared_ptr<const Bundle> bundle = bundle_of(given, true);
  const Manifest& manifest = bundle->manifest();
  const Choice choice = choice_of(given, manifest);
  const int64_t most = given.count("--max-new-tokens", kNewTokens), repeats = given.count("--repeats", 3);
  Request request = request_of(given);
  if (choice.seed) request.set(Request::kAll, "seed", *choice.seed);
  const std::vector<PromptRuns> cases = measure(bundle, questions, request, most, repeats);
  const Json memory = memory_now();  // before costs bind wider windows
  const int64_t context = std::max<int64_t>(1, std::min(mean_context(cases), manifest.max_length - 2));
  const GraphCosts costs = measure_costs(*bundle, context);
  const bool drafts = bundle->speculative(), comparable = drafts && !(choice.temperature != 0 && manifest.sample);
  std::vector<const Repeats*> ours, theirs;
  Generations runs;
  for (const PromptRuns& each : cases) {
    ours.push_back(&each.speculative);
    theirs.push_back(&each.autoregressive);
    add_generations(each.speculative, each.speculative.size(), runs);
  }
  const Json speculative = drafts ? make_way(ours) : Json(), alone = make_way(theirs);
  const Json roofline = measure_roofline(*bundle, context, speculative, alone);
  const Json differences = comparable ? differences_of(cases) : Json(Json::List());
  const std::optional<int> threads = bundle->program().threads();
  const auto count = static_cast<int64_t>(cases.size());
  return Json(Json::Object{
      {"bundle", manifest.name},
      {"exact", bundle->exact()},
      {"method", manifest.method},
      {"decoding", manifest.decoding},
      {"temperature", choice.temperature},
      {"seed", choice.temperature != 0 && choice.seed ? Json(choice.seed->whole) : Json()},
      {"limits", choice.limits},
      {"engine", bundle->entry().name},
      {"kernels", bundle->kernels().empty() ? Json() : Json(bundle->kernels())},
      {"threads", threads ? Json(*threads) : Json()},
      {"cpus", static_cast<int64_t>(sysconf(_SC_NPROCESSORS_ONLN))},
      {"load_seconds", bundle->description()["load_seconds"]},
      {"memory", memory},
      {"prompts", count},
      {"conversation", conversation_of(*bundle, asks)},
      {"max_new_tokens", most},
      {"repeats", repeats},
      {"full_prompts", static_cast<int64_t>(std::count_if(cases.begin(), cases.end(), is_full))},
      {"draft_length", drafts ? Json(given.has("--fixed-draft-length") ? "fixed" : "adaptive") : Json()},
      {"speculative", speculative},
      {"autoregressive", alone},
      {"speedup", speedup(cases, [](const Generation& one) { return std::optional<double>(one.rate()); })},
      {"decode_speedup", speedup(cases, [](const Generation& one) { return one.decode_rate(); })},
      {"acceptance_by_depth", acceptance_by_depth(cases, manifest)},
      {"groups", make_groups(cases)},
      {"costs", make_budget(costs, context, manifest, runs)},
      {"roofline", roofline},
      {"pictures", pictures_of(*bundle)},
      {"equal_prompts", comparable ? Json(count - static_cast<int64_t>(differences.list().size())) : Json()},
      {"differences", differences},
      {"versions", Json::Object{{"speccompile", kVersion}, {"onnxruntime", bundle->onnxruntime()}}},
  });
}

}  // namespace spc::cli
