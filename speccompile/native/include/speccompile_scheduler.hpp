// Continuous batching in C++17, over the C ABI alone: see speccompile.hpp.
//
//   auto scheduler = speccompile::Scheduler(bundle);
//   auto one = scheduler.submit(speccompile::Request().prompt("def main("));    // on any thread
//   while (auto delta = one.next()) std::cout << delta->text() << std::flush;
//   std::future<std::vector<speccompile::Result>> other = scheduler.async(speccompile::Request().prompt("import os"));
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "speccompile.hpp"

namespace speccompile {

// New output of one sequence of a submission.
class Delta {
 public:
  explicit Delta(spc_delta *delta) : handle_(delta) {}
  size_t sequence() const { return spc_delta_sequence(handle_.get()); }
  std::string_view text() const {
    const char *text = nullptr;
    size_t size = 0;
    spc_delta_text(handle_.get(), &text, &size);
    return {text, size};
  }
  std::vector<int64_t> tokens() const {
    const int64_t *ids = nullptr;
    size_t count = 0;
    spc_delta_tokens(handle_.get(), &ids, &count);
    return {ids, ids + count};
  }
  // The whole sequence, with its last delta.
  std::optional<Result> result() const {
    spc_result *found = nullptr;
    check(spc_delta_result(handle_.get(), &found));
    if (!found) return std::nullopt;
    return Result(found);
  }

 private:
  std::unique_ptr<spc_delta, Freed<&spc_delta_free>> handle_;
};

// A request that a scheduler has taken. What has not ended when it goes is cancelled.
class Submission {
 public:
  explicit Submission(spc_submission *submission) : handle_(submission) {}
  ~Submission() {
    if (handle_ && wake_) spc_error_free(spc_submission_on_ready(get(), nullptr, nullptr));  // before what it calls goes
  }
  Submission(Submission &&) = default;
  Submission &operator=(Submission &&) = delete;

  size_t sequences() const { return spc_submission_sequences(get()); }
  // The next delta of any sequence; none after the last one. Throws what ended the request.
  std::optional<Delta> next() const { return next(-1).first; }
  // The same, but wait for at most `seconds`; the second is whether the last delta was taken before.
  std::pair<std::optional<Delta>, bool> next(double seconds) const {
    spc_delta *found = nullptr;
    int done = 0;
    check(spc_submission_next(get(), seconds, &found, &done));
    if (!found) return {std::nullopt, done != 0};
    return {Delta(found), false};
  }
  // All sequences, in their order; waits for them.
  std::vector<Result> results() const {
    std::vector<std::optional<Result>> found(sequences());
    while (std::optional<Delta> delta = next())
      if (std::optional<Result> result = delta->result()) found[delta->sequence()] = std::move(result);
    std::vector<Result> all;
    for (std::optional<Result> &each : found)
      if (each) all.push_back(std::move(*each));
    return all;
  }
  // wake: called now, and on the scheduler's thread whenever there is something for `next`; it must not block or throw.
  void on_ready(std::function<void()> wake) {
    auto held = std::make_unique<std::function<void()>>(std::move(wake));
    check(spc_submission_on_ready(get(), *held ? &call : nullptr, held.get()));
    wake_ = std::move(held);
  }
  void cancel() const noexcept { spc_submission_cancel(get()); }
  spc_submission *get() const noexcept { return handle_.get(); }

 private:
  static void call(void *user) { (*static_cast<std::function<void()> *>(user))(); }

  std::unique_ptr<std::function<void()>> wake_;
  std::unique_ptr<spc_submission, Freed<&spc_submission_free>> handle_;
};

// State of a request: it is gone once the request has ended.
class Promised {
 public:
  static std::future<std::vector<Result>> begin(Submission submission) {
    auto *const made = new Promised(std::move(submission));
    std::future<std::vector<Result>> future = made->promise_.get_future();
    check(spc_submission_on_ready(made->submission_.get(), &wake, made));  // which may be its end already
    return future;
  }

 private:
  explicit Promised(Submission submission) : submission_(std::move(submission)), found_(submission_.sequences()) {}

  // On the scheduler's thread, which is not held up: nothing is waited for.
  static void wake(void *user) noexcept {
    auto *const self = static_cast<Promised *>(user);
    if (self->take()) delete self;
  }

  // Take what has come. Returns whether that was the end.
  bool take() noexcept {
    try {
      for (;;) {
        const auto [delta, done] = submission_.next(0);
        if (delta) {
          if (std::optional<Result> result = delta->result()) found_[delta->sequence()] = std::move(result);
          continue;
        }
        if (!done) return false;
        std::vector<Result> all;
        for (std::optional<Result> &each : found_)
          if (each) all.push_back(std::move(*each));
        promise_.set_value(std::move(all));
        return true;
      }
    } catch (...) {
      promise_.set_exception(std::current_exception());
      return true;
    }
  }

  Submission submission_;
  std::vector<std::optional<Result>> found_;
  std::promise<std::vector<Result>> promise_;
};

// A thread that decodes for requests of any threads. At its end it cancels what is left.
class Scheduler {
 public:
  using Options = std::vector<std::pair<std::string, std::string>>;

  // options: {"requests", "64"}, {"client_rows", "2"}, {"adapter", "poet=adapters/poet"}, ..: see spc_scheduler_create
  explicit Scheduler(const Bundle &bundle, const Options &options = {}) {
    spc_scheduler *made = nullptr;
    check(spc_scheduler_create(bundle.get(), words_of(options).data(), &made));
    handle_.reset(made);
  }
  // request: of one prompt. terms: {"client", name}, {"salt", text}, {"reuse", "false"}
  Submission submit(const Request &request, const Options &terms = {}) const {
    spc_submission *made = nullptr;
    check(spc_scheduler_submit(handle_.get(), request.get(), words_of(terms).data(), &made));
    return Submission(made);
  }
  // All sequences of a request, in their order, once they have ended: no thread waits for them. Its `get` throws what ended the
  // request; at the end of the scheduler what is left has ended as cancelled.
  std::future<std::vector<Result>> async(const Request &request, const Options &terms = {}) const {
    return Promised::begin(submit(request, terms));
  }
  // Take no more requests, and wait for the present ones, for at most `seconds`; below 0 for ever.
  void close(double seconds = -1) const { check(spc_scheduler_close(handle_.get(), seconds)); }
  // Numbers since the beginning, as a JSON object.
  std::string stats() const {
    spc_result *found = nullptr;
    check(spc_scheduler_stats(handle_.get(), &found));
    return std::string(Result(found).json());
  }
  spc_scheduler *get() const noexcept { return handle_.get(); }

 private:
  static std::vector<const char *> words_of(const Options &options) {
    std::vector<const char *> words;
    for (const auto &[name, value] : options) words.insert(words.end(), {name.c_str(), value.c_str()});
    words.push_back(nullptr);
    return words;
  }

  std::unique_ptr<spc_scheduler, Freed<&spc_scheduler_free>> handle_;
};

}  // namespace speccompile
