// Requests, sessions and results.
#include "../audio/wav.h"
#include "../images/decode.h"
#include "../images/reader.h"
#include "handles.h"

namespace {

// The text of a caller, who may have none.
std::string text_of(const char* text, size_t size) {
  spc::require_size(size, "size");
  if (size) spc::require_pointer(text, "text");
  return size ? std::string(text, size) : std::string();
}

// The token ids of a caller, who may have none.
spc::TokenIds ids_of(const int64_t* ids, size_t count) {
  spc::require_size(count, "count");
  if (count) spc::require_pointer(ids, "ids");
  return count ? spc::TokenIds(ids, ids + count) : spc::TokenIds();
}

using Propose = int64_t (*)(void* user, const int64_t* tokens, size_t count, int64_t* drafts, int64_t* parents, size_t room);

// A caller's function as a proposer. room: the most drafts of a round.
spc::Proposer proposer_of(Propose propose, void* user, size_t room) {
  if (!propose) return {};
  return [propose, user, room](const spc::TokenIds& text) {
    spc::Drafts drafts{std::vector<int64_t>(room), std::vector<int64_t>(room)};
    const int64_t count = propose(user, text.data(), text.size(), drafts.tokens.data(), drafts.parents.data(), room);
    if (count < 0 || static_cast<uint64_t>(count) > room)
      throw spc::Error(spc::Kind::kFailed, "proposer: received " + std::to_string(count) + " drafts, expected 0 to " + std::to_string(room),
                       "see spc_session_propose");
    drafts.tokens.resize(static_cast<size_t>(count));
    drafts.parents.resize(static_cast<size_t>(count));
    return drafts;
  };
}

// Return the pictures of a prompt, and in `where` the name of the next one in messages.
std::vector<spc::images::GivenPicture>& pictures_of(spc_request* request, size_t prompt, std::string& where) {
  if (prompt == SPC_ALL)
    throw spc::Error(spc::Kind::kUsage, "prompt: received SPC_ALL for a picture, expected the number of a prompt", "the first prompt is 0");
  std::vector<spc::images::GivenPicture>& found = request->request.images[prompt];
  where = "images[" + std::to_string(found.size()) + "]";
  if (static_cast<int64_t>(found.size()) >= spc::kMostPictures)
    throw spc::Error(spc::Kind::kPrompt, "received more than " + std::to_string(spc::kMostPictures) + " pictures, expected at most as many", "give fewer");
  return found;
}

}  // namespace

