// Transcription window by window: Whisper's sequential algorithm, with fallback to higher temperatures (runtime/transcription/long_form.py).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../runtime/bundle.h"
#include "reader.h"
#include "rules.h"
#include "segments.h"

namespace spc::audio {

// Generation of a request for one sequence, to its end. Returns the object of `generate --json`, with all fields of a generation.
using Decode = std::function<Json(const Request& request)>;

// Options of a transcript besides those of a generation; a threshold that is none is switched off.
struct LongForm {
  // Write segments with times. Sounds that are longer than a window always have them.
  bool timestamps = false;
  // Text before the sound, whose last tokens stand before every window, or before the first one with `condition_on_previous_text`.
  std::optional<std::string> initial_prompt = {};
  bool condition_on_previous_text = false;
  std::optional<double> compression_ratio_threshold = 1.35, logprob_threshold = -1.0, no_speech_threshold = 0.6;
  // Temperatures to try in turn, at least one.
  std::vector<double> temperatures = {0.0};
};

// Throws Error(kUsage) for a bundle whose target does not hear.
void check_hears(const Manifest& manifest);
// Throws Error(kUsage) for a threshold that is no number.
void check_thresholds(const LongForm& form);

// Segments of one sound, transcribed on demand.
class Transcription {
 public:
  // bundle: of a target that hears; it outlives this. language: none to detect it. options: those of every window. Throws Error(kUsage)
  // or Error(kPrompt) for what the bundle cannot take.
  Transcription(Decode decode, const Bundle& bundle, HeardSound sound, std::optional<std::string> language, Request options, LongForm form);

  // Transcribe until there is a segment. Return none at the end.
  std::optional<Segment> next();
  // Transcribe the rest. The functions below then return the whole transcript.
  void finish();

  const std::vector<Segment>& segments() const { return found_; }
  // Return the text without blanks around it, none without a tokenizer.
  std::optional<std::string> text() const;
  // Return the language that was given or detected, none of a target for one language.
  const std::optional<std::string>& language() const { return language_; }
  const std::string& task() const { return task_; }
  double seconds() const { return sound_.seconds; }
  // Return the generations of all windows as one, without those that a higher temperature replaced.
  Json generation() const;
  // Return the object of `transcribe --json`.
  Json to_json() const;

 private:
  // Text of a window. ratio, logprob: see Segment.
  struct Attempt {
    TokenIds tokens;
    double temperature = 0, ratio = 0, logprob = 0;
    bool is_silent = false;
  };

  void check_length() const;
  TokenIds initial_prompt() const;
  void write_window();
  TokenIds before() const;
  std::shared_ptr<const Features> window(int64_t frames) const;
  std::shared_ptr<RuleMatcher> probe(const TokenIds& before, TokenIds& written) const;
  std::string detected() const;
  std::optional<double> silence(const TokenIds& before) const;
  Attempt attempt(const TokenIds& before, std::optional<double> silence);
  bool is_improbable(const Attempt& tried, std::optional<double> silence, bool& is_silent) const;
  Segment segment(const TimedPart& part, const Attempt& attempt, std::optional<double> silence);
  std::optional<std::string> decoded(const TokenIds& tokens);

  const Decode decode_;
  const Bundle& bundle_;
  const SourceSection& about_;
  const AudioSection& audio_;
  const HeardSound sound_;
  std::optional<std::string> language_;
  const LongForm form_;
  const bool is_timed_;
  Request options_;
  const std::string task_;
  std::shared_ptr<const TokenRules> rules_, starts_;  // of the text; and of the token behind the start, a language
  std::optional<int64_t> first_;                      // token of the time 0.00; none for a text without times
  TokenIds prompt_, last_words_;
  int64_t seek_ = 0;
  bool depends_;
  std::vector<Json> generations_;
  std::vector<Segment> found_;
  size_t shown_ = 0;
};

}  // namespace spc::audio
