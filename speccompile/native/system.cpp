#include "system.h"

#include <sys/utsname.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <set>
#include <string_view>
#include <vector>

#include "errors.h"
#include "files.h"
#include "words.h"

namespace spc {
namespace {

// "" for a file that is not there.
std::string read_or_nothing(const std::string& path) {
  try {
    return read_file(path);
  } catch (const FileError&) {
    return "";
  }
}

std::vector<std::string> read_lines(const std::string& path) { return split_words(read_or_nothing(path), "\n"); }

// Numbers of the processors in the affinity mask; of all processors where a system has no masks.
std::vector<int> processors() {
  std::vector<int> found;
#if defined(__linux__)
  // A mask that is too small for the machine's processors is refused.
  for (int count = 1024; found.empty() && count <= 1 << 20; count *= 2) {
    cpu_set_t* mask = CPU_ALLOC(static_cast<size_t>(count));
    const size_t size = CPU_ALLOC_SIZE(static_cast<size_t>(count));
    if (mask && sched_getaffinity(0, size, mask) == 0)
      for (int number = 0; number < count; ++number)
        if (CPU_ISSET_S(static_cast<size_t>(number), size, mask)) found.push_back(number);
    CPU_FREE(mask);
  }
#endif
  if (!found.empty()) return found;
  found.resize(static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  std::iota(found.begin(), found.end(), 0);
  return found;
}

// Processors that a control group grants; infinity for a group that is not there or has no limit.
double quota(const std::string& group) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  // version 2: "200000 100000", or "max 100000"; version 1: two files, the first of which says -1 for no limit
  std::vector<std::string> words = split_words(read_or_nothing(join_path(group, "cpu.max")));
  if (words.empty())
    for (const char* file : {"cpu.cfs_quota_us", "cpu.cfs_period_us"})
      words.push_back(trimmed(read_or_nothing(join_path(group, file))));
  if (words.size() != 2) return kNone;
  for (const std::string& word : words)
    if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos) return kNone;
  const double period = std::strtod(words[1].c_str(), nullptr);
  return period > 0 ? std::strtod(words[0].c_str(), nullptr) / period : kNone;
}

// The least that a group and those around it grant.
double quota_above(const std::string& mount, std::string group) {
  double least = quota(join_path(mount, group));
  while (!group.empty()) {
    const size_t slash = group.rfind('/');
    group.resize(slash == std::string::npos ? 0 : slash);
    least = std::min(least, quota(join_path(mount, group)));
  }
  return least;
}

// The least that the control groups around this process grant, of both versions of control groups.
double quotas(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  for (const std::string& line : read_lines(join_path(root, "proc/self/cgroup"))) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::vector<std::string> each = split_words(controllers, ",");
    if (!each.empty() && std::find(each.begin(), each.end(), "cpu") == each.end()) continue;
    std::string group = plain_path("/" + line.substr(second + 1)).substr(1);
    group.erase(0, group.find_first_not_of('/'));
    const std::string mounts = join_path(root, "sys/fs/cgroup");
    for (const std::string& mount : {controllers, std::string(controllers.empty() ? "unified" : "cpu")})
      least = std::min(least, quota_above(join_path(mounts, mount), group));
  }
  return least;
}

// Return a number as Python's float() reads it; -1 for an invalid one.
double number_of(std::string_view given) {
  std::string text = trimmed(given);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.erase(0, 1);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool inside = text[i] == '_' && i && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
    if (!inside) plain += text[i];
  }
  double number = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), number);
  return error == std::errc() && end == plain.data() + plain.size() ? number : -1;
}

}  // namespace

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int available_cores(const std::string& root) {
  std::set<std::string> siblings;
  for (const int number : processors()) {
    const std::string name = "cpu" + std::to_string(number);
    const std::string folder = join_path(root, "sys/devices/system/cpu/" + name);
    const std::string found = read_or_nothing(join_path(folder, "topology/thread_siblings_list"));
    siblings.insert(found.empty() ? name : found);
  }
  const double cores = std::min(static_cast<double>(siblings.size()), std::floor(quotas(root)));
  return std::max(1, static_cast<int>(cores));
}

Json processor(const std::string& root) {
  std::map<std::string, std::string> found;
  for (const std::string& line : read_lines(join_path(root, "proc/cpuinfo"))) {
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string_view value = colon < line.size() ? std::string_view(line).substr(colon + 1) : "";
    found.emplace(trimmed(line.substr(0, colon)), trimmed(value));  // the first processor's stay
  }
  std::vector<std::string> sets = split_words(found.count("flags") ? found["flags"] : found["Features"]);
  std::sort(sets.begin(), sets.end());
  struct utsname system {};
  uname(&system);
  return Json::Object{{"architecture", system.machine}, {"name", found["model name"]}, {"instructions", joined(sets, " ")}};
}

std::map<std::string, int64_t> process_memory() {
  static constexpr struct {
    const char *name, *line;
  } kSizes[] = {{"resident", "VmRSS"}, {"anonymous", "RssAnon"}, {"mapped", "RssFile"}, {"peak", "VmHWM"}};
  std::map<std::string, int64_t> found;
  const auto take = [&found](const std::string& name, const std::string& line, std::string_view begin) {
    if (!starts_with(line, begin)) return;
    found[name] = std::strtoll(line.c_str() + begin.size(), nullptr, 10) * 1024;
  };
  for (const std::string& line : read_lines("/proc/self/status"))
    for (const auto& each : kSizes) take(each.name, line, std::string(each.line) + ":");
  for (const std::string& line : read_lines("/proc/self/smaps_rollup")) take("proportional", line, "Pss:");
  return found;
}

void trim_heap() {
#if defined(__GLIBC__)
  malloc_trim(0);  // it keeps much of what large buffers leave
#endif
}

std::string environment(const char* variable) {
  const char* found = std::getenv(variable);
  return found ? found : "";
}

double read_number(const char* variable, double otherwise, bool zero) {
  const std::string text = environment(variable);
  if (text.empty()) return otherwise;
  const double number = number_of(text);
  if (std::isfinite(number) && (number > 0 || (zero && number == 0))) return number;
  const std::string name = variable, least = zero ? "of at least" : "above";
  throw Error(Kind::kUsage, "$" + name + ": received " + python_repr(text) + ", expected a number " + least + " 0",
              "set " + name + " to a number, or unset it");
}

}  // namespace spc
