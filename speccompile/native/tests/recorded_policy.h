// A policy that chooses widths in turn, and records its calls without their seconds: RecordedPolicy of
// tests/native/slot_operations.py.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "../runtime/adaptive_length.h"

namespace spc {

inline Json list(std::initializer_list<Json> values) { return Json::List(values); }

class RecordedPolicy : public DraftLengthPolicy {
 public:
  explicit RecordedPolicy(const Json& widths) {
    for (const Json& width : widths.list()) widths_.push_back(static_cast<int>(width.integer()));
  }

  void expect(const MeasuredAcceptance&) override {}
  void expect_times(const Json&) override {}
  std::optional<Json> measured_times() const override { return std::nullopt; }
  std::optional<double> estimated_speedup(const std::vector<int64_t>&, int64_t) const override { return std::nullopt; }
  int begin(int64_t prompt, int64_t room) override {
    calls.push_back(list({"begin", prompt, room}));
    return next();
  }
  void join(int64_t prompt, int64_t room) override { calls.push_back(list({"join", prompt, room})); }
  void record_batch_size(int rows) override { calls.push_back(list({"record_batch_size", rows})); }
  int next_width(int64_t lag) override {
    calls.push_back(list({"next_width", lag}));
    return next();
  }
  void record_autoregressive(std::optional<double> seconds) override {
    calls.push_back(list({"record_autoregressive", seconds.has_value()}));
  }
  void record_verify(int width, std::optional<double> seconds, const std::vector<int>& accepted, int without) override {
    calls.push_back(list({"record_verify", width, seconds.has_value(), list_of(accepted), without}));
  }
  void record_draft(std::optional<double> seconds) override { calls.push_back(list({"record_draft", seconds.has_value()})); }
  void record_catch_up(int64_t tokens, double, double lost) override { calls.push_back(list({"record_catch_up", tokens, lost > 0})); }

  Json::List calls;

 private:
  int next() { return widths_[asked_++ % widths_.size()]; }

  std::vector<int> widths_;
  size_t asked_ = 0;
};

}  // namespace spc
