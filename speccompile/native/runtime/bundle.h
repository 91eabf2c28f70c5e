// Opened bundle, which sessions share (runtime/bundle.py). It is immutable and thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "../bundle/reader.h"
#include "../images/reader.h"
#include "../index/retrieval.h"
#include "../text/text.h"
#include "chat.h"
#include "engine.h"
#include "window_invariance.h"
#include "options.h"
#include "ort.h"
#include "host_drafts.h"

namespace spc::constraints {
class Compiler;
}

namespace spc {

// engine: name of an engine, "" for the first that can run here. threads: 0 for one per core that this process may use.
// verify: compare every file with its recorded hash. onnxruntime: path of its library, "" to search for it. signed_by: see
// `open_bundle`. image_cache: MiB of rows of encoded pictures that are kept, by default what Python's keep.
struct OpenOptions {
  std::string engine, onnxruntime;
  int threads = 0;
  bool verify = true;
  std::string signed_by = "";
  std::optional<int64_t> image_cache = std::nullopt;
};

// Hints for a prompt that is too long, where nothing truncates it, and where an option does.
constexpr const char* kShorten = "shorten it, or build the bundle with a larger cache.max_length";
constexpr const char* kTruncate = "shorten it, drop its first tokens with --truncate left (truncate='left'), or build the bundle with a larger cache.max_length";

class Bundle {
 public:
  // When a CPU engine is first opened on this machine, the target's logits are compared between windows of all widths, see
  // `WindowInvariance`. Throws Error.
  Bundle(const std::string& folder, const OpenOptions& options);

  // Return the tokenizer, or null if the bundle has none or this runtime does not support it. `require_tokenizer` then
  // throws Error(kEngine) with the reason for an unsupported tokenizer, else Error(kPrompt) with `otherwise` and its hint.
  const std::shared_ptr<const Text>& text() const { return text_; }
  const Text& require_tokenizer(const std::string& otherwise, const std::string& hint) const;
  // Return the prompt's tokens. Throws Error(kPrompt) if it is empty, too long, or not of this vocabulary. hint: for a prompt
  // that is too long; null if it will be truncated.
  TokenIds token_ids(const Prompt& prompt, bool chat, const char* hint = kShorten) const { return seen(prompt, {}, chat, hint).ids; }
  // Return the tokens of a prompt with pictures, and these. Throws as `token_ids`, and Error(kPrompt) for pictures that the bundle cannot
  // take.
  images::SeenPrompt seen(const Prompt& prompt, const std::vector<images::GivenPicture>& given, bool chat, const char* hint) const;
  // Return the reader of pictures, null if the target sees none.
  const images::ImageReader* vision() const { return vision_.get(); }

  // Return the compiler of constraints.
  const constraints::Compiler& grammars() const { return *grammars_; }

  const ChatTemplates& chat() const { return chat_; }
  // Return the tokens of a conversation in the bundle's chat template, where the answer begins. Throws Error(kPrompt).
  TokenIds chat_tokens(const Json::List& messages) const;

  // Return the tokens of a text. special_tokens: with those that the tokenizer puts around a prompt. Throws Error(kPrompt) without a
  // tokenizer.
  TokenIds encode(const std::string& text, bool special_tokens = true) const;
  // Throws Error(kPrompt) for a token that is not of the vocabulary.
  void check_vocabulary(const TokenIds& ids) const;

  // Return the hash of the tokenizer, "" without one.
  std::string tokenizer_hash() const;

  const OpenedBundle& opened() const { return opened_; }
  const Manifest& manifest() const { return opened_.manifest; }
  const EngineEntry& entry() const { return *entry_; }
  SharedEngine& program() const { return *program_; }
  // Return whether the bundle can draft without a proposer of the caller.
  bool speculative() const { return entry_->has(graph::kStep) || entry_->has(graph::kDraft) || retrieval_ || writer_; }
  // Return a proposer of the bundle's own index or drafter over texts; empty without one.
  Proposer proposer() const;
  // Return whether speculation never changes the output: by the bundle's method, and by its engine on this machine.
  bool exact() const { return manifest().exact && exactness_.exact(); }
  // Return whether windows of all widths give equal bits with its engine on this machine.
  bool is_invariant() const { return exactness_.exact(); }
  // Return the cache key of the round times on this machine; null for engines that are not on the CPU.
  const Json& times_key() const { return times_key_; }
  // Return the code path of the kernels, "none" for ONNX Runtime's own, "" for engines that are not on the CPU.
  const std::string& kernels() const { return kernels_; }
  const std::string& onnxruntime() const { return library_.version(); }
  // Return a description of the opened bundle as a JSON object.
  Json description() const;

 private:
  images::SeenPrompt read(const Prompt& prompt, const std::vector<images::GivenPicture>& given, bool chat) const;
  images::SeenPrompt as_message(const std::string& prompt, const std::vector<images::PicturePtr>& pictures) const;

  const double start_;
  const OpenedBundle opened_;
  const Ort& library_;
  const EngineEntry* const entry_;
  std::shared_ptr<SharedEngine> program_;
  std::shared_ptr<const Text> text_;
  ChatTemplates chat_;
  std::shared_ptr<const images::ImageReader> vision_;
  std::shared_ptr<const constraints::Compiler> grammars_;
  std::string text_refusal_, text_hint_, kernels_;
  std::shared_ptr<const RetrievalProposer> retrieval_;
  std::shared_ptr<const Bundle> writer_;
  WindowInvariance exactness_;
  Json times_key_;
  double load_seconds_ = 0;
};

}  // namespace spc
