#include "model.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "../../words.h"
#include "errors.h"

namespace spc::http {
namespace {

RequestError not_ready(const std::string& why, const char* status) {
  return RequestError(503, "the model is not ready: " + why, "", status).of_kind(kUnavailable).with("Retry-After", "1");
}

}  // namespace

ServedModel::ServedModel(std::string name, const Limits& limits) : name(std::move(name)), created(static_cast<int64_t>(std::time(nullptr))), limits_(limits) {}

void ServedModel::serve(std::shared_ptr<const Bundle> bundle, const std::map<std::string, std::string>& adapters) {
  auto made = std::make_shared<OpenedModel>(std::move(bundle), name, limits_, adapters);
  const std::lock_guard<std::mutex> held(mutex_);
  if (draining_) made->service.drain();
  opened_ = std::move(made);
}

void ServedModel::fail(const std::string& message) {
  const std::lock_guard<std::mutex> held(mutex_);
  failure_ = message;
}

void ServedModel::drain(bool cancels) {
  const std::lock_guard<std::mutex> held(mutex_);
  draining_ = true;
  if (opened_) opened_->service.drain(cancels);
}

void ServedModel::close(double seconds) {
  std::shared_ptr<OpenedModel> open;
  {
    const std::lock_guard<std::mutex> held(mutex_);
    open = opened_;
  }
  if (open) open->service.close(true, seconds);
}

std::shared_ptr<OpenedModel> ServedModel::opened() const {
  const std::lock_guard<std::mutex> held(mutex_);
  if (!opened_) throw not_ready(failure_.empty() ? "it is being opened" : "it could not be opened: " + failure_, failure_.empty() ? "loading" : "failed");
  return opened_;
}

std::shared_ptr<OpenedModel> ServedModel::serving() const {
  std::shared_ptr<OpenedModel> found = opened();
  if (const auto failure = found->service.failure()) throw not_ready("its engine has failed: " + failure->message, "failed");
  return found;
}

const char* ServedModel::status() const {
  const std::lock_guard<std::mutex> held(mutex_);
  if (!failure_.empty() || (opened_ && opened_->service.failure())) return "failed";
  return !opened_ ? "loading" : draining_ ? "draining" : "ready";
}

std::vector<std::string> ServedModel::names() const {
  std::vector<std::string> found = {name};
  for (const std::string& adapter : opened()->adapter_names) found.push_back(name + ":" + adapter);
  return found;
}

void ServedModel::check_name(const std::string& asked) const {
  constexpr size_t kShown = 80;
  const std::vector<std::string> served = names();
  if (std::find(served.begin(), served.end(), asked) != served.end()) return;
  std::vector<std::string> expected;
  for (const std::string& each : served) expected.push_back(python_repr(each));
  throw RequestError(404, "the model " + python_repr(first_characters(asked, kShown)) + " does not exist: expected " + joined(expected, " or "), "model", "model_not_found").of_kind(kNotFound);
}

std::string ServedModel::adapter_of(const std::string& asked) const {
  return starts_with(asked, name + ":") ? asked.substr(name.size() + 1) : "";
}

}  // namespace spc::http
