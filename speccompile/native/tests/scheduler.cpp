// Runs a schedule of requests, for tests/native/scheduler_operations.py to compare with Python's. Reads one JSON object a line:
//
//   {"open": folder, "onnxruntime": library, "widths": [5, 1, ..], "limits": {"client_rows": 1, ..}}   widths: as in slots.cpp
//   {"submit": {option: value, ..}, "prompt": [token, ..], "terms": {"client": "a", "salt": "", "reuse": true}}
//   {"cancel": number of a request}    {"step": null}    {"drain": whether it cancels}    {"fail": message}
//
// and answers each with the events, the deltas that came since, and what waits and runs; or with {"refused": message}. The clock
// goes on by 1/1024 of a second whenever it is asked.
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../operators/float_mode.h"
#include "../serving/scheduler/scheduler.h"
#include "recorded_policy.h"

namespace spc {
namespace {

Json optional(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

// Records its calls.
class Recorder : public Observer {
 public:
  void refused(const char* reason) override { events.push_back(list({"refused", reason})); }
  void queued(int64_t waiting, int64_t running) override { events.push_back(list({"queued", waiting, running})); }
  void admitted(int64_t prompt, int64_t cached, double seconds) override { events.push_back(list({"admitted", prompt, cached, seconds})); }
  void preempted() override { events.push_back(list({"preempted"})); }
  void first_token(double seconds) override { events.push_back(list({"first_token", seconds})); }
  void inter_token_latency(double seconds, int64_t tokens) override { events.push_back(list({"inter_token_latency", seconds, tokens})); }
  void round(int64_t tokens, const std::vector<int64_t>& drafts, const std::vector<int64_t>& accepted) override {
    events.push_back(list({"round", tokens, list_of(drafts), list_of(accepted)}));
  }
  void stepped(int64_t tokens, double used) override { events.push_back(list({"stepped", tokens, used})); }
  void ended(const FinishedSequence& found) override {
    events.push_back(list({"ended", found.finish_reason, static_cast<int64_t>(found.token_ids.size()), found.cached_tokens, found.seconds,
                           found.prefill_seconds, found.queue_seconds, optional(found.first_token_seconds)}));
  }
  void failed() override { events.push_back(list({"failed"})); }

  Json::List events;
};

class Schedule {
 public:
  explicit Schedule(const Json& asked) : scheduler_(opened(asked), limits(asked["limits"]), recorder_, {}, [this] { return ++ticks_ / 1024.0; }) {
    scheduler_.decoder().loop.drafting().policy = std::make_unique<RecordedPolicy>(asked["widths"]);
  }

  Json run(const Json& asked) {
    Json refused;
    try {
      operate(asked);
    } catch (const Error& error) {
      refused = error.message;
    }
    Json::List deltas;
    for (size_t number = 0; number < requests_.size(); ++number) take(number, deltas);
    return Json::Object{{"refused", refused},
                        {"events", std::exchange(recorder_.events, {})},
                        {"deltas", deltas},
                        {"waiting", scheduler_.waiting()},
                        {"running", scheduler_.running()},
                        {"idle", scheduler_.is_idle()}};
  }

 private:
  static std::shared_ptr<const Bundle> opened(const Json& asked) {
    OpenOptions options;
    options.onnxruntime = asked["onnxruntime"].text();
    options.threads = 1;
    return std::make_shared<const Bundle>(asked["open"].text(), options);
  }

  static Limits limits(const Json& asked) {
    Limits found;
    for (const auto& [name, value] : asked.object()) {
      if (name == "requests") found.requests = value.integer();
      if (name == "tokens") found.tokens = value.integer();
      if (name == "sequences") found.sequences = value.integer();
      if (name == "queue_seconds" && !value.is_null()) found.queue_seconds = value.number();
      if (name == "seconds" && !value.is_null()) found.seconds = value.number();
      if (name == "client_rows" && !value.is_null()) found.client_rows = value.integer();
      if (name == "scheduling_policy") found.by_priority = value.text() == "priority";
      if (name == "reuse") found.reuse = value.boolean();
    }
    return found;
  }

  void operate(const Json& asked) {
    const auto& [name, value] = asked.object().front();
    if (name == "submit") return submit(value, asked);
    if (name == "cancel") return requests_.at(static_cast<size_t>(value.integer()))->cancel();
    if (name == "drain") return scheduler_.drain(value.boolean());
    if (name == "fail") return scheduler_.fail(Error(Kind::kEngine, value.text()));
    scheduler_.step();
  }

  void submit(const Json& options, const Json& asked) {
    Request request;
    request.prompts.emplace_back(ids(asked["prompt"]));
    for (const auto& [name, value] : options.object()) {
      if (name == "stop") {
        for (const Json& each : value.list()) request.stop.push_back(each.text());
      } else if (name == kLogitBias) {
        for (const auto& [token, bias] : value.object()) request.set_logit_bias(Request::kAll, std::stoll(token), bias.number());
      } else if (name == "stop_token_ids") {
        request.stop_token_ids = ids(value);
      } else if (value.type() == Json::Type::kNumber) {
        request.set(Request::kAll, name, Value::of(value.number()));
      } else {
        request.set(Request::kAll, name, Value::of(static_cast<uint64_t>(value.integer())));  // a flag is 0 or 1
      }
    }
    const Json& terms = asked["terms"];
    requests_.push_back(scheduler_.submit(request, {terms["client"].text(), terms["salt"].text(), terms["reuse"].boolean(), terms["priority"].integer()}));
  }

  static TokenIds ids(const Json& asked) {
    TokenIds found;
    for (const Json& each : asked.list()) found.push_back(each.integer());
    return found;
  }

  void take(size_t number, Json::List& deltas) {
    const auto request = static_cast<int64_t>(number);
    try {
      while (const std::optional<OutputDelta> found = requests_[number]->poll()) {
        const FinishedSequence* const end = found->finished.get();
        deltas.push_back(list({request, found->index, found->text, list_of(found->token_ids), list_of(found->logprobs), to_json(found->top_logprobs),
                               found->draft_tokens, found->accepted, end ? Json(end->finish_reason) : Json(), end ? end->json["mode"] : Json()}));
      }
    } catch (const Error& error) {
      deltas.push_back(list({request, error.message}));
    }
  }

  double ticks_ = 0;
  Recorder recorder_;
  Scheduler scheduler_;
  std::vector<std::shared_ptr<ServedRequest>> requests_;
};

}  // namespace
}  // namespace spc

int main() {
  const speccompile::FloatMode mode;
  std::string line;
  std::getline(std::cin, line);
  spc::Schedule schedule(spc::Json::parse(line));
  while (std::getline(std::cin, line)) std::cout << schedule.run(spc::Json::parse(line)).dump() << std::endl;
  return 0;
}
