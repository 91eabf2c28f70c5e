// A bundle, opened: what sessions share (runtime/bundle.py). Never changes once it is open: for any thread.
#pragma once

#include <memory>
#include <string>

#include "../bundle/reader.h"
#include "../index/retrieval.h"
#include "../text/text.h"
#include "engine.h"
#include "window_invariance.h"
#include "options.h"
#include "ort.h"
#include "host_drafts.h"

namespace spc {

// engine: the name of one, "" for the first that can run here. threads: 0 for one for each core that this process may use.
// verify: compare every file with its recorded hash. onnxruntime: the path of its library, "" for where it is found.
struct OpenOptions {
  std::string engine, onnxruntime;
  int threads = 0;
  bool verify = true;
};

class Bundle {
 public:
  // The first time that an engine is opened on a processor, its target's logits are compared between windows of every width:
  // see `Exactness`. Throws Error.
  Bundle(const std::string& folder, const OpenOptions& options);

  // The tokenizer, null where the bundle has none, or one that this runtime does not have. Where it must be there:
  // `need_text`, which throws Error(kPrompt) with `otherwise` and its hint, or what the tokenizer was refused for.
  const std::shared_ptr<const Text>& text() const { return text_; }
  const Text& require_tokenizer(const std::string& otherwise, const std::string& hint) const;
  // The prompt's tokens. Throws Error(kPrompt) when it is empty, too long, or not of this vocabulary.
  TokenIds token_ids(const Prompt& prompt, bool chat) const;

  // The hash of the tokenizer, "" where the bundle has none.
  std::string tokenizer_hash() const;

  const OpenedBundle& opened() const { return opened_; }
  const Manifest& manifest() const { return opened_.manifest; }
  const EngineEntry& entry() const { return *entry_; }
  SharedEngine& program() const { return *program_; }
  // Whether the bundle can draft by itself.
  bool speculative() const { return entry_->has(graph::kStep) || entry_->has(graph::kDraft) || retrieval_; }
  // Drafts of the bundle's own index, empty where it has none.
  Proposer proposer() const;
  // Whether speculation never changes what comes out: by the method of the bundle, and by its engine here.
  bool exact() const { return manifest().exact && exactness_.exact(); }
  // The path of the kernels, "none" for ONNX Runtime's own, "" beside the processor.
  const std::string& kernels() const { return kernels_; }
  const std::string& onnxruntime() const { return library_.version(); }
  // What was opened, as a JSON object.
  Json description() const;

 private:
  TokenIds encode(const std::string& prompt, bool chat) const;

  const double start_;
  const OpenedBundle opened_;
  const Ort& library_;
  const EngineEntry* const entry_;
  std::shared_ptr<SharedEngine> program_;
  std::shared_ptr<const Text> text_;
  std::string text_refusal_, text_hint_, kernels_;
  std::shared_ptr<const RetrievalProposer> retrieval_;
  WindowInvariance exactness_;
  double load_seconds_ = 0;
};

}  // namespace spc
