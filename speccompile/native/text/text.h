// Text to token ids and back, whole or as it comes (speccompile/runtime/text/tokenizer.py), from a Hugging Face tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../json.h"

namespace spc {

using TokenIds = std::vector<int64_t>;

// The tokenizer in a `tokenizer.json`. Never changes: any number of threads may use it.
class Text {
 public:
  // Throws Error(kBundle) when the file is no tokenizer, Error(kEngine) naming the part of it that this runtime does not
  // have (a model that is not BPE, an unknown normalizer, ..).
  static std::shared_ptr<const Text> open(const std::string& path);
  // The tokenizer of such a file's content, which has been opened before.
  static std::shared_ptr<const Text> of(const Json& definition);
  virtual ~Text() = default;

  // Token ids of UTF-8 text; special_tokens: with those that the tokenizer puts around a prompt. Throws Error(kPrompt) for
  // what is not UTF-8.
  virtual TokenIds encode(std::string_view text, bool special_tokens = true) const = 0;
  // Return UTF-8 without special tokens, with U+FFFD for invalid bytes.
  virtual std::string decode(const TokenIds& ids) const = 0;
  // Return the ids that have text: no special tokens, none beyond the tokenizer's vocabulary.
  virtual TokenIds shown(const TokenIds& ids) const = 0;
  // Return whether the token is one byte of a character that the vocabulary lacks (SentencePiece's byte fallback).
  virtual bool is_byte(int64_t id) const = 0;
  // Text of a special token, which no decoded text shows; "" for another token.
  virtual std::string special_text(int64_t id) const = 0;
  // The vocabulary's string for a token; "" if it lacks the token.
  virtual std::string id_to_token(int64_t id) const = 0;
  // Return the largest token id and one.
  virtual int64_t size() const = 0;
  // Return the most bytes of text, in UTF-8, for which one token can stand; 0 where there is no bound.
  virtual int64_t longest_token_bytes() const = 0;
};

// Text that may still become a stop string, with special tokens.
class HeldText {
 public:
  // hidden: a special token's text.
  void append(std::string_view piece, bool hidden = false);
  // Remove the text before `end`.
  void drop(size_t end);
  void clear() { drop(text_.size()); }
  size_t size() const { return text_.size(); }
  // The text before `end` without special tokens.
  std::string shown(size_t end) const;
  // Return the position of the stop string that is complete first, of several the longest; npos without one.
  size_t first_stop(const std::vector<std::string>& stops) const;
  // Return the position from which the text may still become a stop string, or the text's size.
  size_t first_open(const std::vector<std::string>& stops) const;

 private:
  // A text and the places of its bytes in `text_`.
  struct Reading {
    std::string text;
    std::vector<size_t> places;
  };
  // The text with special tokens, and the one that is shown.
  std::vector<Reading> readings() const;

  std::string text_;
  std::vector<bool> hidden_;  // of each byte
};

// The text that continues a prompt, in pieces that can be shown as they come: see IncrementalDetokenizer of tokenizer.py.
class IncrementalDetokenizer {
 public:
  // Throws Error(kPrompt) for an empty stop string.
  IncrementalDetokenizer(std::shared_ptr<const Text> text, const TokenIds& prompt, std::vector<std::string> stop);

  // Take the next token ids; the text that may be shown now.
  std::string push(const TokenIds& ids);
  // The rest of the text, once.
  std::string finish();

  bool has_stop() const { return !stop_.empty(); }
  bool stopped() const { return stopped_; }
  // Token ids pushed, up to and including the one that completed the stop string.
  size_t kept() const { return kept_; }

 private:
  TokenIds last_shown(const TokenIds& prompt) const;
  std::string decode(const TokenIds& ids);
  std::string pass_special(const std::string& special);
  std::string until_stop(const std::string& piece, bool hidden = false);

  std::shared_ptr<const Text> text_;
  std::vector<std::string> stop_;
  bool stopped_ = false;
  size_t kept_ = 0;
  HeldText held_;
  std::string known_;
  TokenIds pending_, context_;
};

}  // namespace spc
