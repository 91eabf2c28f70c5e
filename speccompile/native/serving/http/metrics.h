// Metrics under vLLM's names, so that monitoring and routing for vLLM's servers can read them (serving/http/metrics.py).
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "../../images/reader.h"
#include "../scheduler/events.h"

namespace spc::http {

struct HistogramText;

// Observer that counts the events of a service. Any thread may call `text`.
class Metrics : public Observer {
 public:
  // model, engine: labels of all metrics. positions: maximum number of drafts in a round. pictures: their reader, whose encoder counts
  // them itself, or null.
  Metrics(const std::string& model, const std::string& engine, int64_t positions, const images::ImageReader* pictures);
  // Return all metrics in Prometheus' text format.
  std::string text() const;

  void refused(const char* reason) override;
  void queued(int64_t waiting, int64_t running) override;
  void admitted(int64_t prompt_tokens, int64_t cached_tokens, double queue_seconds) override;
  void preempted() override;
  void first_token(double seconds) override;
  void inter_token_latency(double seconds, int64_t tokens) override;
  void round(int64_t tokens, const std::vector<int64_t>& drafts, const std::vector<int64_t>& accepted) override;
  void stepped(int64_t tokens, double used) override;
  void ended(const FinishedSequence& sequence) override;
  void failed() override;

 private:
  // Counts of values by bucket, and of those beyond the last.
  struct Distribution {
    std::vector<double> counts;
    double sum = 0;
  };

  void observe(const char* name, double value, double times = 1);
  std::string labels(const char* name = "", const std::string& value = "") const;
  // Append a metric to a text. The lock is held.
  void add_histogram(std::string& to, const HistogramText& text) const;
  void add_by_label(std::string& to, const char* name, const char* help, const char* label, const std::map<std::string, double>& values) const;

  const std::map<std::string, std::string> labels_;
  const images::ImageReader* const pictures_;
  mutable std::mutex mutex_;
  std::map<std::string, double> numbers_;  // counters and gauges, by name
  std::map<std::string, Distribution> distributions_;
  std::map<std::string, double> ends_, refusals_;  // by reason
  std::vector<double> accepted_;                   // by place
  double failures_ = 0;
};

}  // namespace spc::http
