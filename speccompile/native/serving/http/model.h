// The served model: a bundle that is being opened, is open, or is closing (serving/http/model.py).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../scheduler/service.h"
#include "metrics.h"
#include "token_texts.h"

namespace spc::http {

// An open bundle with what serves it.
struct OpenedModel {
  OpenedModel(std::shared_ptr<const Bundle> opened, const std::string& name, const Limits& limits, const std::map<std::string, std::string>& adapters)
      : bundle(std::move(opened)), metrics(name, bundle->entry().name, bundle->manifest().tokens, bundle->vision()), texts(bundle->text()), service(bundle, limits, &metrics, adapters) {
    for (const auto& each : adapters) adapter_names.push_back(each.first);
  }

  const std::shared_ptr<const Bundle> bundle;
  Metrics metrics;
  const TokenTexts texts;
  std::vector<std::string> adapter_names;
  Service service;
};

// A bundle under the name that clients use. Until `serve` has returned, every request is refused with 503. Any thread may use it.
class ServedModel {
 public:
  ServedModel(std::string name, const Limits& limits);

  // Serve an open bundle, with adapters in folders by their names. Throws Error.
  void serve(std::shared_ptr<const Bundle> bundle, const std::map<std::string, std::string>& adapters);
  // Say that it could not be opened.
  void fail(const std::string& message);
  // Take no more requests; the present ones go on, or are told that they are not finished.
  void drain(bool cancels = false);
  // Finish the present requests for at most `seconds`, and end the rest.
  void close(double seconds);

  // Return the open model. Throws RequestError with 503 unless it is open; `serving` also if its engine has failed.
  std::shared_ptr<OpenedModel> opened() const;
  std::shared_ptr<OpenedModel> serving() const;
  // loading | ready | draining | failed
  const char* status() const;
  // Return the names that requests may give: of the model, and of the model with each of its adapters.
  std::vector<std::string> names() const;
  // Throw RequestError for a name that is not served.
  void check_name(const std::string& asked) const;
  // Return the adapter that the name of a model says, served:adapter; "" for the model itself.
  std::string adapter_of(const std::string& asked) const;

  const std::string name;
  const int64_t created;

 private:
  const Limits limits_;
  mutable std::mutex mutex_;
  std::shared_ptr<OpenedModel> opened_;
  std::string failure_;
  bool draining_ = false;
};

}  // namespace spc::http
