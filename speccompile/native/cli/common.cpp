#include "common.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "../files.h"
#include "../progress.h"
#include "../runtime/sampling_table.h"

namespace spc::cli {

std::string setting_of(std::string_view option) {
  std::string name(option.substr(2));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<std::pair<std::string, Value>> sampling_of(const Arguments& given) {
  std::vector<std::pair<std::string, Value>> found;
  for (const SamplingOption& option : kSamplingOptions) {
    std::string flag = std::string("--") + option.name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (const std::optional<Value> value = given.number(flag)) found.emplace_back(option.name, *value);
  }
  return found;
}

Request request_of(const Arguments& given) {
  Request request;
  for (const auto& [name, value] : sampling_of(given)) request.set(Request::kAll, name, value);
  request.set(Request::kAll, "max_new_tokens", Value::of(static_cast<uint64_t>(given.count("--max-new-tokens", kNewTokens))));
  request.set(Request::kAll, "adaptive", Value::of(uint64_t{!given.has("--fixed-draft-length")}));
  return request;
}

std::string signer_of(const Arguments& given) {
  // one that is empty is the folder here, and no key: as pathlib reads it
  return given.has("--require-signature") ? plain_path(given.text("--require-signature")) : "";
}

std::shared_ptr<const Bundle> bundle_of(const Arguments& given, bool verify) {
  const Step step("opening " + plain_path(given.rest[0]));
  const int64_t threads = std::min<int64_t>(given.count("--threads", 0), std::numeric_limits<int>::max());
  OpenOptions options{given.text("--engine"), given.text("--onnxruntime"), static_cast<int>(threads), verify, signer_of(given)};
  if (given.has("--image-cache")) options.image_cache = given.count("--image-cache", 0);
  return std::make_shared<const Bundle>(given.rest[0], options);
}

std::string read_stdin() {
  std::string text;
  for (char part[1 << 16];;) {
    const ssize_t got = read(STDIN_FILENO, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw FileError(errno);
    if (got == 0) return text;
    text.append(part, static_cast<size_t>(got));
  }
}

}  // namespace spc::cli
