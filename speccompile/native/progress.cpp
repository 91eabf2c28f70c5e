#include "progress.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "system.h"

namespace spc {
namespace {

// Never destroyed: threads may still report while the process ends.
std::mutex& guard() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
}

std::shared_ptr<const Sink>& current() {
  static auto* sink = new std::shared_ptr<const Sink>;
  return *sink;
}

}  // namespace

void log_to(Sink sink) {
  const std::lock_guard<std::mutex> lock(guard());
  current() = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
}

void log(Level level, const std::string& line) {
  std::shared_ptr<const Sink> sink;
  {
    const std::lock_guard<std::mutex> lock(guard());
    sink = current();
  }
  if (sink) (*sink)(level, line);
}

Step::Step(std::string title) : title_(std::move(title)), start_(wall_seconds()), failing_(std::uncaught_exceptions()) {
  log(Level::kInfo, title_ + " ...");
}

Step::~Step() {
  const double seconds = wall_seconds() - start_;
  if (std::uncaught_exceptions() > failing_) return;
  char text[32];
  std::snprintf(text, sizeof text, ": %.1f s", seconds);
  try {
    log(seconds > 1 ? Level::kInfo : Level::kDebug, title_ + text);
  } catch (...) {  // an error of the listener: the step has ended anyway
  }
}

}  // namespace spc
