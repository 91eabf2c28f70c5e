// Unigram language model of a tokenizer.json: the pieces whose scores sum to the most (Kudo 2018; tokenizers' unigram model).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../json.h"
#include "flat_map.h"
#include "word_model.h"

namespace spc {

class Unigram : public WordModel {
 public:
  // ids: of all pieces. Throws InvalidTokenizer.
  Unigram(const Json& model, const TokenFinder& ids);
  void encode(std::string_view piece, TokenIds& ids) const override;

 private:
  struct Node {
    double score = 0;
    size_t start = 0;
    uint32_t id = 0;
    bool reached = false;
  };

  std::vector<Node> best_paths(std::string_view piece) const;
  void add(std::string_view text, TokenIds& ids) const;

  const TokenFinder& ids_;
  std::vector<double> scores_;
  FlatMap<uint32_t> children_;        // node of the trie and byte -> node
  std::vector<int64_t> tokens_;       // node -> id of the piece that ends there, or kNone
  std::optional<uint32_t> unknown_;
  double unknown_score_ = 0;
  bool byte_fallback_ = false;
};

}  // namespace spc
