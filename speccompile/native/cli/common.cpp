#include "common.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "../files.h"
#include "../progress.h"

namespace spc::cli {
namespace {

// Of the command line and of requests.
struct Name {
  const char *option, *setting;
  bool is_whole;
};
constexpr Name kSampling[] = {{"--temperature", "temperature", false},
                              {"--top-k", "top_k", true},
                              {"--top-p", "top_p", false},
                              {"--min-p", "min_p", false},
                              {"--repetition-penalty", "repetition_penalty", false},
                              {"--seed", "seed", true}};

const std::vector<Option>& sampling_options() {
  static const std::vector<Option> options = {
      {"--temperature", "T", Takes::kNumber,
       "0 is greedy decoding, 1 draws from the target's own probabilities.  [default: 0.0]", 't'},
      {"--top-k", "N", Takes::kWhole, "Draw from the N most probable tokens; 0 is all."},
      {"--top-p", "P", Takes::kNumber, "Draw from the fewest tokens that add up to P."},
      {"--min-p", "P", Takes::kNumber, "Draw from tokens at least P times as probable as the best."},
      {"--repetition-penalty", "R", Takes::kNumber,
       "Above 1, makes tokens less likely that were there before; 1 is the default."},
      {"--seed", "N", Takes::kWhole, "Equal seeds give equal tokens; by default a new one is drawn."},
  };
  return options;
}

}  // namespace

std::vector<Option> with_sampling(std::vector<Option> before, const std::vector<Option>& behind) {
  before.insert(before.end(), sampling_options().begin(), sampling_options().end());
  before.insert(before.end(), behind.begin(), behind.end());
  return before;
}

std::vector<std::pair<std::string, Value>> sampling_of(const Arguments& given) {
  std::vector<std::pair<std::string, Value>> found;
  for (const Name& each : kSampling) {
    if (const std::optional<Value> value = each.is_whole ? given.whole(each.option) : given.number(each.option))
      found.emplace_back(each.setting, *value);
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
  return given.has(kRequireSignature.name) ? plain_path(given.text(kRequireSignature.name)) : "";
}

std::shared_ptr<const Bundle> bundle_of(const Arguments& given, bool verify) {
  const Step step("opening " + plain_path(given.rest[0]));
  const int64_t threads = std::min<int64_t>(given.count("--threads", 0), std::numeric_limits<int>::max());
  return std::make_shared<const Bundle>(
      given.rest[0], OpenOptions{given.text("--engine"), given.text("--onnxruntime"), static_cast<int>(threads), verify, signer_of(given)});
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
