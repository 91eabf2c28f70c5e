// speccompile in C++17, over the C ABI alone: errors are exceptions, handles free themselves.
//
//   auto bundle = speccompile::Bundle("build/demo");
//   auto session = speccompile::Session(bundle);
//   session.run(speccompile::Request().prompt("def main(").set("max_new_tokens", 64),
//               [](std::string_view piece) { std::cout << piece << std::flush; });
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "speccompile.h"

namespace speccompile {

// what(): what was received and expected; hint: what to change, "" for none; kind: SPC_USAGE, SPC_BUNDLE, ..
class Error : public std::runtime_error {
 public:
  explicit Error(std::unique_ptr<spc_error, decltype(&spc_error_free)> error)
      : std::runtime_error(spc_error_message(error.get())),
        kind(spc_error_kind(error.get())),
        exit_code(spc_error_exit_code(error.get())),
        hint(spc_error_hint(error.get())) {}

  int kind, exit_code;
  std::string hint;
};

// Throws Error where a function of the C ABI returned one.
inline void check(spc_error *error) {
  if (error) throw Error({error, &spc_error_free});
}

template <auto kFree>
struct Freed {
  template <class Handle>
  void operator()(Handle *handle) const noexcept {
    kFree(handle);
  }
};

// Prompts and options, chained. Options have the names and defaults of Python's `Bundle.generate_batch`.
class Request {
 public:
  Request() {
    spc_request *made = nullptr;
    check(spc_request_create(&made));
    handle_.reset(made);
  }
  Request &prompt(std::string_view text) & { return done(spc_request_add_text(get(), text.data(), text.size())); }
  Request &prompt(const std::vector<int64_t> &ids) & { return done(spc_request_add_tokens(get(), ids.data(), ids.size())); }
  Request &stop(std::string_view text) & { return done(spc_request_add_stop(get(), text.data(), text.size())); }
  // A whole number for an option that is one (max_new_tokens), a double for one that is not (temperature). prompt: of that
  // one alone.
  template <class Value>
  Request &set(const char *name, Value value, size_t prompt = SPC_ALL) & {
    static_assert(std::is_arithmetic_v<Value>, "options are numbers");
    if constexpr (std::is_floating_point_v<Value>) {
      return done(spc_request_set_number(get(), prompt, name, value));
    } else {
      // a number below zero is refused by what it is, as a number
      if constexpr (std::is_signed_v<Value>)
        if (value < 0) return done(spc_request_set_number(get(), prompt, name, static_cast<double>(value)));
      return done(spc_request_set_integer(get(), prompt, name, static_cast<uint64_t>(value)));
    }
  }
  template <class Prompt>
  Request &&prompt(const Prompt &given) && {
    return std::move(this->prompt(given));
  }
  Request &&stop(std::string_view text) && { return std::move(this->stop(text)); }
  template <class Value>
  Request &&set(const char *name, Value value, size_t prompt = SPC_ALL) && {
    return std::move(this->set(name, value, prompt));
  }
  // Set what is added to the logit of a token, of a prompt or of all.
  Request &logit_bias(int64_t token, double bias, size_t prompt = SPC_ALL) & { return done(spc_request_set_logit_bias(get(), prompt, token, bias)); }
  Request &&logit_bias(int64_t token, double bias, size_t prompt = SPC_ALL) && { return std::move(this->logit_bias(token, bias, prompt)); }
  // The adapter of a prompt, or of all, by its name in the session; "" for none.
  Request &adapter(const std::string &name, size_t prompt = SPC_ALL) & { return done(spc_request_set_adapter(get(), prompt, name.c_str())); }
  Request &&adapter(const std::string &name, size_t prompt = SPC_ALL) && { return std::move(this->adapter(name, prompt)); }
  // Set the source of a target with an encoder, of a prompt or of all; a prompt is then the beginning of the answer, and may be left out.
  Request &source(std::string_view text, size_t prompt = SPC_ALL) & { return done(spc_request_set_source(get(), prompt, text.data(), text.size())); }
  Request &source(const std::vector<int64_t> &ids, size_t prompt = SPC_ALL) & { return done(spc_request_set_source_tokens(get(), prompt, ids.data(), ids.size())); }
  template <class Source>
  Request &&source(const Source &given, size_t prompt = SPC_ALL) && {
    return std::move(this->source(given, prompt));
  }
  // Set the sound of a target that hears: samples in [-1, 1] at its own rate, or the bytes of a WAV file.
  Request &audio(const std::vector<float> &samples, size_t prompt = SPC_ALL) & { return done(spc_request_set_audio(get(), prompt, samples.data(), samples.size())); }
  Request &&audio(const std::vector<float> &samples, size_t prompt = SPC_ALL) && { return std::move(this->audio(samples, prompt)); }
  Request &audio_file(std::string_view data, size_t prompt = SPC_ALL) & { return done(spc_request_set_audio_file(get(), prompt, data.data(), data.size())); }
  Request &&audio_file(std::string_view data, size_t prompt = SPC_ALL) && { return std::move(this->audio_file(data, prompt)); }
  // An option that is a text: source_language, target_language, task.
  Request &set_text(const std::string &name, const std::string &value) & { return done(spc_request_set_text(get(), name.c_str(), value.c_str())); }
  Request &&set_text(const std::string &name, const std::string &value) && { return std::move(this->set_text(name, value)); }
  // Constrain the new text: "json_object", "json_schema", "regex", "grammar", or "choice" with a JSON list of texts.
  Request &constraint(const char *kind, std::string_view text = {}) & { return done(spc_request_set_constraint(get(), kind, text.data(), text.size())); }
  Request &&constraint(const char *kind, std::string_view text = {}) && { return std::move(this->constraint(kind, text)); }
  // A picture of a prompt: 3 bytes a pixel, row by row; or the bytes of a file.
  Request &image(const uint8_t *rgb, size_t width, size_t height, size_t prompt = 0) & { return done(spc_request_add_image(get(), prompt, rgb, width, height)); }
  Request &&image(const uint8_t *rgb, size_t width, size_t height, size_t prompt = 0) && { return std::move(this->image(rgb, width, height, prompt)); }
  Request &image_file(std::string_view data, size_t prompt = 0) & { return done(spc_request_add_image_file(get(), prompt, data.data(), data.size())); }
  Request &&image_file(std::string_view data, size_t prompt = 0) && { return std::move(this->image_file(data, prompt)); }
  // Set the detail of the picture that was added last: "low" with fewer tokens, "auto" and "high" as the target does itself.
  Request &image_detail(const std::string &detail, size_t prompt = 0) & { return done(spc_request_set_image_detail(get(), prompt, detail.c_str())); }
  Request &&image_detail(const std::string &detail, size_t prompt = 0) && { return std::move(this->image_detail(detail, prompt)); }
  spc_request *get() const noexcept { return handle_.get(); }

