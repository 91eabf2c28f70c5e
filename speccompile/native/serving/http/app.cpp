#include "app.h"

#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "response.h"

namespace spc::http {
namespace {

constexpr const char* kModels = "/v1/models";
constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

using Requests = std::vector<std::shared_ptr<ServedRequest>>;

// A descriptor that can be read whenever a request has something new. It stays open while anything may write to it.
class Ready {
 public:
  Ready() : descriptor_(std::make_shared<Descriptor>()) {}
  int descriptor() const { return descriptor_->number; }
  void watch(ServedRequest& request) const {
    request.on_ready([held = descriptor_] { eventfd_write(held->number, 1); });
  }

 private:
  struct Descriptor {
    Descriptor() : number(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
      if (number < 0) throw RequestError(503, "the server has no more descriptors", "", "overloaded").of_kind(kUnavailable).with("Retry-After", "1");
    }
    ~Descriptor() { close(number); }
    const int number;
  };

  std::shared_ptr<Descriptor> descriptor_;
};

// Cancels requests whatever ends their answer: those that have ended do not mind.
struct Cancelling {
  const Requests& requests;
  ~Cancelling() {
    for (const auto& request : requests) {
      request->on_ready({});
      request->cancel();
    }
  }
};

// Calls `take` with each delta of all requests as they come, and the number of its choice. Throws what a request threw, and Gone.
template <class Take>
void for_each_delta(Exchange& exchange, const Requests& requests, int ready, const Take& take) {
  std::vector<bool> open(requests.size(), true);
  while (std::find(open.begin(), open.end(), true) != open.end()) {
    exchange.wait_for(ready);
    eventfd_t count = 0;
    eventfd_read(ready, &count);
    size_t first = 0;
    for (size_t number = 0; number < requests.size(); ++number) {
      while (std::optional<OutputDelta> delta = requests[number]->poll()) take(first + static_cast<size_t>(delta->index), *delta);
      if (requests[number]->has_ended()) open[number] = false;
      first += static_cast<size_t>(requests[number]->sequences);
    }
  }
}

void check_type(const RequestHead& head) {
  constexpr size_t kShown = 80;
  const std::string* const given = head.find("content-type");
  if (!given) return;
  std::string kind = given->substr(0, given->find(';'));
  kind.erase(kind.find_last_not_of(" \t") + 1);
  if (strcasecmp(kind.c_str(), "application/json") == 0) return;
  throw RequestError(415, "received Content-Type " + python_repr(first_characters(kind, kShown)) + ", expected application/json", "", "unsupported_media_type");
}

Json described(const std::string& name, const ServedModel& model, int64_t max_length) {
  Json found = Json::Object{{"id", name}, {"object", "model"}, {"created", model.created}, {"owned_by", "speccompile"}};
  if (name != model.name) found.set("parent", model.name);
  found.set("max_model_len", max_length);
  return found;
}

// A path without its escapes, as %3A; what is no escape stays.
std::string unquoted(const std::string& path) {
  const auto digit = [&](size_t at) { return at < path.size() ? std::string("0123456789abcdef").find(static_cast<char>(std::tolower(static_cast<unsigned char>(path[at])))) : std::string::npos; };
  std::string found;
  for (size_t at = 0; at < path.size(); ++at) {
    const bool is_escape = path[at] == '%' && digit(at + 1) != std::string::npos && digit(at + 2) != std::string::npos;
    found += is_escape ? static_cast<char>(16 * digit(at + 1) + digit(at + 2)) : path[at];
    if (is_escape) at += 2;
  }
  if (is_utf8(found)) return found;
  throw RequestError(400, "the path of the request is no UTF-8");
}

[[noreturn]] void refuse_route(const RequestHead& head, int status) {
  constexpr size_t kShown = 80;
  const std::string what = head.method + " " + first_characters(head.target, kShown) + ": " + (status == 404 ? "Not Found" : "Method Not Allowed");
  throw RequestError(status, what).of_kind(status == 404 ? kNotFound : kInvalid);
}

void check_method(const RequestHead& head, const char* allowed) {
  if (head.method != allowed) refuse_route(head, 405);
}

}  // namespace

void App::handle(Exchange& exchange) {
  try {
    route(exchange);
  } catch (const Gone&) {
    throw;
  } catch (...) {
    const RequestError error = current_request_error();
    if (exchange.status()) throw Gone();  // an answer has begun: nothing else can be said
    exchange.answer(error.status, error.to_json(), error.headers);
  }
}

void App::route(Exchange& exchange) {
  const RequestHead& head = exchange.head;
  const std::string& target = head.target;
  if (target == kChatUrl || target == kCompletionsUrl) {
    check_method(head, "POST");
    return generate(exchange, target == kChatUrl);
  }
  if (target == "/health") {
    check_method(head, "GET");
    const std::string status = model_->status();
    return exchange.answer(status == "ready" ? 200 : 503, Json::Object{{"status", status}});
  }
  if (target == "/metrics") {
    check_method(head, "GET");
    return exchange.answer(200, kMetricsType, model_->opened()->metrics.text());
  }
  if (target == "/version") {
    check_method(head, "GET");
    return exchange.answer(200, Json::Object{{"version", kVersion}});
  }
  if (target.rfind(kModels, 0) != 0) refuse_route(head, 404);
  const std::string name = target.substr(std::string(kModels).size());
  if (!name.empty() && name[0] != '/') refuse_route(head, 404);
  check_method(head, "GET");
  authenticate(exchange);
  const int64_t max_length = model_->opened()->bundle->manifest().max_length;
  if (!name.empty()) {
    const std::string wanted = unquoted(name.substr(1));
    model_->check_name(wanted);
    return exchange.answer(200, described(wanted, *model_, max_length));
  }
  Json::List models;
  for (const std::string& each : model_->names()) models.push_back(described(each, *model_, max_length));
  exchange.answer(200, Json::Object{{"object", "list"}, {"data", models}});
}

void App::generate(Exchange& exchange, bool is_chat) {
  const std::string client = authenticate(exchange);
  check_type(exchange.head);
  const std::string data = exchange.read_body(settings_.max_body_bytes);
  const std::shared_ptr<OpenedModel> open = model_->serving();
  const Json body = parse_body(data);
  if (body["model"].is_text()) model_->check_name(body["model"].text());
  ParsedRequest asked = is_chat ? read_chat(body, *open->bundle, settings_.speculative) : read_completion(body, *open->bundle, settings_.speculative);
  asked.options.adapter = model_->adapter_of(asked.model);
  const Ready ready;
  Requests requests;
  const Cancelling cancelling{requests};
  for (const TokenIds& prompt : asked.prompts) {
    Request one = asked.options;
    one.prompts = {prompt};
    requests.push_back(open->service.submit(one, {client, client + ":" + asked.salt, true}));
  }
  for (const auto& request : requests) ready.watch(*request);
  if (asked.stream)
    answer_events(exchange, asked, requests, ready.descriptor());
  else
    answer_whole(exchange, asked, requests, ready.descriptor());
}

void App::answer_whole(Exchange& exchange, const ParsedRequest& asked, const Requests& requests, int ready) {
  const std::shared_ptr<OpenedModel> open = model_->opened();
  ResponseBuilder builder(asked, asked.model.empty() ? model_->name : asked.model, open->bundle->manifest(), open->texts);
  Finished finished(asked.choices());
  for_each_delta(exchange, requests, ready, [&](size_t choice, const OutputDelta& delta) {
    if (delta.finished) finished[choice] = delta.finished;
  });
  exchange.answer(200, builder.full(finished));
}

// A later error is an event too: the status has already been sent.
void App::answer_events(Exchange& exchange, const ParsedRequest& asked, const Requests& requests, int ready) {
  const std::shared_ptr<OpenedModel> open = model_->opened();
  ResponseBuilder builder(asked, asked.model.empty() ? model_->name : asked.model, open->bundle->manifest(), open->texts);
  Finished finished(asked.choices());
  exchange.begin_events();
  try {
    for (const Json& chunk : builder.first_chunks()) exchange.send_event(chunk);
    for_each_delta(exchange, requests, ready, [&](size_t choice, const OutputDelta& delta) {
      for (const Json& chunk : builder.chunks(choice, delta)) exchange.send_event(chunk);
      if (delta.finished) finished[choice] = delta.finished;
    });
    for (const Json& chunk : builder.last_chunks(finished)) exchange.send_event(chunk);
  } catch (const Gone&) {
    throw;
  } catch (...) {
    exchange.send_event(current_request_error().to_json());
  }
  exchange.end_events();
}

}  // namespace spc::http
