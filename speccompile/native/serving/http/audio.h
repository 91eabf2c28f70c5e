// OpenAI's endpoints for sounds: transcriptions and translations, whole or streamed by segments (serving/http/audio.py).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "../../audio/long_form.h"
#include "model.h"
#include "requests.h"

namespace spc::http {

// Checked form. sound: bytes of the body; model, language, prompt: "" for none; form: of the answer; temperature: none for the default.
struct AudioRequest {
  std::string_view sound;
  std::string model, task, language, prompt, form;
  std::optional<double> temperature;
  bool stream = false;
};

// Return the request in a form. body: see `read_form`. Throws RequestError, which names the field, for one that is wrong.
AudioRequest audio_request(std::string_view body, const std::string& content_type, const std::string& task);

// Return the transcription that a form asks for. decode: runs a window; speculative: whether it drafts. Throws RequestError, which
// names the field, for what the bundle cannot do.
std::unique_ptr<audio::Transcription> transcription_of(const AudioRequest& asked, audio::Decode decode, const Bundle& bundle, bool speculative);

// Body of an answer, and its type.
struct AudioAnswer {
  std::string type, body;
};
// Return the answer of a transcription that has ended, in a form.
AudioAnswer audio_answer(const std::string& form, const audio::Transcription& written);
// Return the events of a streamed transcript: one for each segment, and the last one.
Json audio_delta(const audio::Segment& segment);
Json audio_done(const audio::Transcription& written);

}  // namespace spc::http
