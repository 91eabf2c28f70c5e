#include "asked.h"

#include <cstdio>
#include <cstdlib>

#include "../runtime/sampling_table.h"

namespace triton {

namespace {

Refused usage(const std::string& message, const std::string& hint) { return {TRITONSERVER_ERROR_INVALID_ARG, message, hint}; }

// A float as the shortest number that it is read from: 0.8, not 0.800000011920929.
std::string shortest(float value) {
  char text[32];
  for (int digits = 6; digits <= 9; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, static_cast<double>(value));
    if (std::strtof(text, nullptr) == value) break;
  }
  return text;
}

bool flag(const Request& request, const char* name, bool otherwise) {
  const auto found = request.input(name);
  return found ? found->single<uint8_t>() != 0 : otherwise;
}

void refuse(const Request& request) {
  if (!flag(request, "exclude_input_in_output", true))
    throw usage("exclude_input_in_output: received false, expected true: an answer has the new text alone",
                "leave it out, and put the prompt before the answer yourself");
}

void read_prompt(Asked& asked) {
  const auto text = asked.request->input("text_input"), ids = asked.request->input("input_ids");
  if (text.has_value() == ids.has_value())
    throw usage(std::string("received ") + (text ? "text_input and input_ids" : "no prompt") + ", expected text_input or input_ids",
                "send exactly one of them");
  if (text) {
    asked.prompt = text->texts().at(0);
  } else {
    asked.prompt = ids->numbers<int64_t>();
  }
}

// Read a sampling option but for its neutral value, which clients may send to a bundle that does not sample as well.
void read_sampling(Asked& asked, const spc::SamplingOption& option) {
  const auto found = asked.request->input(option.name);
  if (!found) return;
  if (option.kind == spc::SamplingKind::kSeed) {
    asked.sampling.push_back({option.name, found->single<uint64_t>()});
  } else if (option.kind == spc::SamplingKind::kCount) {
    const int64_t value = found->single<int32_t>();
    if (value != static_cast<int64_t>(option.neutral)) asked.sampling.push_back({option.name, value});
  } else {
    const double value = std::strtod(shortest(found->single<float>()).c_str(), nullptr);
    if (value != option.neutral) asked.sampling.push_back({option.name, value});
  }
}

}  // namespace

void read(Asked& asked) {
  const Request& request = *asked.request;
  refuse(request);
  read_prompt(asked);
  if (const auto found = request.input("max_tokens")) asked.shared.max_new_tokens = found->single<int32_t>();
  if (const auto found = request.input("stop_words")) asked.shared.stop = found->texts();
  asked.shared.chat = flag(request, "chat", false);
  asked.shared.logprobs = flag(request, "logprobs", false);
  asked.shared.autoregressive = flag(request, "autoregressive", false);
  asked.stream = flag(request, "stream", false);
  for (const spc::SamplingOption& option : spc::kSamplingOptions) read_sampling(asked, option);
}

speccompile::Request generation(const std::vector<Asked*>& group) {
  speccompile::Request made;
  for (const Asked* asked : group) std::visit([&](const auto& prompt) { made.prompt(prompt); }, asked->prompt);
  const Shared& shared = group.front()->shared;
  made.set("max_new_tokens", shared.max_new_tokens).set("chat", shared.chat).set("logprobs", shared.logprobs);
  made.set("autoregressive", shared.autoregressive);
  for (const std::string& text : shared.stop) made.stop(text);
  for (size_t prompt = 0; prompt < group.size(); ++prompt)
    for (const Option& each : group[prompt]->sampling)  // errors number the prompts of several
      std::visit([&](auto value) { made.set(each.name, value, group.size() == 1 ? SPC_ALL : prompt); }, each.value);
  return made;
}

}  // namespace triton