 private:
  Request &done(spc_error *error) {
    check(error);
    return *this;
  }
  std::unique_ptr<spc_request, Freed<&spc_request_free>> handle_;
};

// A bundle, opened: weights and tokenizer, for any number of sessions and threads.
class Bundle {
 public:
  // options: {"engine", name}, {"threads", "2"}, {"verify", "false"}, {"signed_by", file of a public key},
  // {"image_cache", "256"} (MiB), {"onnxruntime", path of its library}
  explicit Bundle(const std::string &folder, const std::vector<std::pair<std::string, std::string>> &options = {}) {
    std::vector<const char *> words;
    for (const auto &[name, value] : options) words.insert(words.end(), {name.c_str(), value.c_str()});
    words.push_back(nullptr);
    spc_bundle *made = nullptr;
    check(spc_bundle_open(folder.c_str(), words.data(), &made));
    handle_.reset(made);
  }
  std::string_view manifest() const { return spc_bundle_manifest(get()); }
  std::string_view description() const { return spc_bundle_description(get()); }
  std::vector<int64_t> encode(std::string_view text, bool special_tokens = true) const {
    std::vector<int64_t> ids(text.size() + 16);
    size_t count = ids.size();
    spc_error *error = spc_bundle_encode(get(), text.data(), text.size(), special_tokens, ids.data(), &count);
    if (error && spc_error_kind(error) == SPC_TOO_SMALL) {
      spc_error_free(error);
      ids.resize(count);
      error = spc_bundle_encode(get(), text.data(), text.size(), special_tokens, ids.data(), &count);
    }
    check(error);
    ids.resize(count);
    return ids;
  }
  std::string decode(const std::vector<int64_t> &ids) const {
    std::string text(8 * ids.size() + 16, '\0');
    size_t size = text.size();
    spc_error *error = spc_bundle_decode(get(), ids.data(), ids.size(), text.data(), &size);
    if (error && spc_error_kind(error) == SPC_TOO_SMALL) {
      spc_error_free(error);
      text.resize(size);
      error = spc_bundle_decode(get(), ids.data(), ids.size(), text.data(), &size);
    }
    check(error);
    text.resize(size);
    return text;
  }
  spc_bundle *get() const noexcept { return handle_.get(); }

