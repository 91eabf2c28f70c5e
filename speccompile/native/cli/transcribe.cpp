// `speccompile-native transcribe`: write down what is spoken in a sound.
#include <optional>
#include <string>
#include <vector>

#include "../audio/long_form.h"
#include "../audio/subtitles.h"
#include "../errors.h"
#include "../files.h"
#include "../progress.h"
#include "../runtime/session.h"
#include "../runtime/sources.h"
#include "../words.h"
#include "common.h"
#include "exit_codes.h"
#include "generation_output.h"

namespace spc::cli {
namespace {

// Return the numbers in a text, between commas. Throws Error(kUsage) where there are other things.
std::vector<double> numbers_of(const std::string& option, const std::string& text) {
  std::vector<double> found;
  for (const std::string& part : split(text, ',')) {
    const std::optional<double> value = read_real(part);
    if (!value) throw Error(Kind::kUsage, option + ": received " + python_repr(text) + ", expected numbers", "write them with commas, as in 0,0.2,0.4");
    found.push_back(*value);
  }
  return found;
}

void read_threshold(const Arguments& given, const std::string& option, std::optional<double>& threshold) {
  if (!given.has(option)) return;
  const std::string text = given.text(option);
  const std::optional<double> value = read_real(text);
  if (text != "none" && !value) throw Error(Kind::kUsage, option + ": received " + python_repr(text) + ", expected a number or none", "none switches it off");
  threshold = text == "none" ? std::nullopt : value;
}

audio::LongForm form_of(const Arguments& given) {
  audio::LongForm form;
  if (given.has("--temperature")) form.temperatures = numbers_of("--temperature", given.text("--temperature"));
  read_threshold(given, "--compression-ratio-threshold", form.compression_ratio_threshold);
  read_threshold(given, "--logprob-threshold", form.logprob_threshold);
  read_threshold(given, "--no-speech-threshold", form.no_speech_threshold);
  if (given.has("--initial-prompt")) form.initial_prompt = given.text("--initial-prompt");
  form.condition_on_previous_text = given.has("--condition-on-previous-text");
  return form;
}

Request options_of(const Arguments& given) {
  Request request;
  if (given.has("--max-new-tokens")) request.set(Request::kAll, "max_new_tokens", Value::of(static_cast<uint64_t>(given.count("--max-new-tokens", 1))));
  if (const std::optional<Value> seed = given.number("--seed")) request.set(Request::kAll, "seed", *seed);
  request.set(Request::kAll, "autoregressive", Value::of(uint64_t{given.has("--autoregressive")}));
  request.set(Request::kAll, "adaptive", Value::of(uint64_t{!given.has("--fixed-draft-length")}));
  request.task = given.has("--task") ? given.text("--task") : "transcribe";
  return request;
}

// Print segments as they come. timed: also in the form text with their times.
void write(audio::Transcription& writing, const std::string& form, bool timed) {
  if (form == "vtt") write_stdout(audio::kVttStart);
  size_t number = 0;
  while (const std::optional<audio::Segment> segment = writing.next()) {
    ++number;
    if (form != "text") {
      write_stdout(audio::subtitle(form, number, *segment));
    } else if (timed) {
      write_stdout(audio::timed_line(*segment));
    } else if (!segment->text) {
      write_stdout((number > 1 ? "," : "") + audio::shown(*segment));
    } else {
      write_stdout(number > 1 ? *segment->text : audio::stripped_left(*segment->text));
    }
  }
  if (form == "text" && !timed) write_stdout("\n");
}

}  // namespace

void transcribe(const Arguments& given) {
  audio::LongForm asked = form_of(given);
  const std::string form = given.has("--format") ? given.text("--format") : given.has("--json") ? "json" : "text";
  if (given.has("--json") && form != "json")
    throw Error(Kind::kUsage, "--format: received " + python_repr(form) + " beside --json, expected one of them", "leave one of them out");
  const std::shared_ptr<const Bundle> bundle = bundle_of(given, !given.has("--no-verify"));
  asked.timestamps = given.has("--timestamps") || form == "srt" || form == "vtt";
  audio::check_thresholds(asked);
  audio::check_hears(bundle->manifest());
  const SourceSection& about = *bundle->manifest().source;
  std::optional<std::string> language;
  if (given.has("--language")) language = given.text("--language");
  if (language) token_of_language(about, *language, "--language");
  audio::HeardSound sound = audio::hear(audio::read_wav(plain_path(given.rest[1])), *about.audio);
  Session session(bundle);
  const auto decode = [&](const Request& request) {
    session.reuse_last();  // the same sound is encoded once, and its first tokens are read once
    session.start(request);
    while (session.step()) continue;
    return session.result(0);
  };
  audio::Transcription writing(decode, *bundle, std::move(sound), std::move(language), options_of(given), std::move(asked));
  if (form == "json") {
    writing.finish();
    write_stdout(writing.to_json().dump() + "\n");
  } else {
    write(writing, form, given.has("--timestamps"));
  }
  log(Level::kInfo, summary(writing.generation()));
}

}  // namespace spc::cli
