// WordPiece model of a tokenizer.json: the longest token first (Devlin et al. 2018; tokenizers' wordpiece model); and WordLevel, whose
// tokens are whole words.
#pragma once

#include <string>
#include <string_view>

#include "../json.h"
#include "word_model.h"

namespace spc {

class WordPieces : public WordModel {
 public:
  // ids: of all tokens. Throws InvalidTokenizer.
  WordPieces(const Json& model, const TokenFinder& ids);
  void encode(std::string_view piece, TokenIds& ids) const override;

 private:
  const TokenFinder& ids_;
  std::string unknown_, prefix_;
  size_t most_characters_;
};

class WholeWords : public WordModel {
 public:
  // ids: of all tokens. Throws InvalidTokenizer.
  WholeWords(const Json& model, const TokenFinder& ids);
  void encode(std::string_view piece, TokenIds& ids) const override;

 private:
  const TokenFinder& ids_;
  const std::string unknown_;
};

}  // namespace spc
