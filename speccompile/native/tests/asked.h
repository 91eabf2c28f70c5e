// Shared by the tests over the C ABI: an open bundle, requests, and whole generations.
//
// The bundle is greedy: then tokens depend on the request alone.
#pragma once

#include "../include/speccompile.hpp"
#include "check.h"

#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#define IS_THREAD_SANITIZED 1
#endif
#if defined(IS_THREAD_SANITIZED) || defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define IS_SANITIZED 1
#endif

namespace speccompile {

using Tokens = std::vector<int64_t>;
constexpr uint64_t kNewTokens = 12;
constexpr int64_t kLongest = 40;  // of a prompt: several chunks of the prefill

// Threads of ONNX Runtime's own, in a pool.
#if defined(IS_THREAD_SANITIZED)
constexpr const char* kSeveral = "1";  // the sanitizer cannot see how they hand work over
#else
constexpr const char* kSeveral = "2";
#endif

struct Arguments {
  std::string folder, onnxruntime;
  Bundle open(const char* threads = "1") const { return Bundle(folder, {{"onnxruntime", onnxruntime}, {"threads", threads}}); }
};

struct Answer {
  Tokens tokens;
  std::string text;
  bool operator==(const Answer& other) const { return tokens == other.tokens && text == other.text; }
};
using Answers = std::vector<Answer>;

// A number of the manifest.
inline int64_t number_of(const Bundle& bundle, const std::string& name) {
  const std::string manifest(bundle.manifest());
  const size_t at = manifest.find("\"" + name + "\": ");
  CHECK(at != std::string::npos, "%s", name.c_str());
  return std::stoll(manifest.substr(at + name.size() + 4));
}

// The request of a batch, over prompts of the test.
struct Asked {
  std::vector<Tokens> prompts;
  uint64_t new_tokens;
  const char* way;  // "adaptive" or "autoregressive"

  Request request() const {
    Request made;
    for (const Tokens& prompt : prompts) made.prompt(prompt);
    return std::move(made.set("max_new_tokens", new_tokens).set(way, 1));
  }
};

inline Asked asked_of(const Bundle& bundle, uint64_t seed) {
  Random random(seed);
  Asked asked{{}, kNewTokens, seed % 3 ? "adaptive" : "autoregressive"};
  const int64_t rows = random.integer(1, number_of(bundle, "batch_size")), vocabulary = number_of(bundle, "vocabulary_size");
  for (int64_t row = 0; row < rows; ++row) {
    Tokens& prompt = asked.prompts.emplace_back();
    for (int64_t left = random.integer(1, kLongest); left > 0; --left) prompt.push_back(random.integer(0, vocabulary - 1));
  }
  return asked;
}

// The text in a result, as JSON writes it.
inline std::string text_of(const Result& result) {
  const std::string json(result.json());
  const size_t end = json.find(", \"token_ids\": ");
  CHECK(json.rfind("{\"text\": ", 0) == 0 && end != std::string::npos, "%s", json.c_str());
  return json.substr(9, end - 9);
}

inline Answers results_of(const Session& session) {
  Answers found;
  for (size_t row = 0; row < session.rows(); ++row) found.push_back({session.result(row).tokens(), text_of(session.result(row))});
  return found;
}

// A whole generation; the streamed pieces must add up to its text.
inline Answers generate(Session& session, const Asked& asked) {
  session.start(asked.request());
  std::vector<Tokens> streamed(session.rows());
  for (bool going = true; going;) {
    going = session.step();
    for (size_t row = 0; row < session.rows(); ++row)
      for (const int64_t id : session.new_tokens(row)) streamed[row].push_back(id);
  }
  const Answers found = results_of(session);
  for (size_t row = 0; row < found.size(); ++row) CHECK(streamed[row] == found[row].tokens, "row %zu streams something else", row);
  return found;
}

// The bundle and ONNX Runtime's library that a test is given.
inline Arguments arguments_of(int count, char** words) {
  CHECK(count > 2, "usage: %s BUNDLE LIBRARY_OF_ONNXRUNTIME [count]", words[0]);
  return {words[1], words[2]};
}

}  // namespace speccompile
