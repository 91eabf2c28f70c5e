// Sources and audio of a benchmark's questions, for targets with an encoder (speccompile/measure/bench/sources.py).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "../audio/mel.h"
#include "../runtime/session.h"
#include "bench_prompts.h"

namespace spc::cli {

// Reader of the questions' audio. It computes features and detects the language once for each. Questions and the session outlive it.
class QuestionSources {
 public:
  QuestionSources(std::shared_ptr<const Bundle> bundle, Session& session) : bundle_(std::move(bundle)), session_(session) {}

  // Return whether a question is one for a target with an encoder, or asked of one.
  bool takes(const Question& question) const { return question.given != "prompt" || bundle_->manifest().source; }
  // Throws Error(kPrompt) for what the bundle's target does not read, Error(kUsage) for a language that it does not know.
  void check(const Question& question);
  // Set the source or the sound of a request, after `check`.
  void give(const Question& question, Request& request);

 private:
  struct Heard {
    std::shared_ptr<const audio::Features> features;
    std::optional<std::string> language;
  };
  void check_kind(const Question& question) const;
  const Heard& heard(const Question& question);

  const std::shared_ptr<const Bundle> bundle_;
  Session& session_;
  std::map<const Question*, Heard> sounds_;
};

}  // namespace spc::cli
