// Answers what the policy decides, for tests/native/test_native_adaptive_length.py to compare with Python's. Reads one JSON object a line:
// {"new": {width: drafts, ..}, "fused": bool, "tree_depth": n}, then calls of the policy by its methods' names, with their arguments:
// {"begin": [prompt, room]}, {"next_width": lag}, {"record_verify": [width, seconds, [accepted, ..], without]}, ..
#include "../runtime/adaptive_length.h"

#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "../json.h"

namespace {

using spc::Json;

std::unique_ptr<spc::AdaptiveDraftLength> make(const Json& event) {
  std::map<int, int> accepts;
  for (const auto& [width, drafts] : event["new"].object()) accepts[std::stoi(width)] = static_cast<int>(drafts.integer());
  return std::make_unique<spc::AdaptiveDraftLength>(std::move(accepts), event["fused"].boolean(), static_cast<int>(event["tree_depth"].integer()));
}

// Null: the first run of its sizes, which is not timed.
std::optional<double> seconds_of(const Json& value) { return value.is_null() ? std::nullopt : std::optional<double>(value.number()); }

void tell(spc::DraftLengthPolicy& policy, const std::string& name, const Json& value) {
  const Json::List& list = value.list();
  if (name == "begin") {
    std::printf("%d\n", policy.begin(list[0].integer(), list[1].integer()));
  } else if (name == "join") {
    policy.join(list[0].integer(), list[1].integer());
  } else if (name == "record_batch_size") {
    policy.record_batch_size(static_cast<int>(value.integer()));
  } else if (name == "expect") {
    policy.expect(spc::MeasuredAcceptance::from_json(value));
  } else if (name == "expect_times") {
    policy.expect_times(value);
  } else if (name == "measured_times") {
    std::printf("%s\n", policy.measured_times().value_or(Json()).dump().c_str());
  } else if (name == "estimated_speedup") {
    std::vector<int64_t> drafts;
    for (const Json& count : list[0].list()) drafts.push_back(count.integer());
    const std::optional<double> speedup = policy.estimated_speedup(drafts, list[1].integer());
    std::printf("%s\n", (speedup ? Json(*speedup) : Json()).dump().c_str());
  } else if (name == "next_width") {
    std::printf("%d\n", policy.next_width(value.integer()));
  } else if (name == "record_autoregressive") {
    policy.record_autoregressive(seconds_of(value));
  } else if (name == "record_verify") {
    std::vector<int> accepted;
    for (const Json& count : list[2].list()) accepted.push_back(static_cast<int>(count.integer()));
    policy.record_verify(static_cast<int>(list[0].integer()), seconds_of(list[1]), accepted, static_cast<int>(list[3].integer()));
  } else if (name == "record_draft") {
    policy.record_draft(seconds_of(value));
  } else if (name == "record_catch_up") {
    policy.record_catch_up(list[0].integer(), list[1].number(), list[2].number());
  }
}

}  // namespace

int main() {
  std::unique_ptr<spc::AdaptiveDraftLength> policy;
  for (std::string line; std::getline(std::cin, line);) {
    const Json event = Json::parse(line);
    const auto& [name, value] = event.object().front();
    if (name == "new") {
      policy = make(event);
    } else {
      tell(*policy, name, value);
    }
  }
}
