// Cache of round times on this machine, by bundle, engine and processor (runtime/round_times.py).
#pragma once

#include <optional>
#include <string>

#include "../json.h"

namespace spc {

// Record of one engine of a bundle, a result of `SpeedupModel::measured_times`. Not thread-safe.
class RecordedTimes {
 public:
  // key: result of `times_key`; null for engines without a record.
  explicit RecordedTimes(Json key);

  // Return the recorded times; nullopt without a record, or if it is damaged.
  const std::optional<Json>& known() const { return known_; }
  // Record what was measured when a session began, and take the mean with what was known; nullopt changes nothing.
  // Unlike `update`, write it however little it changes: or a record that a busy machine made would hardly move.
  void begin(const std::optional<Json>& measured);
  // Write measured times if they are new or clearly different.
  void update(const std::optional<Json>& measured);

 private:
  // Return the record with this process.
  Json with(const Json& measured) const;

  const Json key_;
  std::optional<Json> known_, written_;
};

// Return the key of an engine's record. engine: its `engine_key`.
Json times_key(Json engine, std::optional<int> threads);

}  // namespace spc
