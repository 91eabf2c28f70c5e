// Limits of a service's queue and times (serving/scheduler/limits.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace spc {

constexpr double kSessionsGb = 10;  // default limit of a folder of sessions, in GB (1e9 bytes)

// requests, tokens: that may wait for a batch slot, beyond the running ones; tokens are prompt tokens, and a single request may
// always wait. sequences: maximum of one request. queue_seconds: maximum wait of a request for its first slot; seconds: maximum
// in all, from the submission. client_rows: slots that requests of one client may have at once. reuse: whether cached tokens of
// earlier texts serve prompts with the same prefix. by_priority: whether requests with a lower priority number get a slot earlier,
// if need be that of a running one with a higher number, and not who came first. sessions: folder of texts for later services, "" for none.
struct Limits {
  int64_t requests = 64, tokens = 65536, sequences = 16;
  std::optional<double> queue_seconds, seconds;
  std::optional<int64_t> client_rows;
  bool reuse = true, by_priority = false;
  std::string sessions;
  double sessions_gb = kSessionsGb;

  // Throw Error(kUsage) for a limit that would let nothing pass.
  void check() const;
};

}  // namespace spc
