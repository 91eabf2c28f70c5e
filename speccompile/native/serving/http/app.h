// OpenAI's endpoints, and endpoints for monitoring (serving/http/app.py).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "channel.h"
#include "keys.h"
#include "model.h"
#include "requests.h"

namespace spc::http {

// keys: accepted API keys. max_body_bytes: of one request. access_log: write a line for every request. origins: of pages that
// browsers allow to send requests. page: whether / is a page to talk to the model.
struct Settings : ReadSettings {
  Keys keys;
  int64_t max_body_bytes = kMaxBodyBytes;
  bool access_log = false, page = true;
  std::vector<std::string> origins;
};

// One request, and the answer to it.
class Exchange {
 public:
  // is_last: whether the connection ends with this answer. on_whole: called when the body has come.
  Exchange(Channel& channel, const RequestHead& head, bool is_last, std::function<void()> on_whole)
      : head(head), is_last_(is_last), channel_(channel), on_whole_(std::move(on_whole)) {}

  // Read the body, of at most `most` bytes. Throws RequestError.
  std::string read_body(int64_t most);
  void answer(int status, const std::string& type, const std::string& body, const Headers& more = {});
  void answer(int status, const Json& body, const Headers& more = {});
  // An answer in parts, as they come.
  void begin_events();
  void send_event(const Json& data);
  void end_events();
  // See `Channel::wait_for`.
  void wait_for(int descriptor) { channel_.wait_for(descriptor); }
  // Return whether another request may follow: not behind a large body that was not read, or a part of one, or one that the client
  // holds back.
  bool is_kept() const { return !is_last_ && (has_read_ || (!has_begun_ && !head.expects_continue && (!head.length || *head.length <= kMostSkipped))); }
  // Skip a body that was not read. Return whether another request may follow.
  bool finish();
  // The status of the answer, 0 as long as none has begun.
  int status() const { return status_; }

  const RequestHead& head;
  Headers headers;  // of the answer, beside those that it is given

 private:
  std::string top(int status, const std::string& type, const Headers& more);
  void send_part(const std::string& part);

  static constexpr int64_t kMostSkipped = 1 << 16;
  const bool is_last_;
  Channel& channel_;
  const std::function<void()> on_whole_;
  bool has_begun_ = false, has_read_ = false;  // reading of the body, and its end
  int status_ = 0;
};

// Throws RequestError for another method; HEAD is as good as GET.
void check_method(const RequestHead& head, const std::string& allowed);

class App {
 public:
  App(std::shared_ptr<ServedModel> model, Settings settings) : model_(std::move(model)), settings_(std::move(settings)) {}
  // Answer a request; whatever goes wrong is an answer as well, but for Gone.
  void handle(Exchange& exchange);

 private:
  bool answer_origin(Exchange& exchange) const;
  void route(Exchange& exchange);
  // Return false for a route that is none of those that only read.
  bool read_route(Exchange& exchange);
  bool page_route(Exchange& exchange);
  void models(Exchange& exchange, const std::string& name);
  void tokenize(Exchange& exchange);
  int64_t most_bytes(const OpenedModel& open, bool shows) const;
  void generate(Exchange& exchange, bool is_chat);
  void hear(Exchange& exchange, const std::string& task);
  void answer_whole(Exchange& exchange, const ParsedRequest& asked, const std::vector<std::shared_ptr<ServedRequest>>& requests, int ready);
  void answer_events(Exchange& exchange, const ParsedRequest& asked, const std::vector<std::shared_ptr<ServedRequest>>& requests, int ready);
  std::string authenticate(const Exchange& exchange) const { return settings_.keys.authenticate(exchange.head.find("authorization")); }

  const std::shared_ptr<ServedModel> model_;
  const Settings settings_;
};

}  // namespace spc::http
