#include "service.h"

#include <chrono>
#include <exception>

#include "../../operators/float_mode.h"
#include "../../system.h"

namespace spc {

Service::Service(std::shared_ptr<const Bundle> bundle, const Limits& limits, Observer* observer, const std::map<std::string, std::string>& adapters)
    : scheduler_(std::move(bundle), limits, observer ? *observer : nobody_, adapters, wall_seconds), thread_([this] { run(); }) {}

Service::~Service() { close(false); }

void Service::close(bool drains, std::optional<double> seconds) {
  scheduler_.drain(!drains);
  if (drains && seconds) {
    std::unique_lock<std::mutex> held(mutex_);
    if (!ended_.wait_for(held, std::chrono::duration<double>(*seconds), [this] { return has_ended_; })) scheduler_.drain(true);
  }
  if (thread_.joinable()) thread_.join();
}

void Service::run() {
  const speccompile::FloatMode mode;
  try {
    while (scheduler_.wait_for_work()) scheduler_.step();
    scheduler_.decoder().times.update(scheduler_.decoder().loop.drafting().policy->measured_times());
    scheduler_.close();
  } catch (const Error& error) {
    scheduler_.fail(error);
  } catch (const std::exception& error) {
    scheduler_.fail(Error(Kind::kDefect, std::string("this is a defect of speccompile: ") + error.what(), "please report it"));
  }
  {
    const std::lock_guard<std::mutex> held(mutex_);
    has_ended_ = true;
  }
  ended_.notify_all();
}

}  // namespace spc
