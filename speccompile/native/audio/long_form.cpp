#include "long_form.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "../errors.h"
#include "../runtime/documented.h"
#include "../runtime/generation_result.h"
#include "../runtime/sources.h"
#include "../words.h"
#include "subtitles.h"

namespace spc::audio {
namespace {

constexpr double kCool = 0.5;  // temperature from which on a window's text is no context of the next one
constexpr const char* kTranscribe = "transcribe";

TokenIds token_ids(const Json& generation) {
  TokenIds found;
  for (const Json& token : generation["token_ids"].list()) found.push_back(token.integer());
  return found;
}

std::vector<int64_t> tokens_of(const std::map<std::string, int64_t>& languages) {
  std::vector<int64_t> found;
  for (const auto& each : languages) found.push_back(each.second);
  return found;
}

}  // namespace

void check_hears(const Manifest& manifest) {
  if (!manifest.source || !manifest.source->audio)
    throw Error(Kind::kUsage, "this bundle's target does not hear: it cannot transcribe", "build one of a Whisper, and give that");
}

void check_thresholds(const LongForm& form) {
  const std::pair<const char*, std::optional<double>> given[] = {{"compression_ratio_threshold", form.compression_ratio_threshold},
                                                                 {"logprob_threshold", form.logprob_threshold},
                                                                 {"no_speech_threshold", form.no_speech_threshold}};
  for (const auto& [name, value] : given)
    if (value && std::isnan(*value)) throw Error(Kind::kUsage, std::string(name) + ": received nan, expected a number or None", "None switches it off");
}

Transcription::Transcription(Decode decode, const Bundle& bundle, HeardSound sound, std::optional<std::string> language, Request options, LongForm form)
    : decode_(std::move(decode)),
      bundle_(bundle),
      about_(*bundle.manifest().source),
      audio_(*about_.audio),
      sound_(std::move(sound)),
      language_(std::move(language)),
      form_(std::move(form)),
      is_timed_(form_.timestamps || sound_.features.frames > audio_.frames),
      options_(std::move(options)),
      task_(options_.task.value_or(kTranscribe)),
      depends_(form_.condition_on_previous_text) {
  const Manifest& manifest = bundle.manifest();
  check_length();
  rules_ = TokenRules::of(manifest, is_timed_);
  starts_ = TokenRules::only(tokens_of(about_.languages), manifest.vocabulary_size);
  if (rules_->times()) first_ = rules_->times()->first;
  const auto any = about_.languages.begin();
  const std::optional<int64_t> some = any == about_.languages.end() ? std::nullopt : std::optional<int64_t>(any->second);
  transcript_start(about_, language_ ? token_of_language(about_, *language_, "source_language") : some, options_.task);  // refuses an unknown task
  prompt_ = initial_prompt();
}

// Throws Error(kPrompt) for a sound that has to be cut at times, of a target that writes none.
void Transcription::check_length() const {
  if (form_.timestamps || !is_timed_ || audio_.first_timestamp(bundle_.manifest().vocabulary_size)) return;
  char had[32], most[32];
  std::snprintf(had, sizeof had, "%.1f", sound_.seconds);
  std::snprintf(most, sizeof most, "%g", static_cast<double>(audio_.frames * audio_.hop) / static_cast<double>(audio_.sampling_rate));
  throw Error(Kind::kPrompt,
              std::string("audio: received ") + had + " s, expected at most " + most +
                  " s, which the encoder hears at once: this target writes no times, at which a longer sound is cut",
              "cut it into pieces, in pauses, and transcribe each");
}

// Return the tokens of the initial prompt. Throws Error(kUsage) where the target has no place for them.
TokenIds Transcription::initial_prompt() const {
  const std::string asked = stripped(form_.initial_prompt.value_or(""));
  if (asked.empty()) return {};
  if (!bundle_.text() || !audio_.previous)
    throw Error(Kind::kUsage, std::string("initial_prompt: this bundle has no ") + (bundle_.text() ? "token for the text before a sound" : "tokenizer"),
                "leave initial_prompt out");
  return bundle_.text()->encode(" " + asked, false);
}

std::optional<Segment> Transcription::next() {
  while (shown_ == found_.size() && seek_ < sound_.features.frames) write_window();
  return shown_ == found_.size() ? std::nullopt : std::optional<Segment>(found_[shown_++]);
}

void Transcription::finish() {
  while (next()) continue;
}

void Transcription::write_window() {
  const int64_t frames = std::min(audio_.frames, sound_.features.frames - seek_);
  options_.features = window(frames);
  const TokenIds before = this->before();
  if (!language_ && !about_.languages.empty()) language_ = detected();
  const std::optional<double> silence = this->silence(before);
  const Attempt found = attempt(before, silence);
  depends_ = form_.condition_on_previous_text && found.temperature < kCool;
  if (found.is_silent) {
    seek_ += frames;
    return;
  }
  const CutWindow cut = cut_at_times(found.tokens, first_, frames);
  for (const TimedPart& part : cut.parts) found_.push_back(segment(part, found, silence));
  seek_ += cut.step;
}

// Return the features of the window at hand, silence behind `frames`.
std::shared_ptr<const Features> Transcription::window(int64_t frames) const {
  auto part = std::make_shared<Features>(Features{audio_.mels, audio_.frames, std::vector<float>(static_cast<size_t>(audio_.mels * audio_.frames))});
  for (int64_t mel = 0; mel < audio_.mels; ++mel)
    std::copy_n(sound_.features.values.begin() + mel * sound_.features.frames + seek_, frames, part->values.begin() + mel * audio_.frames);
  return part;
}

// Return the tokens of the text before a window.
TokenIds Transcription::before() const {
  std::vector<TokenIds> texts;
  if (depends_ && !prompt_.empty()) texts.push_back(prompt_);
  if (depends_)
    for (const Segment& each : found_) texts.push_back(each.token_ids);
  TokenIds tokens = prompt_;
  if (!texts.empty()) tokens = previous_tokens(texts, first_.value_or(bundle_.manifest().vocabulary_size));
  if (texts.empty() && tokens.empty()) return {};
  const auto most = static_cast<size_t>(std::max<int64_t>(0, bundle_.manifest().max_length / 2 - 1));
  tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(std::min(most, tokens.size())));
  if (audio_.previous) tokens.insert(tokens.begin(), *audio_.previous);
  return tokens;
}