extern "C" {

spc_error* spc_request_create(spc_request** request) {
  return spc::call_with({{request, "request"}}, [&] { *request = new spc_request; });
}

void spc_request_free(spc_request* request) { delete request; }

spc_error* spc_request_add_text(spc_request* request, const char* text, size_t size) {
  return spc::call_with({{request, "request"}}, [&] { request->request.prompts.emplace_back(text_of(text, size)); });
}

spc_error* spc_request_add_tokens(spc_request* request, const int64_t* ids, size_t count) {
  return spc::call_with({{request, "request"}}, [&] { request->request.prompts.emplace_back(ids_of(ids, count)); });
}

spc_error* spc_request_add_stop(spc_request* request, const char* text, size_t size) {
  return spc::call_with({{request, "request"}}, [&] { request->request.stop.push_back(text_of(text, size)); });
}

spc_error* spc_request_add_stop_token(spc_request* request, int64_t id) {
  return spc::call_with({{request, "request"}}, [&] { request->request.stop_token_ids.push_back(id); });
}

spc_error* spc_request_set_number(spc_request* request, size_t prompt, const char* name, double value) {
  return spc::call_with({{request, "request"}, {name, "name"}}, [&] { request->request.set(prompt, name, spc::Value::of(value)); });
}

spc_error* spc_request_set_integer(spc_request* request, size_t prompt, const char* name, uint64_t value) {
  return spc::call_with({{request, "request"}, {name, "name"}}, [&] { request->request.set(prompt, name, spc::Value::of(value)); });
}

spc_error* spc_request_set_logit_bias(spc_request* request, size_t prompt, int64_t token, double bias) {
  return spc::call_with({{request, "request"}}, [&] { request->request.set_logit_bias(prompt, token, bias); });
}

spc_error* spc_request_set_adapter(spc_request* request, size_t prompt, const char* name) {
  return spc::call_with({{request, "request"}}, [&] {
    const std::string adapter = name ? name : "";
    if (prompt == SPC_ALL) {
      request->request.adapter = adapter;
    } else {
      request->request.adapters[prompt] = adapter;
    }
  });
}

spc_error* spc_request_set_source(spc_request* request, size_t prompt, const char* text, size_t size) {
  return spc::call_with({{request, "request"}}, [&] { request->request.set_source(prompt, text_of(text, size)); });
}

spc_error* spc_request_set_source_tokens(spc_request* request, size_t prompt, const int64_t* ids, size_t count) {
  return spc::call_with({{request, "request"}}, [&] { request->request.set_source(prompt, ids_of(ids, count)); });
}

spc_error* spc_request_set_audio(spc_request* request, size_t prompt, const float* samples, size_t count) {
  return spc::call_with({{request, "request"}}, [&] {
    spc::require_size(count, "count");
    if (count) spc::require_pointer(samples, "samples");
    spc::audio::Sound sound;
    if (count) sound.samples.assign(samples, samples + count);
    spc::audio::check_samples(sound.samples, "audio");
    request->request.set_audio(prompt, std::make_shared<const spc::audio::Sound>(std::move(sound)));
  });
}

spc_error* spc_request_set_audio_file(spc_request* request, size_t prompt, const void* data, size_t size) {
  return spc::call_with({{request, "request"}}, [&] {
    if (size) spc::require_pointer(data, "data");
    request->request.set_audio(prompt, std::make_shared<const spc::audio::Sound>(spc::audio::parse_wav({static_cast<const char*>(data), size}, "audio")));
  });
}

spc_error* spc_request_set_text(spc_request* request, const char* name, const char* value) {
  return spc::call_with({{request, "request"}, {name, "name"}, {value, "value"}}, [&] { request->request.set_text(name, value); });
}

spc_error* spc_request_add_image(spc_request* request, size_t prompt, const uint8_t* rgb, size_t width, size_t height) {
  return spc::call_with({{request, "request"}, {rgb, "rgb"}}, [&] {
    std::string where;
    auto& pictures = pictures_of(request, prompt, where);
    pictures.push_back({spc::images::picture_of(rgb, width, height, where)});
  });
}

spc_error* spc_request_add_image_file(spc_request* request, size_t prompt, const void* data, size_t size) {
  return spc::call_with({{request, "request"}}, [&] {
    if (size) spc::require_pointer(data, "data");
    std::string where;
    auto& pictures = pictures_of(request, prompt, where);
    pictures.push_back({spc::images::decode({static_cast<const char*>(data), size}, where)});
  });
}

spc_error* spc_request_set_image_detail(spc_request* request, size_t prompt, const char* detail) {
  return spc::call_with({{request, "request"}, {detail, "detail"}}, [&] {
    const auto found = request->request.images.find(prompt);
    if (found == request->request.images.end() || found->second.empty())
      throw spc::Error(spc::Kind::kUsage, "prompt: received a detail for a prompt without pictures, expected one with", "add the picture first");
    found->second.back().is_low = spc::images::is_low(detail, "detail");
  });
}

spc_error* spc_session_create(const spc_bundle* bundle, spc_session** session) {
  return spc::call_with({{bundle, "bundle"}, {session, "session"}}, [&] { *session = new spc_session{spc::Session(bundle->bundle)}; });
}

void spc_session_free(spc_session* session) {
  spc_error_free(spc::call_guarded([&] { delete session; }));
}

spc_error* spc_session_propose(spc_session* session, Propose propose, void* user) {
  return spc::call_with({{session, "session"}}, [&] {
    session->session.set_proposer(proposer_of(propose, user, session->session.max_draft_tokens()));
  });
}

spc_error* spc_session_reset_kept(spc_session* session) {
  return spc::call_with({{session, "session"}}, [&] { session->session.kept().reset(); });
}

spc_error* spc_session_save_kept(const spc_session* session, const char* path) {
  return spc::call_with({{session, "session"}, {path, "path"}}, [&] { session->session.kept().save(path); });
}

spc_error* spc_session_load_kept(spc_session* session, const char* path) {
  return spc::call_with({{session, "session"}, {path, "path"}}, [&] { session->session.kept().load(path); });
}

spc_error* spc_session_save(spc_session* session, const char* path) {
  return spc::call_with({{session, "session"}, {path, "path"}}, [&] { session->session.save(path); });
}

spc_error* spc_session_load(spc_session* session, const char* path, const int64_t** ids, size_t* count) {
  return spc::call_with({{session, "session"}, {path, "path"}, {ids, "ids"}, {count, "count"}}, [&] {
    const spc::TokenIds& held = session->session.load(path);
    *ids = held.data();
    *count = held.size();
  });
}

spc_error* spc_session_load_adapter(spc_session* session, const char* name, const char* folder) {
  return spc::call_with({{session, "session"}, {name, "name"}, {folder, "folder"}}, [&] { session->session.load_adapter(name, folder); });
}

spc_error* spc_session_unload_adapter(spc_session* session, const char* name) {
  return spc::call_with({{session, "session"}, {name, "name"}}, [&] { session->session.unload_adapter(name); });
}

spc_error* spc_session_start(spc_session* session, const spc_request* request) {
  return spc::call_with({{session, "session"}, {request, "request"}}, [&] {
    spc::with_request(*request, session->session.bundle(), [&](const spc::Request& asked) { session->session.start(asked); });
  });
}

spc_error* spc_session_step(spc_session* session, int* done) {
  return spc::call_with({{session, "session"}, {done, "done"}}, [&] { *done = !session->session.step(); });
}

size_t spc_session_rows(const spc_session* session) { return session ? session->session.rows() : 0; }

spc_error* spc_session_new_text(spc_session* session, size_t row, const char** text, size_t* size) {
  return spc::call_with({{session, "session"}, {text, "text"}, {size, "size"}}, [&] {
    const std::string& piece = session->session.new_text(row);
    *text = piece.data();
    *size = piece.size();
  });
}

spc_error* spc_session_new_tokens(spc_session* session, size_t row, const int64_t** ids, size_t* count) {
  return spc::call_with({{session, "session"}, {ids, "ids"}, {count, "count"}}, [&] {
    const spc::TokenIds& added = session->session.new_tokens(row);
    *ids = added.data();
    *count = added.size();
  });
}

void spc_session_cancel(spc_session* session) {
  if (session) spc_error_free(spc::call_guarded([&] { session->session.cancel(); }));
}

spc_error* spc_session_result(spc_session* session, size_t row, spc_result** result) {
  return spc::call_with({{session, "session"}, {result, "result"}}, [&] {
    *result = new spc_result{session->session.result(row).dump(), session->session.tokens(row)};
  });
}

const char* spc_result_json(const spc_result* result) { return result ? result->json.c_str() : ""; }

void spc_result_tokens(const spc_result* result, const int64_t** ids, size_t* count) {
  if (ids) *ids = result ? result->tokens.data() : nullptr;
  if (count) *count = result ? result->tokens.size() : 0;
}

void spc_result_free(spc_result* result) { delete result; }

}  // extern "C"
