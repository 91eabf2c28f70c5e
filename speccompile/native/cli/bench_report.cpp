#include "bench_report.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "../system.h"
#include "bench_bandwidth.h"
#include "bench_prompts.h"

namespace spc::cli {
namespace {

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

// Return the given options of sampling; a bundle that samples has the seed 0 by default.
Json sampling_object(const Arguments& given, const Manifest& manifest) {
  Json found(Json::Object{{"temperature", 0.0}, {"seed", Json()}});
  for (const auto& [name, value] : sampling_of(given)) found.set(name, value.is_whole ? Json(value.whole) : Json(value.number));
  Json biases{Json::Object{}};
  for (const auto& [token, bias] : logit_bias_of(given)) biases.set(std::to_string(token), bias);
  if (!biases.object().empty()) found.set(kLogitBias, biases);
  const bool draws = found["temperature"].number() != 0 && manifest.decoding == decoding::kSampling;
  if (draws && found["seed"].is_null()) found.set("seed", int64_t{0});
  return found;
}

// Return the form in which questions are written; null without any.
Json conversation_of(const Bundle& bundle, const std::vector<Question>& questions) {
  const bool asks =
      std::any_of(questions.begin(), questions.end(), [](const Question& each) { return each.category.has_value(); });
  if (!asks) return {};
  return bundle.chat().has_templates() ? "chat_template" : "plain";
}

Json results_object(const Repeats& repeats) {
  Json::List found;
  for (const Answers& turns : repeats) {
    Json::List answers;
    for (const Generation& each : turns) answers.push_back(each.result);
    found.emplace_back(std::move(answers));
  }
  return Json(std::move(found));
}

Json costs_object(const GraphCosts& costs) {
  Json::List curve;
  for (const auto& [width, seconds] : costs.verify) curve.push_back(Json(Json::Object{{"width", width}, {"seconds", seconds}}));
  return Json(Json::Object{{"context", costs.context},
                           {"verify", std::move(curve)},
                           {"draft_seconds", costs.draft ? Json(*costs.draft) : Json()},
                           {"host_seconds", costs.host}});
}

}  // namespace

Measurements measure_all(const Arguments& given) {
  const std::vector<Question> questions = read_questions(given.text("--prompts"));
  Measurements made;
  made.bundle = bundle_of(given, true);
  const Manifest& manifest = made.bundle->manifest();
  const Json sampling = sampling_object(given, manifest);
  const int64_t most = given.count("--max-new-tokens", kNewTokens), repeats = given.count("--repeats", 3);
  Request request = request_of(given);
  if (!sampling["seed"].is_null()) request.set(Request::kAll, "seed", Value::of(static_cast<uint64_t>(sampling["seed"].integer())));
  made.options = Json::Object{{"sampling", sampling},
                              {"max_new_tokens", most},
                              {"conversation", conversation_of(*made.bundle, questions)},
                              {"adaptive", !given.has("--fixed-draft-length")}};
  made.cases = measure(made.bundle, questions, request, most, repeats);
  made.memory = memory_now();  // before costs bind wider windows
  made.costs = measure_costs(*made.bundle, std::max<int64_t>(1, std::min(mean_context(made.cases), manifest.max_length - 2)));
  if (made.bundle->entry().provider == provider::kCpu)
    made.bandwidth = measure_bandwidth(made.bundle->program().threads().value_or(available_cores()));
  if (!made.bundle->speculative() || (sampling["temperature"].number() != 0 && manifest.sample)) return made;
  made.differences.emplace();
  for (const PromptRuns& each : made.cases)
    if (const std::optional<Divergence> difference = each.difference()) made.differences->push_back(*difference);
  return made;
}

Json to_json(const Measurements& measured) {
  const Bundle& bundle = *measured.bundle;
  const std::optional<int> threads = bundle.program().threads();
  Json::List prompts;
  for (const PromptRuns& each : measured.cases)
    prompts.push_back(Json(Json::Object{{"group", each.group},
                                        {"speculative", results_object(each.speculative)},
                                        {"autoregressive", results_object(each.autoregressive)}}));
  return Json(Json::Object{
      {"bundle", bundle.manifest().name},
      {"exact", bundle.exact()},
      {"engine", bundle.entry().name},
      {"kernels", bundle.kernels().empty() ? Json() : Json(bundle.kernels())},
      {"threads", threads ? Json(*threads) : Json()},
      {"cpus", static_cast<int64_t>(sysconf(_SC_NPROCESSORS_ONLN))},
      {"load_seconds", bundle.description()["load_seconds"]},
      {"options", measured.options},
      {"memory", measured.memory},
      {"costs", costs_object(measured.costs)},
      {"bandwidth", measured.bandwidth},
      {"versions", Json::Object{{"speccompile", kVersion}, {"onnxruntime", bundle.onnxruntime()}}},
      {"prompts", std::move(prompts)},
  });
}

}  // namespace spc::cli