// Write the most probable language behind the start token. Return what has read the logits of all tokens there.
std::shared_ptr<RuleMatcher> Transcription::probe(const TokenIds& before, TokenIds& written) const {
  Request alone = options_;
  TokenIds prompt = before;
  prompt.push_back(about_.start_token_id);
  alone.prompts = {std::move(prompt)};
  alone.rules = std::make_shared<RuleMatcher>(starts_, true);
  alone.set(Request::kAll, "temperature", Value::of(0.0));
  for (const char* const one : {"max_new_tokens", "autoregressive", "ignore_eos"}) alone.set(Request::kAll, one, Value::of(uint64_t{1}));
  written = token_ids(decode_(alone));
  if (written.empty()) throw Error(Kind::kUsage, "this bundle's caches hold no token behind the start of a transcript", "build it with a larger cache.max_length");
  return alone.rules;
}

std::string Transcription::detected() const {
  TokenIds written;
  probe({}, written);
  for (const auto& [name, token] : about_.languages)
    if (token == written.at(0)) return name;
  throw Error(Kind::kDefect, "the token " + std::to_string(written[0]) + " is no language");
}

// Return the probability that nothing is spoken in a window; none unless a threshold needs it.
std::optional<double> Transcription::silence(const TokenIds& before) const {
  if (!form_.no_speech_threshold || !audio_.first_timestamp(bundle_.manifest().vocabulary_size)) return std::nullopt;
  TokenIds written;
  const std::vector<float> logits = probe(before, written)->first_logits;
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float each : logits) sum += std::exp(each - best);
  return std::exp(logits.at(static_cast<size_t>(*audio_.no_timestamps - 1)) - best) / sum;  // the token of silence stands before it
}

// Return whether a text is to be written again at the next temperature. is_silent: set to whether the window is silent.
bool Transcription::is_improbable(const Attempt& tried, std::optional<double> silence, bool& is_silent) const {
  const bool is_unlikely = form_.logprob_threshold && tried.logprob < *form_.logprob_threshold;
  const bool repeats = form_.compression_ratio_threshold && tried.ratio > *form_.compression_ratio_threshold;
  is_silent = silence && *silence > *form_.no_speech_threshold && (is_unlikely || !form_.logprob_threshold);
  return !is_silent && (is_unlikely || repeats);
}

