#include "bench_roofline.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "../files.h"
#include "../progress.h"
#include "../system.h"
#include "exit_codes.h"

namespace fs = std::filesystem;

namespace spc::cli {
namespace {

// Bytes; 0 where the system does not say.
int64_t last_level_cache() {
  int64_t most = 0;
  std::error_code error;
  for (const fs::directory_entry& each : fs::directory_iterator("/sys/devices/system/cpu/cpu0/cache", error)) {
    try {
      const std::string text = read_file(each.path().string() + "/size");  // "2048K"
      const size_t unit = text.find_first_not_of("0123456789");
      const int shift = unit == 0 || unit == std::string::npos ? -1 : text[unit] == 'K' ? 10 : text[unit] == 'M' ? 20 : -1;
      if (shift > 0) most = std::max(most, static_cast<int64_t>(std::strtoll(text.c_str(), nullptr, 10)) << shift);
    } catch (const FileError&) {  // a folder without a size
    }
  }
  return most;
}

int64_t buffer_bytes() {
  const int64_t memory = sysconf(_SC_PAGE_SIZE) * sysconf(_SC_PHYS_PAGES);
  return std::max(kSmallestBuffer, std::min({kLargestBuffer, kBufferCaches * last_level_cache(), memory / 8}));
}

// Memory of the process, in large pages where there are some: small ones would be measured with their table.
std::unique_ptr<uint64_t[], decltype(&std::free)> make_buffer(int64_t bytes) {
  constexpr size_t kPage = size_t{2} << 20;
  const size_t rounded = (static_cast<size_t>(bytes) / kPage + 1) * kPage;
  void* const made = std::aligned_alloc(kPage, rounded);
  if (!made) throw std::bad_alloc();
#if defined(__linux__)
  madvise(made, rounded, MADV_HUGEPAGE);  // where that is refused, small ones do
#endif
  return {static_cast<uint64_t*>(made), &std::free};
}

// Measure the bandwidth at which threads read a buffer beyond the processor's caches, each its own part: the best of several
// passes.
Json measure_bandwidth(int threads) {
  const Step step("bandwidth of the memory");
  const int64_t bytes = buffer_bytes();
  const size_t count = static_cast<size_t>(bytes) / sizeof(uint64_t), parts = static_cast<size_t>(threads);
  const auto buffer = make_buffer(bytes);
  std::atomic<uint64_t> total{0};  // unused: without it the compiler would leave the reads out
  const auto read = [&](size_t first, size_t last) {
    uint64_t sum = 0;
    for (size_t at = first; at < last; ++at) sum += buffer[at];
    total += sum;
  };
  // The thread that reads a part writes it first, so that it lies in the memory nearest to its core.
  const auto write = [&](size_t first, size_t last) { std::fill(buffer.get() + first, buffer.get() + last, 1); };
  const auto seconds = [&](const auto& work) {
    const double start = wall_seconds();
    std::vector<std::thread> workers;
    for (size_t i = 0; i < parts; ++i) workers.emplace_back(work, i * count / parts, (i + 1) * count / parts);
    for (std::thread& each : workers) each.join();
    return wall_seconds() - start;
  };
  seconds(write);
  double best = seconds(read);
  for (int pass = 1; pass < kBandwidthPasses; ++pass) best = std::min(best, seconds(read));
  return Json(
      Json::Object{{"bytes_per_second", static_cast<double>(bytes) / best}, {"threads", threads}, {"buffer_bytes", bytes}});
}

// Graph -> how often it runs in a round, on average. Where the host drafts there is no graph of it.
std::map<std::string, double> runs_of(const EngineEntry& entry, const Json& way) {
  const double rounds = way["rounds"].number(), drafting = rounds > 0 ? way["drafting_rounds"].number() / rounds : 0;
  if (drafting > 0 && entry.has(graph::kStep)) return {{graph::kStep, drafting}, {graph::kVerify, 1 - drafting}};
  if (drafting > 0 && entry.has(graph::kDraft)) return {{graph::kVerify, 1}, {graph::kDraft, drafting}};
  return {{graph::kVerify, 1}};
}

// Return the bytes of committed rows that a run reads, of a ring those of its window, in every cache of the graph; of a drafter once for
// every depth.
int64_t cache_bytes(const Manifest& manifest, const Graph& graph, int64_t context) {
  int64_t found = 0;
  for (const Tensor& tensor : graph.inputs) {
    const bool is_stored = tensor.dtype.rfind("float", 0) == 0 || tensor.dtype.rfind("bfloat", 0) == 0 || tensor.dtype == dtype::kInt8;
    if (tensor.role != role::kState || tensor.shape.size() != 4 || !is_stored) continue;
    const int64_t passes = tensor.buffer.rfind(std::string(component::kDrafter) + ".", 0) == 0 ? manifest.depth : 1;
    const int64_t row = tensor.shape[0].size * tensor.shape[1].size * tensor.shape[3].size;
    const int64_t window = manifest.ring_window(tensor.buffer), tokens = window ? std::min(context, window) : context;
    found += tokens * passes * row * static_cast<int64_t>(item_size(tensor.dtype));
  }
  return found;
}

// Return the bytes that one mode of decoding reads, and its share of the bandwidth. window: its tokens in a round.
Json traffic(const Bundle& bundle, const std::map<std::string, WeightReads>& reads, int64_t context, const Json& way,
             int64_t window, double bandwidth) {
  const Manifest& manifest = bundle.manifest();
  double weights = 0, caches = 0;
  for (const auto& [name, times] : runs_of(bundle.entry(), way)) {
    const WeightReads& read = reads.at(name);
    const int64_t looked_up = name == graph::kDraft ? manifest.catch_up : window;  // of tables, a row for every token
    weights += times * static_cast<double>(read.whole + read.row * looked_up * manifest.batch_size);
    for (const Graph& graph : bundle.entry().graphs)
      if (graph.name == name) caches += times * static_cast<double>(cache_bytes(manifest, graph, context));
  }
  weights = std::nearbyint(weights);
  caches = std::nearbyint(caches);
  const double accepted = way["mean_accepted"].number(), rate = way["decode_tokens_per_second"].number();
  const double per_token = (weights + caches) / (accepted > 0 ? accepted : 1);
  return Json(Json::Object{{"weight_bytes", static_cast<int64_t>(weights)},
                           {"cache_bytes", static_cast<int64_t>(caches)},
                           {"bytes_per_token", per_token},
                           {"share", rate > 0 ? Json(per_token * rate / bandwidth) : Json()}});
}

}  // namespace

Json measure_roofline(const Bundle& bundle, int64_t context, const Json& speculative, const Json& alone) {
  if (bundle.entry().provider != provider::kCpu) return {};
  std::map<std::string, WeightReads> reads;
  for (const auto& [name, file] : bundle.entry().files) {
    const std::string path = join_path(bundle.opened().folder, file);
    try {
      reads[name] = weight_reads(path);
    } catch (const FileError& error) {
      refuse_file(path, error);
    }
  }
  const Json bandwidth = measure_bandwidth(bundle.program().threads().value_or(available_cores()));
  const double speed = bandwidth["bytes_per_second"].number();
  const auto traffic_of = [&](const Json& way, int64_t window) {
    return traffic(bundle, reads, context, way, window, speed);
  };
  return Json(
      Json::Object{{"bandwidth", bandwidth},
                   {"context", context},
                   {"speculative", speculative.is_null() ? Json() : traffic_of(speculative, bundle.manifest().tokens + 1)},
                   {"autoregressive", traffic_of(alone, 1)}});
}

}  // namespace spc::cli
