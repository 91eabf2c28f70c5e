#include "metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "../../system.h"
#include "tables.h"

namespace spc::http {
namespace {

constexpr const char* kPrefix = "vllm:";

// Return a number as Prometheus' client for Python writes it.
std::string number(double value) {
  if (std::isinf(value)) return value < 0 ? "-Inf" : "+Inf";
  return python_repr(value);
}

std::string escaped(const std::string& text) {
  std::string found;
  for (const char each : text) {
    if (each == '\\' || each == '"') found += '\\';
    found += each == '\n' ? std::string("\\n") : std::string(1, each);
  }
  return found;
}

// Append the two lines of comments before a metric.
void head(std::string& to, const std::string& name, const char* help, const char* type) {
  to += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

int64_t open_descriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  if (!folder) return 0;
  int64_t count = -3;  // without ".", "..", and the descriptor of this folder
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

void add_process(std::string& to) {
  const auto add = [&](const char* name, const char* help, const char* type, double value) {
    head(to, name, help, type);
    to += std::string(name) + " " + number(value) + "\n";
  };
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6; };
  const std::map<std::string, int64_t> memory = process_memory();
  if (const auto resident = memory.find("resident"); resident != memory.end())
    add("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge", static_cast<double>(resident->second));
  add("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", "counter", seconds(used.ru_utime) + seconds(used.ru_stime));
  add("process_open_fds", "Number of open file descriptors.", "gauge", static_cast<double>(open_descriptors()));
  add("process_max_fds", "Maximum number of open file descriptors.", "gauge", static_cast<double>(files.rlim_cur));
}

}  // namespace

Metrics::Metrics(const std::string& model, const std::string& engine, int64_t positions, const images::ImageReader* pictures)
    : labels_{{"engine", engine}, {"model_name", model}}, pictures_(pictures), accepted_(static_cast<size_t>(positions)) {
  for (const HistogramText& each : kHistograms) distributions_[each.name].counts.resize(each.count + 1);
}

void Metrics::refused(const char* reason) {
  const std::lock_guard<std::mutex> held(mutex_);
  ++refusals_[reason];
}

void Metrics::queued(int64_t waiting, int64_t running) {
  const std::lock_guard<std::mutex> held(mutex_);
  numbers_["num_requests_waiting"] = static_cast<double>(waiting);
  numbers_["num_requests_running"] = static_cast<double>(running);
}

void Metrics::admitted(int64_t prompt_tokens, int64_t cached_tokens, double queue_seconds) {
  const std::lock_guard<std::mutex> held(mutex_);
  for (const char* const name : {"prompt_tokens", "prefix_cache_queries"}) numbers_[name] += static_cast<double>(prompt_tokens);
  for (const char* const name : {"prompt_tokens_cached", "prefix_cache_hits"}) numbers_[name] += static_cast<double>(cached_tokens);
  observe("request_queue_time_seconds", queue_seconds);
}

void Metrics::preempted() {
  const std::lock_guard<std::mutex> held(mutex_);
  ++numbers_["num_preemptions"];
}

void Metrics::first_token(double seconds) {
  const std::lock_guard<std::mutex> held(mutex_);
  observe("time_to_first_token_seconds", seconds);
}

void Metrics::inter_token_latency(double seconds, int64_t tokens) {
  if (tokens <= 0) return;
  const std::lock_guard<std::mutex> held(mutex_);
  observe("inter_token_latency_seconds", seconds / static_cast<double>(tokens), static_cast<double>(tokens));
}

void Metrics::round(int64_t /*tokens*/, const std::vector<int64_t>& drafts, const std::vector<int64_t>& accepted) {
  const std::lock_guard<std::mutex> held(mutex_);
  for (const int64_t count : drafts) {
    numbers_["spec_decode_num_drafts"] += count ? 1 : 0;
    numbers_["spec_decode_num_draft_tokens"] += static_cast<double>(count);
  }
  for (const int64_t count : accepted) {
    numbers_["spec_decode_num_accepted_tokens"] += static_cast<double>(count);
    for (size_t position = 0; position < accepted_.size() && static_cast<int64_t>(position) < count; ++position) ++accepted_[position];
  }
}

void Metrics::stepped(int64_t tokens, double used) {
  const std::lock_guard<std::mutex> held(mutex_);
  if (tokens) observe("iteration_tokens_total", static_cast<double>(tokens));
  numbers_["kv_cache_usage_perc"] = used;
}

void Metrics::ended(const FinishedSequence& sequence) {
  const double count = static_cast<double>(sequence.token_ids.size()), latency = sequence.queue_seconds + sequence.seconds;
  const bool is_aborted = sequence.finish_reason == finish::kCancelled || sequence.finish_reason == finish::kTimeout;
  const std::lock_guard<std::mutex> held(mutex_);
  numbers_["generation_tokens"] += count;
  observe("e2e_request_latency_seconds", latency);
  observe("request_prefill_time_seconds", sequence.prefill_seconds);
  if (const Json& encoding = sequence.json["encode_seconds"]; !encoding.is_null()) observe("request_encode_time_seconds", encoding.number());
  observe("request_decode_time_seconds", std::max(0.0, sequence.seconds - sequence.prefill_seconds));
  observe("request_prompt_tokens", static_cast<double>(sequence.prompt_tokens));
  observe("request_generation_tokens", count);
  if (sequence.first_token_seconds && count > 1)
    observe("request_time_per_output_token_seconds", std::max(0.0, latency - *sequence.first_token_seconds) / (count - 1));
  ++ends_[is_aborted ? "abort" : sequence.finish_reason == finish::kCapacity ? finish::kLength : sequence.finish_reason];
}

void Metrics::failed() {
  const std::lock_guard<std::mutex> held(mutex_);
  ++failures_;
}

// The lock is held. times: how often the value is counted.
void Metrics::observe(const char* name, double value, double times) {
  const auto found = std::find_if(std::begin(kHistograms), std::end(kHistograms), [name](const HistogramText& each) { return std::string(each.name) == name; });
  Distribution& own = distributions_[name];
  const double* const end = found->buckets + found->count;
  own.counts[static_cast<size_t>(std::lower_bound(found->buckets, end, value) - found->buckets)] += times;
  own.sum += value * times;
}

// Labels in the order of their names, as Prometheus' own client for Python writes them. name: of one more, "" for none.
std::string Metrics::labels(const char* name, const std::string& value) const {
  std::map<std::string, std::string> all = labels_;
  if (*name) all[name] = value;
  std::string found;
  for (const auto& [key, each] : all) found += (found.empty() ? "{" : ",") + key + "=\"" + escaped(each) + "\"";
  return found + "} ";
}

std::string Metrics::text() const {
  std::string found;
  add_process(found);
  const std::lock_guard<std::mutex> held(mutex_);
  std::map<std::string, double> numbers = numbers_;
  if (pictures_) {
    const images::EncoderUse use = pictures_->encoder_use();
    for (const auto& [name, value] : {std::pair{"mm_cache_queries", use.queries}, {"mm_cache_hits", use.hits}, {"mm_cache_bytes", use.kept_bytes}})
      numbers[name] = static_cast<double>(value);
  }
  const auto add = [&](const std::string& name, const char* help, const char* type, double value) {
    head(found, name, help, type);
    found += name + labels() + number(value) + "\n";
  };
  for (const MetricText& each : kCounters) add(std::string(kPrefix) + each.name + "_total", each.help, "counter", numbers[each.name]);
  for (const MetricText& each : kGauges) add(std::string(kPrefix) + each.name, each.help, "gauge", numbers[each.name]);
  for (const HistogramText& each : kHistograms) add_histogram(found, each);
  std::map<std::string, double> positions;
  for (size_t position = 0; position < accepted_.size(); ++position) positions[std::to_string(position)] = accepted_[position];
  add_by_label(found, "request_success", "Finished sequences by reason.", "finished_reason", ends_);
  add_by_label(found, "admission_rejections", "Requests that were not taken, by reason.", "reason", refusals_);
  add_by_label(found, "spec_decode_num_accepted_tokens_per_pos", "Accepted draft tokens by position.", "position", positions);
  add(std::string(kPrefix) + "request_failures_total", "Requests that failed.", "counter", failures_);
  return found;
}

void Metrics::add_histogram(std::string& to, const HistogramText& text) const {
  const std::string name = std::string(kPrefix) + text.name;
  const Distribution& own = distributions_.at(text.name);
  head(to, name, text.help, "histogram");
  double count = 0;
  for (size_t bucket = 0; bucket <= text.count; ++bucket) {
    count += own.counts[bucket];
    const std::string end = bucket < text.count ? number(text.buckets[bucket]) : "+Inf";
    to += name + "_bucket" + labels("le", end) + number(count) + "\n";
  }
  to += name + "_count" + labels() + number(count) + "\n" + name + "_sum" + labels() + number(own.sum) + "\n";
}

void Metrics::add_by_label(std::string& to, const char* name, const char* help, const char* label,
                           const std::map<std::string, double>& values) const {
  const std::string full_name = std::string(kPrefix) + name + "_total";
  head(to, full_name, help, "counter");
  for (const auto& [value, count] : values) to += full_name + labels(label, value) + number(count) + "\n";
}

}  // namespace spc::http
