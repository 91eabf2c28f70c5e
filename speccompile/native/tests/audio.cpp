// Program of tests of native/audio: reads one JSON object a line, and writes an answer for each. Arrays go through files.
//
//   {"wav": file, "out": file}                             the rate
//   {"resample": [rate, wanted], "samples": file, "out": file}
//   {"features": source.audio, "samples": file, "rate": 16000, "out": file}
//   {"start": source, "language": 3, "task": "translate", "timed": true}  tokens; null for none
//   {"times": [first, max_initial, end], "text": [..], "samples": file, "out": file}  logits under the rules of times; null for none
//   {"cut": [..], "first": 14, "frames": 100}              parts [start, end, tokens], and the step
//   {"previous": [[..]], "first": 14}                      tokens of the text before a window
//   {"ratio": [..], "vocabulary": 120}                     how much shorter zlib makes them
//   {"subtitle": "srt", "number": 1, "start": .., "end": .., "text": ..}  also "line"
//
// The answer is {"answer": .., "told": []} or {"error": {"kind": .., "message": .., "hint": ..}, "told": []}.
#include <cstring>
#include <iostream>
#include <limits>
#include <optional>

#include "../audio/reader.h"
#include "../audio/resample.h"
#include "../audio/rules.h"
#include "../audio/subtitles.h"
#include "../errors.h"
#include "../files.h"

namespace spc::audio {
namespace {

Samples samples_of(const Json& asked) {
  const std::string bytes = read_file(asked["samples"].text());
  Samples found(bytes.size() / sizeof(float));
  std::memcpy(found.data(), bytes.data(), found.size() * sizeof(float));
  return found;
}

void write(const Json& asked, const std::vector<float>& values) {
  write_file(asked["out"].text(), {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

AudioSection section_of(const Json& audio) {
  const Json source = Json::Object{{"max_length", 1}, {"start_token_id", 0}, {"forced_bos_token_id", Json()},
                                   {"languages", Json::Object{}}, {"language_is_start", false}, {"audio", audio}};
  return *SourceSection::from_json(source, "source").audio;
}

TokenIds tokens_of(const Json& list) {
  TokenIds found;
  for (const Json& token : list.list()) found.push_back(token.integer());
  return found;
}

std::optional<int64_t> number_of(const Json& value) { return value.is_null() ? std::nullopt : std::optional<int64_t>(value.integer()); }

void write_timed(const Json& asked) {
  const Json::List& numbers = asked["times"].list();
  const TimeRules rules = {numbers.at(0).integer(), number_of(numbers.at(1)), numbers.at(2).integer()};
  Written written;
  for (const int64_t token : tokens_of(asked["text"])) written = rules.after(written, token);
  std::vector<float> logits = samples_of(asked);
  std::vector<uint8_t> allowed(logits.size(), 1);
  rules.forbid(allowed.data(), static_cast<int64_t>(allowed.size()), written);
  for (size_t token = 0; token < logits.size(); ++token)
    if (!allowed[token]) logits[token] = -std::numeric_limits<float>::infinity();
  rules.hide_text(logits);
  write(asked, logits);
}

// Answer about a transcript's text; nothing for another question.
std::optional<Json> about_text(const Json& asked) {
  if (const Json* const tokens = asked.find("cut")) {
    const CutWindow cut = cut_at_times(tokens_of(*tokens), number_of(asked["first"]), asked["frames"].integer());
    Json::List parts;
    for (const TimedPart& each : cut.parts) parts.push_back(Json::List{each.start, each.end, list_of(each.tokens)});
    return Json(Json::List{parts, cut.step});
  }
  if (const Json* const texts = asked.find("previous")) {
    std::vector<TokenIds> segments;
    for (const Json& each : texts->list()) segments.push_back(tokens_of(each));
    return list_of(previous_tokens(segments, asked["first"].integer()));
  }
  if (const Json* const tokens = asked.find("ratio")) return Json(compression_ratio(tokens_of(*tokens), asked["vocabulary"].integer()));
  if (!asked.find("subtitle")) return std::nullopt;
  Segment segment;
  segment.start = asked["start"].number();
  segment.end = asked["end"].number();
  segment.text = asked["text"].text();
  const std::string& form = asked["subtitle"].text();
  return Json(form == "line" ? timed_line(segment) : subtitle(form, static_cast<size_t>(asked["number"].integer()), segment));
}

Json answer(const Json& asked) {
  if (const std::optional<Json> found = about_text(asked)) return *found;
  if (asked.find("times")) {
    write_timed(asked);
    return {};
  }
  if (asked.find("wav")) {
    const Sound sound = read_wav(asked["wav"].text());
    write(asked, sound.samples);
    return sound.rate;
  }
  if (const Json* const rates = asked.find("resample")) {
    write(asked, resample(samples_of(asked), rates->list().at(0).integer(), rates->list().at(1).integer()));
    return {};
  }
  if (const Json* const about = asked.find("features")) {
    const Features found = features_of({samples_of(asked), asked["rate"].integer()}, section_of(*about));
    write(asked, found.values);
    return Json::List{found.mels, found.frames};
  }
  const Json& task = asked["task"];
  return list_of(transcript_start(SourceSection::from_json(asked["start"], "source"), number_of(asked["language"]),
                                  task.is_null() ? std::nullopt : std::optional<std::string>(task.text()), asked["timed"].boolean()));
}

}  // namespace
}  // namespace spc::audio

int main() {
  using spc::Json;
  for (std::string line; std::getline(std::cin, line);) {
    Json told{Json::Object{}};
    try {
      told.set("answer", spc::audio::answer(Json::parse(line)));
    } catch (const spc::Error& error) {
      const char* const kind = error.kind == spc::Kind::kPrompt ? "PromptError" : error.kind == spc::Kind::kUsage ? "UsageError" : "BundleError";
      told.set("error", Json::Object{{"kind", kind}, {"message", error.message}, {"hint", error.hint}});
    }
    told.set("told", Json::List{});
    std::cout << told.dump() << std::endl;
  }
}
