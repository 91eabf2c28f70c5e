// What a test asks of native/audio: one JSON object a line, and an answer for each. Arrays go through files.
//
//   {"wav": file, "out": file}                             the rate
//   {"resample": [rate, wanted], "samples": file, "out": file}
//   {"features": source.audio, "samples": file, "rate": 16000, "out": file}
//   {"start": source, "language": 3, "task": "translate"}  tokens; null for none
//
// The answer is {"answer": .., "told": []} or {"error": {"kind": .., "message": .., "hint": ..}, "told": []}.
#include <cstring>
#include <iostream>

#include "../audio/reader.h"
#include "../audio/resample.h"
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

Json answer(const Json& asked) {
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
  const Json &language = asked["language"], &task = asked["task"];
  return list_of(transcript_start(SourceSection::from_json(asked["start"], "source"), language.is_null() ? std::nullopt : std::optional<int64_t>(language.integer()),
                                  task.is_null() ? std::nullopt : std::optional<std::string>(task.text())));
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
