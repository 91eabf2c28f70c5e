#include "common.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>

#include "../errors.h"
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

namespace {

// Return whether a text is a decimal number: digits, perhaps behind a sign, with a point among or before them.
bool is_decimal(const std::string& text) {
  const size_t begin = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const size_t point = std::min(text.find('.'), text.size());
  const auto digits = [&](size_t from, size_t to) { return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(from), text.begin() + static_cast<std::ptrdiff_t>(to), [](char each) { return each >= '0' && each <= '9'; }); };
  if (point == text.size()) return point > begin && digits(begin, point);
  return point >= begin && point + 1 < text.size() && digits(begin, point) && digits(point + 1, text.size());
}

}  // namespace

LogitBias logit_bias_of(const Arguments& given) {
  LogitBias found;
  for (const std::string& text : given.all("--logit-bias")) {
    const size_t equals = std::min(text.find('='), text.size());
    const std::string id = text.substr(0, equals), value = equals < text.size() ? text.substr(equals + 1) : "";
    const bool is_id = !id.empty() && id.size() <= 10 && id.find_first_not_of("0123456789") == std::string::npos;
    const bool is_bias = is_id && is_decimal(value);
    if (!is_bias || !found.emplace(std::stoll(id), std::strtod(value.c_str(), nullptr)).second)
      throw Error(Kind::kUsage, "--logit-bias " + text + ": received " + (is_bias ? "the token twice" : "a text of another form") + ", expected ID=VALUE once for a token",
                  "as in --logit-bias 262=-100, which keeps token 262 out");
  }
  return found;
}

Request request_of(const Arguments& given) {
  Request request;
  request.logit_bias = logit_bias_of(given);
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
