// `speccompile-native serve`: a bundle behind OpenAI's API.
#include <cmath>
#include <map>
#include <string>

#include "../errors.h"
#include "../files.h"
#include "../progress.h"
#include "../serving/http/server.h"
#include "../system.h"
#include "common.h"
#include "exit_codes.h"
#include "serve_help.h"

namespace spc::cli {
namespace {

constexpr const char* kKeys = "SPECCOMPILE_API_KEY";
constexpr int64_t kMostPort = 65535;
constexpr double kGrace = 30;
constexpr size_t kMostKeyBytes = 1 << 20;  // of a file of keys

// A number of an option within limits; a value that is not given is `otherwise`.
template <class Number>
std::optional<Number> number_of(const Arguments& given, const char* name, double least, double most = 1e15, bool is_open = false) {
  std::optional<Value> value = given.whole(name);
  if (!value) value = given.number(name);
  if (!value) return std::nullopt;
  const bool fits = value->number <= most && (is_open ? value->number > least : value->number >= least);
  if (fits) return static_cast<Number>(value->number);
  throw Error(Kind::kUsage,
              std::string(name) + ": received " + given.text(name) + ", expected " + (is_open ? "more than " : "at least ") + Json(static_cast<int64_t>(least)).dump() +
                  (most < 1e15 ? " and at most " + Json(static_cast<int64_t>(most)).dump() : ""),
              "see " + std::string(kProgram) + " serve --help");
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
    const std::vector<std::string> read = http::read_keys(text);
    if (read.empty()) throw Error(Kind::kUsage, named + ": found no key, expected one a line", "write one, or leave it out");
    keys.insert(keys.end(), read.begin(), read.end());
  }
  const std::string variable = environment(kKeys);
  for (size_t at = 0; !variable.empty() && at <= variable.size();) {
    const size_t comma = std::min(variable.find(',', at), variable.size());
    keys.push_back(variable.substr(at, comma - at));
    at = comma + 1;
  }
  for (std::string& key : keys) {
    const size_t first = key.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) throw Error(Kind::kUsage, "received an empty API key, expected at least one character", "leave it out");
    key = key.substr(first, key.find_last_not_of(" \t\r\n") - first + 1);
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
  limits.requests = number_of<int64_t>(given, "--waiting", 0).value_or(limits.requests);
  limits.tokens = number_of<int64_t>(given, "--waiting-tokens", 0).value_or(limits.tokens);
  limits.sequences = given.count("--sequences", limits.sequences);
  limits.queue_seconds = number_of<double>(given, "--waiting-seconds", 0, 1e15, true);
  limits.seconds = number_of<double>(given, "--request-seconds", 0, 1e15, true);
  if (given.has("--client-rows")) limits.client_rows = given.count("--client-rows", 1);
  limits.reuse = !given.has("--no-reuse");
  limits.by_priority = given.text("--scheduling-policy") == "priority";
  const std::optional<double> gigabytes = number_of<double>(given, "--sessions-limit-gb", 0, 1e15, true);
  if (given.has("--sessions")) limits.sessions = plain_path(given.text("--sessions"));
  if (gigabytes && limits.sessions.empty())
    throw Error(Kind::kUsage, "--sessions-limit-gb " + given.text("--sessions-limit-gb") + ": there is no folder to limit", "give --sessions FOLDER");
  if (!limits.sessions.empty() && !limits.reuse)
    throw Error(Kind::kUsage, "received --sessions and --no-reuse, expected one of them", "leave out one of them");
  limits.sessions_gb = gigabytes.value_or(limits.sessions_gb);
  return limits;
}

http::ConnectionLimits connections_of(const Arguments& given) {
  constexpr double kLeastHeaderBytes = 1024;
  http::ConnectionLimits limits;
  limits.header_bytes = number_of<int64_t>(given, "--header-bytes", kLeastHeaderBytes).value_or(limits.header_bytes);
  limits.headers = given.count("--headers", limits.headers);
  limits.header_seconds = number_of<double>(given, "--header-seconds", 0, 1e15, true).value_or(limits.header_seconds);
  limits.body_seconds = number_of<double>(given, "--body-seconds", 0, 1e15, true).value_or(limits.body_seconds);
  if (given.has("--connections")) limits.connections = given.count("--connections", 1);
  if (given.has("--address-connections")) limits.address_connections = given.count("--address-connections", 1);
  return limits;
}

void serve(const Arguments& given) {
  http::block_signals();
  const std::string folder = given.rest[0];
  const std::map<std::string, std::string> adapters = adapters_of(given);
  const OpenedBundle checked = open_bundle(folder, false);  // refuse an invalid bundle before listening
  if (checked.manifest.source && !checked.manifest.source->audio)
    throw Error(Kind::kUsage, "received a bundle whose target reads texts with an encoder, expected a language model or one that hears: OpenAI's API has no source",
                "generate with the bundle itself, or with its service: spc_scheduler_submit");
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
  http::ListenAddress place;
  if (given.has("--host")) place.host = given.text("--host");
  place.port = number_of<int64_t>(given, "--port", 0, kMostPort).value_or(place.port);
  if (given.has("--unix")) place.unix_path = plain_path(given.text("--unix"));
  const Limits limits = limits_of(given);
  const http::ConnectionLimits connections = connections_of(given);
  const double grace = number_of<double>(given, "--grace", 0).value_or(kGrace);
  const std::string name = given.has("--served-model-name") ? given.text("--served-model-name") : checked.manifest.name;
  const auto model = std::make_shared<http::ServedModel>(name, limits);
  http::Listening listening(place);
  write_stdout(listening.address + "\n");
  const auto load = [&] {
    try {
      model->serve(bundle_of(given, !given.has("--no-verify")), adapters);
    } catch (const Error& error) {
      model->fail(error.message);
      throw;
    }
    log(Level::kInfo, "serving " + name + " on " + listening.address + ", with " + std::to_string(checked.manifest.batch_size) + " rows");
  };
  http::serve(model, settings, listening, load, grace, connections);
}

}  // namespace

