// "model" of a tokenizer.json: byte pair encoding.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../json.h"
#include "flat_map.h"
#include "text.h"

namespace spc {

// What `encode` lacks: the file names an unknown token that is not in its vocabulary.
struct NoUnknownToken {
  std::string name;
};

class Vocabulary {
 public:
  // Throws NoTokenizer or NoPart.
  explicit Vocabulary(const Json& model);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  // The token ids of one piece, behind those that are there.
  void encode(std::string_view piece, TokenIds& ids) const;

  size_t size() const { return ids_.size(); }
  std::optional<uint32_t> id(std::string_view token) const;
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
  void read_merges(const Json& merges, size_t prefix);
  void symbols(std::string_view piece, std::vector<Symbol>& found) const;
  void merge(std::vector<Symbol>& symbols) const;

  std::string text_;  // of all tokens
  std::unordered_map<std::string_view, uint32_t> ids_;
  FlatMap<std::string_view> tokens_;
  FlatMap<uint32_t> characters_;  // tokens of one character
  FlatMap<Merge> merges_;
  std::string prefix_, suffix_;
  std::optional<std::string> unknown_;
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace spc
