// Routes that read: what is served, how it is, and the page to talk to it (serving/http/app.py, capabilities.py, page_files.py).
#include <algorithm>

#include "../../words.h"

#include "app.h"
#include "embedded.h"

namespace spc::http {
namespace {

constexpr const char* kModels = "/v1/models";
constexpr const char* kPage = "/page/";
constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kProbe = "a system prompt 1f0b";  // text that no chat template writes by itself
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

Json model_entry(const std::string& name, const ServedModel& model, int64_t max_length) {
  Json found = Json::Object{{"id", name}, {"object", "model"}, {"created", model.created}, {"owned_by", "speccompile"}};
  if (name != model.name) found.set("parent", model.name);
  found.set("max_model_len", max_length);
  return found;
}

// Return whether the chat template writes a system message: some refuse it, and some leave it out.
bool takes_system_prompt(const Bundle& bundle) {
  if (!bundle.chat().has_templates()) return false;
  const auto message = [](const char* role, const char* content) { return Json(Json::Object{{"role", role}, {"content", content}}); };
  try {
    const std::string written = bundle.chat().apply({message("system", kProbe), message("user", "a question")}, true, Json(Json::Object()));
    return written.find(kProbe) != std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

// The body of /bundle, for clients that show only settings that it takes.
Json capabilities(const Bundle& bundle, const std::string& model, bool speculative) {
  const Manifest& manifest = bundle.manifest();
  const bool has_text = bundle.text() != nullptr, drafts = manifest.tokens > 0;
  return Json::Object{{"model", model},
                      {"chat", has_text && bundle.chat().has_templates()},
                      {"system_prompt", takes_system_prompt(bundle)},
                      {"text", has_text},
                      {"images", bundle.vision() != nullptr},
                      {"decoding", manifest.decoding},
                      {"drafting_method", drafts ? manifest.json["plan"]["drafter"]["kind"] : Json()},
                      {"draft_tokens", manifest.tokens},
                      {"draft_depth", manifest.depth},
                      {"speculative", speculative && drafts},
                      {"max_model_len", manifest.max_length}};
}

std::string type_of(const std::string& name) {
  const std::string kind = name.substr(name.rfind('.') + 1);
  return std::string(kind == "html" ? "text/html" : kind == "css" ? "text/css" : "text/javascript") + "; charset=utf-8";
}

// Return whether a client that has a file under these tags has the present one.
bool is_known(const std::string* tags, const std::string& present) {
  const std::vector<std::string> known = split(tags ? *tags : "", ',');
  return std::any_of(known.begin(), known.end(), [&](const std::string& each) {
    std::string tag = trimmed(each, " \t");
    if (starts_with(tag, "W/")) tag.erase(0, 2);
    return tag == present || tag == "*";
  });
}

// Answer with a file of the page; it loads nothing from elsewhere, and the headers forbid it to.
void answer_file(Exchange& exchange, const std::string& name) {
  const EmbeddedFile* const end = kPageFiles + kPageFileCount;
  const EmbeddedFile* const file = std::find_if(kPageFiles, end, [&](const EmbeddedFile& each) { return name == each.name; });
  constexpr size_t kShown = 80;
  if (file == end) throw RequestError(404, "the page has no file " + python_repr(first_characters(name, kShown))).of_kind(kNotFound);
  const Headers headers = {{"Content-Security-Policy", kPolicy},
                           {"X-Content-Type-Options", "nosniff"},
                           {"Referrer-Policy", "no-referrer"},
                           {"Cross-Origin-Opener-Policy", "same-origin"},
                           {"Cross-Origin-Resource-Policy", "same-origin"},
                           {"Cache-Control", "no-cache"},  // browsers may keep it, and ask by its ETag whether it has changed
                           {"ETag", file->tag}};
  const bool has_it = is_known(exchange.head.find("if-none-match"), file->tag);
  exchange.answer(has_it ? 304 : 200, type_of(name), has_it ? "" : std::string(reinterpret_cast<const char*>(file->data), file->size), headers);
}

}  // namespace

bool App::read_route(Exchange& exchange) {
  const std::string& target = exchange.head.target;
  const auto is_read = [&](bool is_here) {
    if (is_here) check_method(exchange.head, "GET");
    return is_here;
  };
  if (is_read(target == "/health")) {
    const std::string status = model_->status();
    exchange.answer(status == "ready" ? 200 : 503, Json::Object{{"status", status}});
  } else if (is_read(target == "/metrics")) {
    exchange.answer(200, kMetricsType, model_->opened()->metrics.text());
  } else if (is_read(target == "/version")) {
    exchange.answer(200, Json::Object{{"version", kVersion}});
  } else if (is_read(target == "/openapi.json")) {
    exchange.answer(200, "application/json", {reinterpret_cast<const char*>(kOpenapi.data), kOpenapi.size});
  } else if (is_read(target == "/bundle")) {
    authenticate(exchange);
    exchange.answer(200, capabilities(*model_->opened()->bundle, model_->name, settings_.speculative));
  } else if (is_read(target == kModels || starts_with(target, std::string(kModels) + "/"))) {
    models(exchange, target.substr(std::string(kModels).size()));
  } else {
    return settings_.page && page_route(exchange);
  }
  return true;
}

// name: empty for the list, else of one model, behind a slash.
void App::models(Exchange& exchange, const std::string& name) {
  authenticate(exchange);
  const int64_t max_length = model_->opened()->bundle->manifest().max_length;
  if (!name.empty()) {
    const std::string wanted = name.substr(1);
    model_->check_name(wanted);
    return exchange.answer(200, model_entry(wanted, *model_, max_length));
  }
  Json::List models;
  for (const std::string& each : model_->names()) models.push_back(model_entry(each, *model_, max_length));
  exchange.answer(200, Json::Object{{"object", "list"}, {"data", models}});
}

// Its routes need no API key: the page asks for it, and sends it to the API.
bool App::page_route(Exchange& exchange) {
  const std::string& target = exchange.head.target;
  const std::string name = starts_with(target, kPage) ? target.substr(std::string(kPage).size()) : "";
  const bool is_file = !name.empty() && name.find('/') == std::string::npos, is_icon = target == "/favicon.ico";
  if (target != "/" && !is_file && !is_icon) return false;
  check_method(exchange.head, "GET");
  if (is_icon)
    exchange.answer(204, "", "", {{"Cache-Control", "max-age=86400"}});
  else
    answer_file(exchange, is_file ? name : "index.html");
  return true;
}

}  // namespace spc::http