Subcommand serve_command() {
  const std::vector<Option> options = {
      {"--host", "ADDRESS", Takes::kText, "Address to listen on.  [default: 127.0.0.1]"},
      {"--port", "N", Takes::kWhole, "0 takes a free one.  [default: 8000; 0<=x<=65535]"},
      {"--unix", "PATH", Takes::kText, "Listen on this Unix socket instead."},
      {"--served-model-name", "NAME", Takes::kText, "The model's name; by default the bundle's."},
      {"--api-key", "KEY", Takes::kText, "Let only these in. May be given several times."},
      {"--api-key-file", "FILE", Takes::kText, "Keys, one a line."},
      {"--engine", "NAME", Takes::kText, "Engine of the bundle; by default the first that can run here."},
      {"--threads", "INTEGER RANGE", Takes::kCount, "Threads; by default one a core that this process may use.  [x>=1]"},
      {"--onnxruntime", "FILE", Takes::kText, kOnnxruntimeHelp},
      {"--adapter", "NAME=FOLDER", Takes::kText, "Load this LoRA adapter into a slot of the bundle. May be given several times."},
      {"--autoregressive", "", Takes::kFlag, "One token a round, for requests that do not ask for drafts."},
      {"--waiting", "N", Takes::kWhole, "Requests that may wait; by default 64.  [x>=0]"},
      {"--waiting-tokens", "N", Takes::kWhole, "Tokens of their prompts; by default 65536.  [x>=0]"},
      {"--waiting-seconds", "S", Takes::kNumber, "How long one may wait.  [x>0]"},
      {"--request-seconds", "S", Takes::kNumber, "How long one may take in all.  [x>0]"},
      {"--sequences", "N", Takes::kCount, "That one prompt may get; by default 16.  [x>=1]"},
      {"--client-rows", "N", Takes::kCount, "Rows that one API key may have at once.  [x>=1]"},
      {"--scheduling-policy", "[fcfs|priority]", Takes::kChoice, "Who is served next: who came first, or the lowest `priority` of a request, also instead of a running one.  [default: fcfs]"},
      {"--no-reuse", "", Takes::kFlag, "Read every prompt anew, also what an earlier one began with."},
      {"--sessions", "FOLDER", Takes::kText, "Keep texts in this folder: prompts that begin like one go on from there, also after a restart."},
      {"--sessions-limit-gb", "GB", Takes::kNumber, "Size of that folder in GB, by default 10; texts used least recently are removed.  [x>0]"},
      {"--body-bytes", "INTEGER RANGE", Takes::kCount, "Of a request.  [default: 4194304; x>=1]"},
      {"--grammar-bytes", "N", Takes::kCount, "Of a JSON schema, regular expression, grammar or list of choices.  [default: 65536; x>=1]"},
      {"--header-bytes", "N", Takes::kWhole, "Of a request's line and headers.  [default: 32768; x>=1024]"},
      {"--headers", "N", Takes::kCount, "Of a request.  [default: 100; x>=1]"},
      {"--header-seconds", "S", Takes::kNumber, "From a request's first byte until its headers must have come.  [default: 10.0; x>0]"},
      {"--body-seconds", "S", Takes::kNumber, "Until its body must have come, and for which a client may leave what was sent unread.  [default: 60.0; x>0]"},
      {"--connections", "N", Takes::kCount,
       "At once; by default what the limit of open files (ulimit -n) has room for, at most 1024. A few more may ask for /health and /metrics only.  [x>=1]"},
      {"--address-connections", "N", Takes::kCount,
       "Of one address; by default half of --connections. Behind a proxy, which has one address, give as many.  [x>=1]"},
      {"--grace", "S", Takes::kNumber, "Seconds that requests get to finish when the server is told to end.  [default: 30.0; x>=0]"},
      {"--cors-origin", "ORIGIN", Takes::kText, "Let pages of this origin ask. May be given several times."},
      {"--image-host", "HOST", Takes::kText, "Refused: this server fetches no pictures; `speccompile serve` does."},
      {"--no-page", "", Takes::kFlag, "Leave out the page at /."},
      {"--access-log", "", Takes::kFlag, "Write a line for every request to stderr."},
      {"--no-verify", "", Takes::kFlag, "Do not compare the files with their recorded hashes."},
      kRequireSignature,
  };
  return {"serve", "Serve a bundle behind OpenAI's API.", {std::string(kProgram) + " serve", "BUNDLE", "[OPTIONS] BUNDLE", kServeHelp, options}, serve};
}

}  // namespace spc::cli
