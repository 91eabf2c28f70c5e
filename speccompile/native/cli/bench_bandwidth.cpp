#include "bench_bandwidth.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "../contract.h"
#include "../files.h"
#include "../progress.h"
#include "../system.h"

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

}  // namespace

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

}  // namespace spc::cli