// Return the text of a window, at the first temperature at which it is plausible or at the last.
Transcription::Attempt Transcription::attempt(const TokenIds& before, std::optional<double> silence) {
  const Manifest& manifest = bundle_.manifest();
  TokenIds prompt = before;
  const std::optional<int64_t> language = language_ ? std::optional<int64_t>(about_.languages.at(*language_)) : std::nullopt;
  const TokenIds start = transcript_start(about_, language, options_.task, is_timed_);
  prompt.insert(prompt.end(), start.begin(), start.end());
  const auto room = static_cast<uint64_t>(std::max<int64_t>(1, manifest.max_length - static_cast<int64_t>(prompt.size())));
  Request asked = options_;
  asked.prompts = {prompt};
  const uint64_t most = asked.max_new_tokens.all ? asked.max_new_tokens.all->whole : room;
  asked.set(Request::kAll, "max_new_tokens", Value::of(std::min(most, room)));
  Attempt found;
  for (size_t turn = 0; turn < form_.temperatures.size(); ++turn) {
    found.temperature = form_.temperatures[turn];
    asked.rules = std::make_shared<RuleMatcher>(rules_, true);
    asked.set(Request::kAll, "temperature", Value::of(found.temperature));
    Json generation = decode_(asked);
    found.tokens = token_ids(generation);
    const std::vector<double>& scores = asked.rules->scores;
    double sum = 0;
    for (size_t i = 0; i < found.tokens.size(); ++i) sum += scores.at(i);
    found.ratio = found.tokens.empty() ? 0.0 : compression_ratio(found.tokens, manifest.vocabulary_size);
    found.logprob = found.tokens.empty() ? 0.0 : sum / static_cast<double>(found.tokens.size());
    const bool is_last = !is_improbable(found, silence, found.is_silent) || turn + 1 == form_.temperatures.size();
    if (!is_last) continue;
    generations_.push_back(std::move(generation));
    break;
  }
  const std::vector<int64_t>& ends = manifest.eos_token_ids;
  if (!found.tokens.empty() && std::find(ends.begin(), ends.end(), found.tokens.back()) != ends.end()) found.tokens.pop_back();
  return found;
}

Segment Transcription::segment(const TimedPart& part, const Attempt& attempt, std::optional<double> silence) {
  const double frame = static_cast<double>(audio_.hop) / static_cast<double>(audio_.sampling_rate), seek = static_cast<double>(seek_) * frame;
  const auto at = [&](int64_t row) { return rounded(seek + static_cast<double>(kFramesPerRow) * frame * static_cast<double>(row)); };
  return {at(part.start), at(part.end), decoded(part.tokens), part.tokens, rounded(seek), attempt.temperature, attempt.logprob, attempt.ratio, silence};
}

// Return the text of a segment behind that of the last one: some tokenizers write spaces between words.
std::optional<std::string> Transcription::decoded(const TokenIds& tokens) {
  if (!bundle_.text()) return std::nullopt;
  TokenIds words, all = last_words_;
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(words), [&](int64_t token) { return !first_ || token < *first_; });
  all.insert(all.end(), words.begin(), words.end());
  const std::string text = bundle_.text()->decode(all), before = bundle_.text()->decode(last_words_);
  if (!words.empty()) last_words_ = std::move(words);
  return starts_with(text, before) ? text.substr(before.size()) : text;
}

std::optional<std::string> Transcription::text() const {
  if (!bundle_.text()) return std::nullopt;
  std::string all;
  for (const Segment& each : found_) all += each.text.value_or("");
  return stripped(all);
}

Json Transcription::generation() const {
  Json whole = generations_.at(0);
  if (generations_.size() == 1) return whole;
  Json::List tokens;
  int64_t rounds = 0;
  double seconds = 0;
  for (const Json& each : generations_) {
    tokens.insert(tokens.end(), each["token_ids"].list().begin(), each["token_ids"].list().end());
    rounds += each["rounds"].integer();
    seconds += each["seconds"].number();
  }
  const auto count = static_cast<double>(tokens.size());
  whole.set("token_ids", std::move(tokens));
  whole.set("rounds", rounds);
  whole.set("mean_accepted", rounds ? Json((count - static_cast<double>(generations_.size())) / static_cast<double>(rounds)) : Json());
  whole.set("seconds", seconds);
  whole.set("tokens_per_second", seconds > 0 ? count / seconds : 0.0);
  whole.set("finish_reason", generations_.back()["finish_reason"]);
  whole.set("estimated_speedup", Json());
  return whole;
}

Json Transcription::to_json() const {
  Json::List parts;
  for (const Segment& each : found_) parts.push_back(each.to_json());
  Json shown = documented_fields(generation());
  Json::Object& fields = shown.object();
  const auto cached = [](const Json::Member& each) { return each.first == "cached_tokens"; };
  fields.erase(std::remove_if(fields.begin(), fields.end(), cached), fields.end());  // what windows kept of those before
  shown.set("duration", rounded(sound_.seconds));
  shown.set("segments", std::move(parts));
  const std::optional<std::string> text = this->text();
  shown.set("text", text ? Json(*text) : Json());
  shown.set("language", language_ ? Json(*language_) : Json());
  shown.set("task", task_);
  return shown;
}

}  // namespace spc::audio
