#include "bundle.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "../constraints/constraint.h"
#include "../errors.h"
#include "../files.h"
#include "../images/prompts.h"
#include "../operators/float_mode.h"
#include "../system.h"
#include "engines.h"
#include "round_times.h"
#include "sessions.h"
#include "text_drafter.h"

namespace spc {
namespace {

// The bundle's own index; null where it has none, or drafts in its graphs alone.
std::shared_ptr<const RetrievalProposer> open_index(const OpenedBundle& bundle) {
  const Manifest& manifest = bundle.manifest;
  const std::string folder = join_path(bundle.folder, kIndex);
  std::error_code error;
  const auto depth = static_cast<size_t>(manifest.depth);
  const Json& gate = gate_config(manifest);
  if (!gate.is_null()) return std::make_shared<const RetrievalProposer>(folder, static_cast<size_t>(gate["tokens"].integer()), depth);
  if (!needs_proposer(manifest) || !std::filesystem::is_directory(folder, error)) return nullptr;
  return std::make_shared<const RetrievalProposer>(folder, static_cast<size_t>(manifest.tokens), depth);
}

// The reader of a bundle's pictures; null if its target sees none.
std::shared_ptr<const images::ImageReader> open_reader(const Ort& library, const OpenedBundle& opened, const OpenOptions& options, const std::shared_ptr<const Text>& text) {
  const std::optional<images::ImageSettings> settings = images::ImageSettings::of(opened.manifest);
  if (!settings) {
    if (options.image_cache)
      throw Error(Kind::kUsage, "image_cache: received " + std::to_string(*options.image_cache) + " for a bundle that sees no pictures, expected none", "leave it out");
    return nullptr;
  }
  opened.path(std::string(kImagesFolder) + "/" + kEncodeImage + ".onnx");
  if (text && !settings->token) images::refuse_setting("token", {}, "a text in a bundle with a tokenizer");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() >> 20;
  const int64_t limit = options.image_cache ? std::min(*options.image_cache, kMost) << 20 : kEncoderBytes;
  const int threads = options.threads > 0 ? options.threads : available_cores();
  return std::make_shared<const images::ImageReader>(*settings, images::encoder_of(library, opened.folder, threads, options.verify), text, static_cast<size_t>(limit));
}

}  // namespace

Bundle::Bundle(const std::string& folder, const OpenOptions& options)
    : start_(wall_seconds()),
      opened_(open_bundle(folder, options.verify, options.signed_by, true)),
      library_(Ort::load(options.onnxruntime)),
      entry_(&choose(library_, opened_.manifest, options.engine)) {
  const speccompile::FloatMode mode;  // threads of ONNX Runtime take over how the one that makes them rounds
  program_ = open_engine(library_, opened_.folder, *entry_, options.threads, options.verify);
  if (manifest().tokenizer) {
    try {
      text_ = Text::open(opened_.path(kTokenizer));
    } catch (const Error& error) {
      if (error.kind != Kind::kEngine) throw;  // one that this runtime does not have: token ids still work
      text_refusal_ = error.message;
      text_hint_ = error.hint;
    }
  }
  vision_ = open_reader(library_, opened_, options, text_);
  if (vision_ && text_) text_ = images::without_placeholders(text_, vision_->settings.placeholders());
  grammars_ = std::make_shared<const constraints::Compiler>(manifest(), text_ ? opened_.path(kTokenizer) : "");
  if (opened_.hashes.find(kChat)) chat_ = ChatTemplates(opened_.path(kChat));
  retrieval_ = open_index(opened_);
  if (const std::string folder = join_path(opened_.folder, kWriter); std::filesystem::is_directory(folder)) {
    // its files are among those whose hashes were compared
    writer_ = std::make_shared<const Bundle>(folder, OpenOptions{entry_->name, options.onnxruntime, options.threads, false});
    for (const Bundle* const each : std::initializer_list<const Bundle*>{this, writer_.get()})
      each->require_tokenizer(opened_.folder + ": the drafter over texts has no tokenizer", "build the bundle again");
  }
  if (entry_->provider == provider::kCpu) {
    kernels_ = kernels_in_use();
    const Json key = engine_key(opened_.folder, *entry_, program_->threads(), library_.version());
    exactness_ = check_invariance(key, *entry_, *program_, manifest());
    times_key_ = spc::times_key(key, program_->threads());
  }
  load_seconds_ = wall_seconds() - start_;
}

const Text& Bundle::require_tokenizer(const std::string& otherwise, const std::string& hint) const {
  if (text_) return *text_;
  if (!text_refusal_.empty()) throw Error(Kind::kEngine, text_refusal_, text_hint_);
  throw Error(Kind::kPrompt, otherwise, hint);
}

Proposer Bundle::proposer() const {
  if (writer_) return text_proposer(writer_, text_, manifest().tokens);
  if (!retrieval_) return {};
  return [retrieval = retrieval_](const TokenIds& text) { return retrieval->propose(text); };
}

std::string Bundle::tokenizer_hash() const {
  const FileRecord* const record = manifest().tokenizer ? opened_.hashes.find(kTokenizer) : nullptr;
  return record ? record->blake3 : "";
}

namespace {

constexpr const char *kNoTokenizer = "this bundle has no tokenizer, and the prompt is a text", *kGiveIds = "give token ids: --token-ids 1,2,3 ([1, 2, 3])";

}  // namespace

TokenIds Bundle::chat_tokens(const Json::List& messages) const {
  // the template writes special tokens itself
  return require_tokenizer(kNoTokenizer, kGiveIds).encode(chat_.apply(messages, true, Json(Json::Object())), false);
}

TokenIds Bundle::encode(const std::string& text, bool special_tokens) const {
  return require_tokenizer(kNoTokenizer, kGiveIds).encode(text, special_tokens);
}

void Bundle::check_vocabulary(const TokenIds& ids) const {
  for (const int64_t id : ids)
    if (id < 0 || id >= manifest().vocabulary_size) {
      const std::string token = text_ ? text_->id_to_token(id) : "";
      throw Error(Kind::kPrompt, "token id " + std::to_string(id) + " is out of range: expected 0 to " + std::to_string(manifest().vocabulary_size - 1),
                  token.empty() ? "tokenize the prompt with the target's own tokenizer"
                                : "it is " + python_repr(token) + " of this bundle's tokenizer, which the model has no row for: leave it out of the prompt");
    }
}

// A user's only message, its pictures before its text, in the chat template.
images::SeenPrompt Bundle::as_message(const std::string& prompt, const std::vector<images::PicturePtr>& pictures) const {
  const std::string mark = images::unused_mark({prompt}), own = images::marked(prompt, vision_->settings.placeholders(), mark);
  Json content = own;
  if (!pictures.empty()) {
    Json::List parts(pictures.size(), Json::Object{{"type", "image"}});
    parts.push_back(Json::Object{{"type", "text"}, {"text", own}});
    content = parts;
  }
  const std::string written = chat_.apply({Json::Object{{"role", "user"}, {"content", content}}}, true, Json(Json::Object()));
  return vision_->prompt(written, pictures, false, mark);
}

images::SeenPrompt Bundle::read(const Prompt& prompt, const std::vector<images::GivenPicture>& given, bool chat) const {
  const auto* const words = std::get_if<std::string>(&prompt);
  if (!vision_) {
    if (!given.empty())
      throw Error(Kind::kPrompt, "received pictures for a bundle that sees none, expected a prompt of text",
                  "build the recipe with target: {images: true}, of a target that sees pictures");
    if (!words) return {std::get<TokenIds>(prompt), nullptr};
    if (words->empty()) return {{}, nullptr};  // a tokenizer may begin even an empty text with a token
    return {chat ? chat_tokens({Json::Object{{"role", "user"}, {"content", *words}}}) : encode(*words), nullptr};
  }
  const std::vector<images::PicturePtr> pictures = vision_->pictures(given);
  if (!words) return vision_->of_ids(std::get<TokenIds>(prompt), pictures);
  require_tokenizer(kNoTokenizer, kGiveIds);
  if (chat) return as_message(*words, pictures);
  return pictures.empty() ? images::SeenPrompt{words->empty() ? TokenIds() : encode(*words), nullptr} : vision_->prompt(*words, pictures);
}

images::SeenPrompt Bundle::seen(const Prompt& prompt, const std::vector<images::GivenPicture>& given, bool chat, const char* hint) const {
  images::SeenPrompt found = read(prompt, given, chat);
  const TokenIds& ids = found.ids;
  if (ids.empty()) throw Error(Kind::kPrompt, "the prompt is empty: expected at least one token", "give a text or token ids");
  check_vocabulary(ids);
  if (hint && static_cast<int64_t>(ids.size()) > manifest().max_length)
    throw Error(Kind::kPrompt,
                "the prompt has " + std::to_string(ids.size()) + " tokens, more than this bundle's capacity of " + std::to_string(manifest().max_length),
                hint);
  return found;
}

Json Bundle::description() const {
  const std::optional<int> threads = program_->threads();
  return Json(Json::Object{{"name", manifest().name},
                           {"digest", opened_.hashes.digest},
                           {"engine", entry_->name},
                           {"provider", entry_->provider},
                           {"threads", threads ? Json(*threads) : Json()},
                           {"onnxruntime", library_.version()},
                           {"kernels", kernels_.empty() ? Json() : Json(kernels_)},
                           {"exact", exact()},
                           {"exactness", exactness_.to_json()},
                           {"speculative", speculative()},
                           {"text", text_ ? Json(true) : Json(false)},
                           {"load_seconds", load_seconds_}});
}

}  // namespace spc
