// "model" of a tokenizer.json: byte pair encoding, and the tokens of the other models.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../json.h"
#include "flat_map.h"
#include "text.h"
#include "word_model.h"

namespace spc {

class Vocabulary : public TokenFinder {
 public:
  // Throws NoTokenizer or NoPart.
  explicit Vocabulary(const Json& model);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  // Append the token ids of a piece.
  void encode(std::string_view piece, TokenIds& ids) const;

  size_t size() const { return ids_.size(); }
  std::optional<uint32_t> id(std::string_view token) const override;
  const std::string_view* token(uint64_t id) const;

 private:
  struct Symbol {
    uint32_t id;
    int32_t before, next;
    bool gone;
  };
  struct Merge {
    uint32_t rank, id;
  };
  class Word;

  void read_tokens(const Json& tokens);
  void read_pieces(const Json::List& pieces);
  void reserve(size_t bytes, size_t count);
  void put(const std::string& name, uint32_t id);
  void read_merges(const Json& merges, size_t prefix);
  void symbols(std::string_view piece, std::vector<Symbol>& found) const;
  void merge(std::vector<Symbol>& symbols) const;

  std::unique_ptr<const WordModel> other_;  // null for byte pair encoding
  std::string text_;                        // of all tokens
  std::unordered_map<std::string_view, uint32_t> ids_;
  FlatMap<std::string_view> tokens_;
  FlatMap<uint32_t> characters_;  // tokens of one character
  FlatMap<Merge> merges_;
  std::string prefix_, suffix_;
  std::optional<std::string> unknown_;
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace spc
