// `speccompile-native serve`: a bundle behind OpenAI's API.
#include <cmath>
#include <map>
#include <string>

#include "../errors.h"
#include "../files.h"
#include "../progress.h"
#include "../serving/http/server.h"
#include "../system.h"
#include "../words.h"
#include "common.h"
#include "exit_codes.h"

namespace spc::cli {
namespace {

constexpr const char* kKeys = "SPECCOMPILE_API_KEY";
constexpr double kGrace = 30;
constexpr size_t kMostKeyBytes = 1 << 20;  // of a file of keys

// Return a number of an option, at most a time that clocks can add.
std::optional<double> number_of(const Arguments& given, const char* name) {
  constexpr double kMost = 1e9;
  const std::optional<Value> value = given.number(name);
  return value ? std::optional<double>(std::min(value->number, kMost)) : std::nullopt;
}

// The keys of options, file and environment. Throws Error(kUsage), which never shows a part of a key.
std::vector<std::string> keys_of(const Arguments& given) {
  std::vector<std::string> keys = given.all("--api-key");
  if (given.has("--api-key-file")) {
    const std::string path = plain_path(given.text("--api-key-file")), named = "--api-key-file " + path;
    std::string text;
    try {
      text = read_file(path, kMostKeyBytes);
    } catch (const FileError& error) {
      throw Error(Kind::kUsage, named + ": " + error.reason, "give a file with one key a line");
    }
    if (!is_utf8(text)) throw Error(Kind::kUsage, named + ": received no UTF-8, expected text with one key a line", "save the keys as UTF-8");
    remove_byte_order_mark(text);
    const std::vector<std::string> read = http::read_keys(text);
    if (read.empty()) throw Error(Kind::kUsage, named + ": found no key, expected one a line", "write one, or leave it out");
    keys.insert(keys.end(), read.begin(), read.end());
  }
  if (const std::string variable = environment(kKeys); !variable.empty())
    for (std::string& key : split(variable, ',')) keys.push_back(std::move(key));
  for (std::string& key : keys) {
    key = trimmed(key);
    if (key.empty()) throw Error(Kind::kUsage, "received an empty API key, expected at least one character", "leave it out");
  }
  return keys;
}

std::map<std::string, std::string> adapters_of(const Arguments& given) {
  std::map<std::string, std::string> found;
  for (const std::string& each : given.all("--adapter")) {
    const size_t equals = each.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == each.size())
      throw Error(Kind::kUsage, "--adapter " + each + ": received no NAME=FOLDER, expected NAME=FOLDER", "--adapter poet=poet/");
    if (!found.emplace(each.substr(0, equals), plain_path(each.substr(equals + 1))).second)
      throw Error(Kind::kUsage, "--adapter " + each + ": received the name twice, expected names that differ", "rename one of them");
  }
  return found;
}

Limits limits_of(const Arguments& given) {
  Limits limits;
  limits.requests = given.count("--waiting", limits.requests);
  limits.tokens = given.count("--waiting-tokens", limits.tokens);
  limits.sequences = given.count("--sequences", limits.sequences);
  limits.queue_seconds = number_of(given, "--waiting-seconds");
  limits.seconds = number_of(given, "--request-seconds");
  if (given.has("--client-rows")) limits.client_rows = given.count("--client-rows", 1);
  limits.reuse = !given.has("--no-reuse");
  limits.by_priority = given.text("--scheduling-policy") == "priority";
  const std::optional<double> gigabytes = number_of(given, "--sessions-limit-gb");
  if (given.has("--sessions")) limits.sessions = plain_path(given.text("--sessions"));
  if (gigabytes && limits.sessions.empty())
    throw Error(Kind::kUsage, "--sessions-limit-gb " + given.text("--sessions-limit-gb") + ": there is no folder to limit", "give --sessions FOLDER");
  if (!limits.sessions.empty() && !limits.reuse)
    throw Error(Kind::kUsage, "received --sessions and --no-reuse, expected one of them", "leave out one of them");
  limits.sessions_gb = gigabytes.value_or(limits.sessions_gb);
  return limits;
}

http::ConnectionLimits connections_of(const Arguments& given) {
  http::ConnectionLimits limits;
  limits.header_bytes = given.count("--header-bytes", limits.header_bytes);
  limits.headers = given.count("--headers", limits.headers);
  limits.header_seconds = number_of(given, "--header-seconds").value_or(limits.header_seconds);
  limits.body_seconds = number_of(given, "--body-seconds").value_or(limits.body_seconds);
  if (given.has("--connections")) limits.connections = given.count("--connections", 1);
  if (given.has("--address-connections")) limits.address_connections = given.count("--address-connections", 1);
  return limits;
}

// Refuse a target that reads texts with an encoder: OpenAI's API has no source for it.
void check_served(const Manifest& manifest) {
  if (!manifest.source || manifest.source->audio) return;
  throw Error(Kind::kUsage, "received a bundle whose target reads texts with an encoder, expected a language model or one that hears: OpenAI's API has no source",
              "generate with the bundle itself, or with its service: spc_scheduler_submit");
}

http::Settings settings_of(const Arguments& given) {
  http::Settings settings;
  settings.keys = http::Keys(keys_of(given));
  settings.max_body_bytes = given.count("--body-bytes", settings.max_body_bytes);
  settings.grammar_bytes = given.count("--grammar-bytes", settings.grammar_bytes);
  settings.speculative = !given.has("--autoregressive");
  settings.access_log = given.has("--access-log");
  settings.origins = given.all("--cors-origin");
  settings.page = !given.has("--no-page");
  if (given.has("--image-host"))
    throw Error(Kind::kUsage, "--image-host " + given.text("--image-host") + ": received a host of pictures, expected none: speccompile-native has no client of HTTPS",
                "serve with `speccompile serve`, or leave it out and send pictures as data: URLs");
  return settings;
}

http::ListenAddress address_of(const Arguments& given) {
  http::ListenAddress address;
  if (given.has("--host")) address.host = given.text("--host");
  address.port = given.count("--port", address.port);
  if (given.has("--unix")) address.unix_path = plain_path(given.text("--unix"));
  return address;
}

}  // namespace

void serve(const Arguments& given) {
  http::block_signals();
  const std::string folder = given.rest[0];
  const std::map<std::string, std::string> adapters = adapters_of(given);
  const OpenedBundle checked = open_bundle(folder, false);  // refuse an invalid bundle before listening
  check_served(checked.manifest);
  const http::Settings settings = settings_of(given);
  const http::ListenAddress address = address_of(given);
  const Limits limits = limits_of(given);
  const http::ConnectionLimits connections = connections_of(given);
  const double grace = number_of(given, "--grace").value_or(kGrace);
  const std::string name = given.has("--served-model-name") ? given.text("--served-model-name") : checked.manifest.name;
  const auto model = std::make_shared<http::ServedModel>(name, limits);
  http::Listening listening(address);
  write_stdout(listening.address + "\n");
  const auto load = [&] {
    try {
      model->serve(bundle_of(given, !given.has("--no-verify")), adapters);
    } catch (const Error& error) {
      model->fail(error.message);
      throw;
    }
    log(Level::kInfo, "serving " + name + " on " + listening.address + ", batch size " + std::to_string(checked.manifest.batch_size));
    if (settings.page && address.unix_path.empty()) log(Level::kInfo, "open " + listening.address + "/ in a browser to talk to it");
  };
  http::serve(model, settings, listening, load, grace, connections);
}

}  // namespace spc::cli
