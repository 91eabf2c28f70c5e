#include "audio.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "../../audio/subtitles.h"
#include "../../audio/wav.h"
#include "../../runtime/sources.h"
#include "../../words.h"
#include "errors.h"
#include "multipart.h"
#include "schema.h"
#include "tables.h"

namespace spc::http {
namespace {

constexpr const char *kTranscribe = "transcribe", *kGranularities = "timestamp_granularities";
constexpr size_t kShown = 80;

using Parts = std::vector<FormPart>;

[[noreturn]] void refuse(const std::string& param, const std::string& problem, const char* code = "") {
  throw RequestError(400, param + ": " + problem, param, code);
}

template <size_t Count>
std::vector<std::string> words_of(const char* const (&words)[Count]) {
  return {words, words + Count};
}

void check_fields(const Parts& parts, const std::vector<std::string>& known) {
  for (const FormPart& part : parts)
    if (std::find(known.begin(), known.end(), part.name) == known.end())
      throw RequestError(400, first_characters(part.name, kShown) + ": there is no such field, expected " + joined(known), part.name, "unsupported_parameter");
}

std::string_view file_of(const Parts& parts) {
  const auto is_file = [](const FormPart& part) { return part.name == "file"; };
  const auto count = std::count_if(parts.begin(), parts.end(), is_file);
  if (count != 1) refuse("file", "received " + std::to_string(count) + " files, expected one sound");
  const auto found = std::find_if(parts.begin(), parts.end(), is_file);
  if (found->data.empty()) refuse("file", "received an empty file, expected one sound");
  return found->data;
}

// Return the value of a field, "" for one that is not there.
std::string value_of(const Parts& parts, const std::string& name) {
  std::vector<std::string> found;
  for (const FormPart& part : parts)
    if (part.name == name) found.push_back(part.text());
  if (found.size() > 1) refuse(name, "received " + std::to_string(found.size()) + " values, expected one");
  return found.empty() ? "" : found[0];
}

std::optional<double> temperature_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  const bool is_spaced = text[0] == ' ' || (text[0] >= '\t' && text[0] <= '\r');  // which strtod passes over
  const double value = std::strtod(text.c_str(), &end);
  const bool is_number = !is_spaced && end == text.c_str() + text.size() && text.find_first_of("xX") == std::string::npos;
  if (!is_number || !(value >= 0 && value <= 1)) refuse("temperature", "received " + python_repr(text) + ", expected a number from 0 to 1");
  return value < kMinTemperature ? 0 : value;
}

std::vector<double> tried(const AudioRequest& asked, const Manifest& manifest) {
  if (asked.temperature.value_or(0) != 0) return {*asked.temperature};
  if (manifest.decoding == "sampling") return {std::begin(kWarmer), std::end(kWarmer)};
  return {0.0};
}

Json usage(const audio::Transcription& written) { return Json::Object{{"type", "duration"}, {"seconds", audio::rounded(written.seconds())}}; }

Json segment_json(const audio::Segment& segment, size_t number) {
  Json::Object shown = {{"id", static_cast<int64_t>(number)}, {"tokens", list_of(segment.token_ids)}};
  const Json fields = segment.to_json();
  for (const auto& [name, value] : fields.object())
    if (name != "token_ids") shown.emplace_back(name, value);
  Json found(shown);
  found.set("seek", static_cast<int64_t>(std::llrint(100 * segment.seek)));
  found.set("no_speech_prob", segment.no_speech_prob.value_or(0.0));
  return found;
}

Json verbose(const audio::Transcription& written) {
  Json::List segments;
  for (const audio::Segment& each : written.segments()) segments.push_back(segment_json(each, segments.size()));
  return Json::Object{{"task", written.task()},
                      {"language", written.language() ? Json(*written.language()) : Json()},
                      {"duration", audio::rounded(written.seconds())},
                      {"text", written.text().value_or("")},
                      {"segments", std::move(segments)}};
}

// Return a refusal of an option of a transcript as one of the field that sets it.
RequestError of_the_form(const Error& error) {
  const size_t end = error.message.find(": ");
  const std::string option = error.message.substr(0, end);
  if (option == "timestamps") return {400, "response_format: this model writes no times, expected json or text", "response_format"};
  const std::string field = option == "audio" ? "file" : option == "initial_prompt" ? "prompt" : option == "language" ? option : "";
  return {400, field.empty() ? error.message : field + error.message.substr(end), field, "", error.hint};
}

std::unique_ptr<audio::Transcription> begun(const AudioRequest& asked, audio::Decode decode, const Bundle& bundle, bool speculative) {
  const Manifest& manifest = bundle.manifest();
  audio::check_hears(manifest);
  if (!bundle.text())
    throw RequestError(400, "this model has no tokenizer, so no text of what is spoken", "", "",
                       "`speccompile transcribe` writes token ids; build the bundle with the target's tokenizer");
  if (asked.temperature.value_or(0) != 0 && manifest.decoding != "sampling")
    throw RequestError(400, "temperature: received " + shown(*asked.temperature) + ", but this model was compiled for greedy decoding", "temperature",
                       "unsupported_value", "leave it out; a bundle with decoding: sampling takes it");
  std::optional<std::string> language;
  if (!asked.language.empty()) language = asked.language;
  if (language) token_of_language(*manifest.source, *language, "language");
  Request options;
  options.task = asked.task;
  options.set(Request::kAll, "autoregressive", Value::of(uint64_t{!speculative}));
  audio::LongForm form;
  form.timestamps = asked.form == "srt" || asked.form == "vtt" || asked.form == "verbose_json";
  if (!asked.prompt.empty()) form.initial_prompt = asked.prompt;
  form.temperatures = tried(asked, manifest);
  audio::HeardSound sound = audio::hear(audio::parse_wav(asked.sound, "audio"), *manifest.source->audio);
  return std::make_unique<audio::Transcription>(std::move(decode), bundle, std::move(sound), std::move(language), std::move(options), std::move(form));
}

}  // namespace