 private:
  std::unique_ptr<spc_bundle, Freed<&spc_bundle_free>> handle_;
};

// Result of a row.
class Result {
 public:
  explicit Result(spc_result *result) : handle_(result) {}
  std::string_view json() const { return spc_result_json(handle_.get()); }
  std::vector<int64_t> tokens() const {
    const int64_t *ids = nullptr;
    size_t count = 0;
    spc_result_tokens(handle_.get(), &ids, &count);
    return {ids, ids + count};
  }

 private:
  std::unique_ptr<spc_result, Freed<&spc_result_free>> handle_;
};

// Tokens, and of each its parent: the number of an earlier draft, from 0 on, or -1 where it follows the text.
struct Drafts {
  std::vector<int64_t> tokens, parents;
};

// The drafts behind a text, the best first: more than a round verifies are left out.
using Proposer = std::function<Drafts(const std::vector<int64_t> &text)>;

// One generation at a time, on one thread at a time.
class Session {
 public:
  explicit Session(const Bundle &bundle) {
    spc_session *made = nullptr;
    check(spc_session_create(bundle.get(), &made));
    handle_.reset(made);
  }
  // Drafts of the host, for bundles of drafter.kind retrieval; empty for the bundle's own index. A generation under way is
  // dropped. What the proposer throws leaves `step`.
  void propose_with(Proposer proposer) {
    auto asked = std::make_unique<Asked>(Asked{std::move(proposer), nullptr});
    check(spc_session_propose(get(), asked->proposer ? &Asked::call : nullptr, asked.get()));
    asked_ = std::move(asked);
  }
  // Persistent drafter state: reset, saved into a file, or loaded from one.
  void reset_kept() { check(spc_session_reset_kept(get())); }
  void save_kept(const std::string &path) const { check(spc_session_save_kept(get(), path.c_str())); }
  void load_kept(const std::string &path) { check(spc_session_load_kept(get(), path.c_str())); }
  // Adapters of the target, in slots of the bundle. A generation under way is dropped.
  // The text and the states of the latest generation of one prompt, in a file; `load` goes on from there, and returns the text.
  void save(const std::string &path) { check(spc_session_save(get(), path.c_str())); }
  std::vector<int64_t> load(const std::string &path) {
    const int64_t *ids = nullptr;
    size_t count = 0;
    check(spc_session_load(get(), path.c_str(), &ids, &count));
    return {ids, ids + count};
  }
  void load_adapter(const std::string &name, const std::string &folder) { check(spc_session_load_adapter(get(), name.c_str(), folder.c_str())); }
  void unload_adapter(const std::string &name) { check(spc_session_unload_adapter(get(), name.c_str())); }
  void start(const Request &request) { check(spc_session_start(get(), request.get())); }
  // One round; false when every row has ended.
  bool step() {
    int done = 0;
    std::unique_ptr<spc_error, decltype(&spc_error_free)> error(spc_session_step(get(), &done), &spc_error_free);
    if (asked_ && asked_->thrown) std::rethrow_exception(std::exchange(asked_->thrown, nullptr));
    check(error.release());
    return !done;
  }
  size_t rows() const { return spc_session_rows(get()); }
  // Return the text that the last step has added; valid until the next one.
  std::string_view new_text(size_t row = 0) const {
    const char *text = nullptr;
    size_t size = 0;
    check(spc_session_new_text(get(), row, &text, &size));
    return {text, size};
  }
  std::vector<int64_t> new_tokens(size_t row = 0) const {
    const int64_t *ids = nullptr;
    size_t count = 0;
    check(spc_session_new_tokens(get(), row, &ids, &count));
    return {ids, ids + count};
  }
  // A whole generation; `piece` gets the first row's text as it comes.
  template <class OnPiece>
  Result run(const Request &request, OnPiece piece) {
    start(request);
    for (bool going = true; going;) {
      going = step();
      if (const std::string_view text = new_text(); !text.empty()) piece(text);
    }
    return result();
  }
  Result run(const Request &request) {
    return run(request, [](std::string_view) {});
  }
  Result result(size_t row = 0) const {
    spc_result *made = nullptr;
    check(spc_session_result(get(), row, &made));
    return Result(made);
  }
  void cancel() const noexcept { spc_session_cancel(get()); }  // from any thread
  spc_session *get() const noexcept { return handle_.get(); }

