// Texts of single tokens, for log-probabilities, and their offsets in the text of an answer (serving/http/tokens.py,
// text_offsets.py).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "../../text/text.h"

namespace spc::http {

// Text of a token. text: U+FFFD if it is no complete character; bytes: null if they are unknown.
struct TokenText {
  std::string text;
  std::optional<std::vector<int64_t>> bytes;
};

// Text that each token of a vocabulary adds after other text. Without a tokenizer: the token's number. Any thread may use it.
class TokenTexts {
 public:
  explicit TokenTexts(std::shared_ptr<const Text> tokenizer);
  const TokenText& of(int64_t token) const;
  const std::shared_ptr<const Text>& tokenizer() const { return tokenizer_; }

 private:
  TokenText find(int64_t token) const;

  const std::shared_ptr<const Text> tokenizer_;
  TokenIds before_;  // a token of plain text: decoders drop the space before the first word of a text
  mutable std::mutex mutex_;
  mutable std::unordered_map<int64_t, TokenText> known_;  // whose entries stay where they are
};

// Offsets of one choice's tokens, taken in order. Only text that the choice shows counts: special tokens add none, and the tokens
// of one character all begin where it does.
class TextOffsets {
 public:
  // start: number of characters before the answer, those of an echoed prompt.
  TextOffsets(const TokenTexts& texts, const TokenIds& prompt, int64_t start);
  // Return the offset of each next token, in characters. most: length of the whole text if it is known, which a stop string may
  // have cut.
  std::vector<int64_t> take(const TokenIds& tokens, std::optional<int64_t> most);

 private:
  int64_t take(int64_t token);

  const TokenTexts& texts_;
  int64_t end_;
  std::optional<IncrementalDetokenizer> stream_;
};

// Return the number of characters of a text.
int64_t characters(const std::string& text);

}  // namespace spc::http
