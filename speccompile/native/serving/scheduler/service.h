// Thread that decodes for a bundle, and the interface to it for other threads (serving/scheduler/service.py).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "scheduler.h"

namespace spc {

// Takes requests from any thread until it is closed, over buffers of its own. At its end it cancels what is left.
class Service {
 public:
  // observer: null for none; else it outlives the service. adapters: folders of adapters of the target, by name. Throws Error.
  explicit Service(std::shared_ptr<const Bundle> bundle, const Limits& limits = {}, Observer* observer = nullptr,
                   const std::map<std::string, std::string>& adapters = {});
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // See `Scheduler::submit`.
  std::shared_ptr<ServedRequest> submit(const Request& asked, const Terms& terms) { return scheduler_.submit(asked, terms); }
  // Take no more requests from now on; the present ones go on, or end after the round in progress.
  void drain(bool cancels = false) { scheduler_.drain(cancels); }
  // Take no more requests. With `drains`, finish the present ones first, for at most `seconds`. The rest end after the round in
  // progress, with the finish reason `cancelled`. Safe to call twice, from one thread at a time.
  void close(bool drains, std::optional<double> seconds = std::nullopt);

  // Return whether this is the thread that decodes, which cannot wait for its own end.
  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

  int64_t waiting() const { return scheduler_.waiting(); }
  int64_t running() const { return scheduler_.running(); }
  // Return the error of the engine that ended the service, null without one.
  std::shared_ptr<const Error> failure() const { return scheduler_.failure(); }
  const Limits& limits() const { return scheduler_.limits(); }

 private:
  void run();

  Observer nobody_;
  Scheduler scheduler_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace spc
