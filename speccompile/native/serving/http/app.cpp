#include "app.h"

#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../../words.h"

#include <algorithm>
#include <utility>

#include "audio.h"
#include "images.h"
#include "prompts.h"
#include "response.h"
#include "tables.h"

namespace spc::http {
namespace {

constexpr const char* kJsonMedia = "application/json";
constexpr const char *kTokenizeUrl = "/tokenize", *kDetokenizeUrl = "/detokenize";

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

// Cancels requests when their answer ends for any reason, which changes nothing for ended requests.
struct Cancelling {
  const Requests& requests;
  ~Cancelling() {
    for (const auto& request : requests) {
      request->on_ready({});
      request->cancel();
    }
  }
};

// A later error is an event too: the status has already been sent.
void stream_transcript(Exchange& exchange, audio::Transcription& writing) {
  exchange.begin_events();
  try {
    while (const std::optional<audio::Segment> segment = writing.next()) exchange.send_event(audio_delta(*segment));
    exchange.send_event(audio_done(writing));
  } catch (const Gone&) {
    throw;
  } catch (...) {
    exchange.send_event(current_request_error().to_json());
  }
  exchange.end_events();
}

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

void check_type(const RequestHead& head, const std::string& wanted = kJsonMedia) {
  constexpr size_t kShown = 80;
  const std::string* const given = head.find("content-type");
  const std::string kind = given ? trimmed(given->substr(0, given->find(';'))) : kJsonMedia;
  if (strcasecmp(kind.c_str(), wanted.c_str()) == 0) return;
  throw RequestError(415, "received Content-Type " + python_repr(first_characters(kind, kShown)) + ", expected " + wanted, "", "unsupported_media_type");
}

RequestError no_route(const RequestHead& head, int status) {
  constexpr size_t kShown = 80;
  const std::string what = head.method + " " + first_characters(head.target, kShown) + ": " + (status == 404 ? "Not Found" : "Method Not Allowed");
  return RequestError(status, what).of_kind(status == 404 ? kNotFound : kInvalid);
}

}  // namespace

void check_method(const RequestHead& head, const std::string& allowed) {
  const bool reads = allowed == "GET";
  if (head.method != allowed && !(reads && head.method == "HEAD")) throw no_route(head, 405).with("Allow", reads ? "GET, HEAD" : allowed);
}

void App::handle(Exchange& exchange) {
  try {
    if (!answer_origin(exchange)) route(exchange);
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
  const bool is_chat = target == kChatUrl;
  if (is_chat || target == kCompletionsUrl) {
    check_method(head, "POST");
    return generate(exchange, is_chat);
  }
  if (target == kTokenizeUrl || target == kDetokenizeUrl) {
    check_method(head, "POST");
    return tokenize(exchange);
  }
  if (target == kTranscriptionsUrl || target == kTranslationsUrl) {
    check_method(head, "POST");
    return hear(exchange, target == kTranscriptionsUrl ? "transcribe" : "translate");
  }
  if (!read_route(exchange)) throw no_route(head, 404);
}

// Say which origins may read the answer (CORS). Return whether the request only asked for that (a preflight).
bool App::answer_origin(Exchange& exchange) const {
  const RequestHead& head = exchange.head;
  const std::string* const origin = head.find("origin");
  if (settings_.origins.empty() || !origin) return false;
  const auto is_given = [&](const char* each) { return std::find(settings_.origins.begin(), settings_.origins.end(), each) != settings_.origins.end(); };
  const bool is_let_in = is_given("*") || is_given(origin->c_str());
  exchange.headers.emplace_back("Vary", "Origin");
  if (is_let_in) exchange.headers.emplace_back("Access-Control-Allow-Origin", is_given("*") ? "*" : *origin);
  if (head.method != "OPTIONS" || !head.find("access-control-request-method")) return false;
  if (const std::string* const asked = head.find("access-control-request-headers")) exchange.headers.emplace_back("Access-Control-Allow-Headers", *asked);
  exchange.headers.emplace_back("Access-Control-Allow-Methods", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
  exchange.headers.emplace_back("Access-Control-Max-Age", "600");
  exchange.answer(is_let_in ? 200 : 400, "text/plain; charset=utf-8", is_let_in ? "OK" : "Disallowed CORS origin");
  return true;
}

// Return how long a body may be. shows: it may have pictures.
int64_t App::most_bytes(const OpenedModel& open, bool shows) const {
  return std::max(settings_.max_body_bytes, shows && open.bundle->vision() ? kMostPicturesBody : int64_t{0});
}

// /tokenize and /detokenize.
void App::tokenize(Exchange& exchange) {
  authenticate(exchange);
  check_type(exchange.head);
  const std::shared_ptr<OpenedModel> open = model_->serving();
  const bool is_tokenize = exchange.head.target == kTokenizeUrl;
  const std::string data = exchange.read_body(most_bytes(*open, is_tokenize));
  const Json body = parse_body(data);
  if (body["model"].is_text()) model_->check_name(body["model"].text());
  exchange.answer(200, is_tokenize ? read_tokens(body, *open->bundle) : read_text(body, *open->bundle));
}

void App::generate(Exchange& exchange, bool is_chat) {
  const std::string client = authenticate(exchange);
  check_type(exchange.head);
  const std::shared_ptr<OpenedModel> open = model_->serving();
  const std::string data = exchange.read_body(most_bytes(*open, is_chat));
  const Json body = parse_body(data);
  if (body["model"].is_text()) model_->check_name(body["model"].text());
  ParsedRequest asked = is_chat ? read_chat(body, *open->bundle, settings_) : read_completion(body, *open->bundle, settings_);
  asked.options.adapter = model_->adapter_of(asked.model);
  const Ready ready;
  Requests requests;
  const Cancelling cancelling{requests};
  for (const TokenIds& prompt : asked.prompts) {
    Request one = asked.options;
    one.prompts = {prompt};
    requests.push_back(open->service.submit(one, {client, client + ":" + asked.salt, true, asked.priority}));
  }
  asked.options.images.clear();  // whose pixels the sequences drop once they are encoded
  for (const auto& request : requests) ready.watch(*request);
  if (asked.stream)
    answer_events(exchange, asked, requests, ready.descriptor());
  else
    answer_whole(exchange, asked, requests, ready.descriptor());
}

// /v1/audio/transcriptions and /translations.
void App::hear(Exchange& exchange, const std::string& task) {
  const std::string client = authenticate(exchange);
  check_type(exchange.head, kFormMedia);
  const std::shared_ptr<OpenedModel> open = model_->serving();
  std::string body = exchange.read_body(std::max(settings_.max_body_bytes, kMostFormBytes));
  body.insert(0, "\r\n");
  const AudioRequest asked = audio_request(body, *exchange.head.find("content-type"), task);
  if (!asked.model.empty()) model_->check_name(asked.model);
  const Ready ready;
  const auto decode = [&](const Request& window) {
    Request one = window;
    one.adapter = model_->adapter_of(asked.model);
    const Requests requests = {open->service.submit(one, {client, client + ":", true, 0})};
    const Cancelling cancelling{requests};
    ready.watch(*requests[0]);
    std::shared_ptr<const FinishedSequence> finished;
    for_each_delta(exchange, requests, ready.descriptor(), [&](size_t, const OutputDelta& delta) {
      if (delta.finished) finished = delta.finished;
    });
    if (finished->finish_reason == finish::kCancelled || finished->finish_reason == finish::kTimeout) throw cancelled_error(finished->finish_reason, finished->token_ids.size());
    return finished->json;
  };
  const auto writing = transcription_of(asked, decode, *open->bundle, settings_.speculative);
  if (asked.stream) return stream_transcript(exchange, *writing);
  writing->finish();
  const AudioAnswer found = audio_answer(asked.form, *writing);
  exchange.answer(200, found.type, found.body);
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
