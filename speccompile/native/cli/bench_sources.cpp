#include "bench_sources.h"

#include "../audio/long_form.h"
#include "../audio/wav.h"
#include "../errors.h"
#include "../files.h"
#include "../runtime/sources.h"

namespace spc::cli {
namespace {

bool is_sound(const Question& question) { return question.given == names::kAudio; }

}  // namespace

void QuestionSources::check_kind(const Question& question) const {
  const std::optional<SourceSection>& about = bundle_->manifest().source;
  if (question.category)
    throw Error(Kind::kPrompt,
                "received a question of category " + python_repr(*question.category) + ", expected a source: this bundle's target has an encoder, and no conversation",
                std::string("write sources as lines of ") + kGivenForms);
  const bool hears = about && about->audio;
  if (about && hears == is_sound(question)) return;
  const std::string received = is_sound(question) ? "a sound" : question.given == "prompt" ? "a prompt" : "a source";
  const std::string wanted = hears ? "a sound" : about ? "a source" : "a prompt";
  throw Error(Kind::kPrompt, "received " + received + ", expected " + wanted + ", as this bundle's target reads",
              std::string("write lines of ") + (about ? kGivenForms : R"({"prompt": "text"})"));
}

void QuestionSources::check(const Question& question) {
  check_kind(question);
  Request request;
  give(question, request);
  resolve_sources(request, *bundle_);
}

void QuestionSources::give(const Question& question, Request& request) {
  request.source_language = question.source_language;
  request.target_language = question.target_language;
  if (is_sound(question)) {
    const Heard& sound = heard(question);
    request.features = sound.features;
    request.prompts = {std::string()};
    request.source_language = sound.language;
  } else {
    request.source = question.turns[0];
  }
}

const QuestionSources::Heard& QuestionSources::heard(const Question& question) {
  if (const auto found = sounds_.find(&question); found != sounds_.end()) return found->second;
  const SourceSection& about = *bundle_->manifest().source;
  const audio::Sound sound = audio::read_wav(plain_path(std::get<std::string>(question.turns[0])));
  const auto features = std::make_shared<const audio::Features>(audio::features_of(sound, *about.audio));
  std::optional<std::string> language = question.source_language;
  if (!language && !about.languages.empty()) {
    const auto decode = [&](const Request& request) {
      session_.start(request);
      while (session_.step()) continue;
      return session_.result(0);
    };
    Request one;
    one.set(Request::kAll, "max_new_tokens", Value::of(uint64_t{1}));
    audio::Transcription writing(decode, *bundle_, {*features, 0}, std::nullopt, std::move(one), {});
    writing.next();
    language = writing.language();
  }
  return sounds_[&question] = {features, language};
}

}  // namespace spc::cli
