#include "request.h"

#include <chrono>
#include <utility>

namespace spc {

bool ServedRequest::has_ended() const {
  const std::lock_guard<std::mutex> held(mutex_);
  return open_ == 0;
}

std::optional<OutputDelta> ServedRequest::poll() {
  const std::lock_guard<std::mutex> held(mutex_);
  return take();
}

std::optional<OutputDelta> ServedRequest::wait(double seconds) {
  std::unique_lock<std::mutex> held(mutex_);
  came_.wait_for(held, std::chrono::duration<double>(seconds), [this] { return open_ == 0 || !deltas_.empty() || throw_; });
  return take();
}

void ServedRequest::on_ready(std::function<void()> wake) {
  const std::lock_guard<std::recursive_mutex> held(waking_);
  wake_ = std::move(wake);
  if (const std::function<void()> now = wake_) now();
}

void ServedRequest::deliver(OutputDelta delta) {
  {
    const std::lock_guard<std::mutex> held(mutex_);
    deltas_.push_back(std::move(delta));
  }
  tell();
}

void ServedRequest::deliver(std::shared_ptr<const OverloadedError> error) {
  {
    const std::lock_guard<std::mutex> held(mutex_);
    throw_ = [error] { throw *error; };
  }
  tell();
}

void ServedRequest::deliver(std::shared_ptr<const Error> error) {
  {
    const std::lock_guard<std::mutex> held(mutex_);
    throw_ = [error] { throw *error; };
  }
  tell();
}

std::optional<OutputDelta> ServedRequest::take() {
  if (open_ == 0) return std::nullopt;
  if (!deltas_.empty()) {
    OutputDelta found = std::move(deltas_.front());
    deltas_.pop_front();
    if (found.finished) --open_;
    return found;
  }
  if (throw_) {
    open_ = 0;
    throw_();
  }
  return std::nullopt;
}

// The listener is called without the lock of the deltas, so that it may poll; a copy of it, because it may be replaced meanwhile.
void ServedRequest::tell() {
  came_.notify_all();
  const std::lock_guard<std::recursive_mutex> held(waking_);
  if (const std::function<void()> wake = wake_) wake();
}

}  // namespace spc