AudioRequest audio_request(std::string_view body, const std::string& content_type, const std::string& task) {
  const Parts parts = read_form(body, content_type);
  check_fields(parts, task == kTranscribe ? words_of(kTranscriptionFields) : words_of(kTranslationFields));
  AudioRequest asked;
  asked.sound = file_of(parts);
  for (const FormPart& part : parts)
    if (part.name == std::string(kGranularities) + "[]" && part.text() != "segment")
      refuse(kGranularities, "received another than 'segment', expected it alone: words have no times here");
  asked.form = value_of(parts, "response_format");
  if (asked.form.empty()) asked.form = "json";
  const std::vector<std::string> forms = words_of(kTranscriptForms);
  if (std::find(forms.begin(), forms.end(), asked.form) == forms.end())
    refuse("response_format", "received " + python_repr(first_characters(asked.form, kShown)) + ", expected one of " + joined(forms));
  const std::string stream = value_of(parts, "stream");
  asked.stream = stream == "true";
  if (!(stream.empty() || stream == "true" || stream == "false") || (asked.stream && asked.form != "json" && asked.form != "text"))
    refuse("stream", "expected true or false, and true with the formats json and text");
  asked.model = value_of(parts, "model");
  asked.task = task;
  asked.language = value_of(parts, "language");
  asked.prompt = value_of(parts, "prompt");
  asked.temperature = temperature_of(value_of(parts, "temperature"));
  return asked;
}

std::unique_ptr<audio::Transcription> transcription_of(const AudioRequest& asked, audio::Decode decode, const Bundle& bundle, bool speculative) {
  try {
    return begun(asked, std::move(decode), bundle, speculative);
  } catch (const Error& error) {
    if (error.kind == Kind::kUsage || error.kind == Kind::kPrompt) throw of_the_form(error);
    throw;
  }
}

AudioAnswer audio_answer(const std::string& form, const audio::Transcription& written) {
  if (form == "json" || form == "verbose_json") {
    Json body = form == "json" ? Json(Json::Object{{"text", written.text().value_or("")}}) : verbose(written);
    body.set("usage", usage(written));
    return {"application/json", body.dump(Json::kCompact)};
  }
  const std::string type = "text/plain; charset=utf-8";
  if (form == "text") return {type, written.text().value_or("") + "\n"};
  std::string blocks = form == "vtt" ? audio::kVttStart : "";
  for (size_t number = 0; number < written.segments().size(); ++number) blocks += audio::subtitle(form, number + 1, written.segments()[number]);
  return {type, blocks};
}

Json audio_delta(const audio::Segment& segment) { return Json::Object{{"type", "transcript.text.delta"}, {"delta", segment.text.value_or("")}}; }

Json audio_done(const audio::Transcription& written) {
  return Json::Object{{"type", "transcript.text.done"}, {"text", written.text().value_or("")}, {"usage", usage(written)}};
}

}  // namespace spc::http