 private:
  // A proposer as the C ABI calls it, and what it has thrown.
  struct Asked {
    Proposer proposer;
    std::exception_ptr thrown;

    static int64_t call(void *user, const int64_t *tokens, size_t count, int64_t *drafts, int64_t *parents, size_t room) noexcept {
      Asked &asked = *static_cast<Asked *>(user);
      try {
        const Drafts found = asked.proposer({tokens, tokens + count});
        if (found.tokens.size() != found.parents.size()) throw std::invalid_argument("drafts need one parent for each token");
        const auto kept = static_cast<std::ptrdiff_t>(std::min(room, found.tokens.size()));
        std::copy_n(found.tokens.begin(), kept, drafts);
        std::copy_n(found.parents.begin(), kept, parents);
        return kept;
      } catch (...) {
        asked.thrown = std::current_exception();
        return -1;
      }
    }
  };

  std::unique_ptr<Asked> asked_;  // outlives the handle
  std::unique_ptr<spc_session, Freed<&spc_session_free>> handle_;
};

// Drafts by a bundle with another tokenizer, over texts, as Python's `speccompile.runtime.TextProposer`, but that its session
// reads the whole text every round. Copies share the session. Both bundles have tokenizers, and outlive the proposer.
class TextProposer {
 public:
  // tokens: of the drafter a round, 1 or more.
  TextProposer(const Bundle &drafter, const Bundle &target, int64_t tokens = 4)
      : drafter_(&drafter), target_(&target), session_(std::make_shared<Session>(drafter)), tokens_(tokens) {}

  Drafts operator()(const std::vector<int64_t> &text) const {
    const std::string shown = target_->decode(text);
    if (shown.empty() || is_partial(shown)) return {};
    std::string written;
    try {
      session_->run(Request().prompt(drafter_->encode(shown)).set("max_new_tokens", tokens_).set("temperature", 0.0),
                    [&written](std::string_view piece) { written += piece; });
    } catch (const Error &error) {
      if (error.kind == SPC_PROMPT) return {};  // longer than the drafter's capacity
      throw;
    }
    while (is_partial(written)) written.resize(written.size() - kPartial.size());
    Drafts found{retokenized(text, written), {}};
    for (size_t draft = 0; draft < found.tokens.size(); ++draft) found.parents.push_back(static_cast<int64_t>(draft) - 1);
    return found;
  }

 private:
  // Tokens of the text that are read again with the drafts.
  static constexpr std::ptrdiff_t kLookbehind = 10;
  // U+FFFD: bytes that are no character, or not all of one yet.
  static constexpr std::string_view kPartial = "\xEF\xBF\xBD";

  static bool is_partial(std::string_view text) {
    return text.size() >= kPartial.size() && text.substr(text.size() - kPartial.size()) == kPartial;
  }
  // The target's tokens of a text after another one; none if the end of that would be another one.
  std::vector<int64_t> retokenized(const std::vector<int64_t> &text, const std::string &written) const {
    const auto size = static_cast<std::ptrdiff_t>(text.size());
    const std::string before = target_->decode({text.end() - std::min(kLookbehind, size), text.end()});
    const auto old = target_->encode(before, false), both = target_->encode(before + written, false);
    if (both.size() < old.size() || !std::equal(old.begin(), old.end(), both.begin())) return {};
    return {both.begin() + static_cast<std::ptrdiff_t>(old.size()), both.end()};
  }

  const Bundle *drafter_, *target_;
  std::shared_ptr<Session> session_;
  int64_t tokens_;
};

}  // namespace speccompile
