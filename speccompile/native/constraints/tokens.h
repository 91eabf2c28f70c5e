// Tokens of a vocabulary by their bytes, as llguidance has them (runtime/constraints/fitted_tokenizer.py).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../json.h"
#include "../text/text.h"
#include "parser.h"

namespace spc::constraints {

// The first byte of a special token, which no text has.
inline constexpr char kSpecialMark = '\xFF';

class Tokens {
 public:
  // definition: content of a tokenizer.json. vocabulary_size: V; tokens from there on are none. ends: end tokens of the model.
  // Throws Error(kBundle) for a tokenizer whose tokens have no bytes that are known.
  Tokens(const Json& definition, int64_t vocabulary_size, const std::vector<int64_t>& ends);

  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  // Bytes of a token, "" if it stands for no text; of a special token its mark.
  const std::string& bytes(int64_t token) const { return bytes_[static_cast<size_t>(token)]; }
  bool is_special(int64_t token) const { return bytes(token).empty() || bytes(token)[0] == kSpecialMark; }
  const std::vector<int64_t>& ends() const { return ends_; }
  // The special token with this text, -1 without one.
  int64_t special(std::string_view text) const;
  // Set the tokens that a parser can read now, in uint8 [V]; the others stay.
  void allow(Parser& parser, uint8_t* mask) const;
  // Return the tokens of bytes as the tokenizer would write them, and how many of these, from the first, no text behind them can
  // change: special ones and those before.
  TokenIds encode(std::string_view bytes, size_t& fixed) const;
  // Return how many of some last bytes could be the beginning of a longer token that the parser can read on.
  size_t open_bytes(Parser& parser, std::string_view bytes) const;
  // The mark of a special token.
  static std::string mark(int64_t token) { return std::string(1, kSpecialMark) + "[" + std::to_string(token) + "]"; }

 private:
  // Nodes in the order of a walk. end: the node behind all below this one. token: -1 for none; same: places in same_.
  struct TrieNode {
    uint8_t byte;
    int32_t depth, token, end;
  };

  void read(const Json& definition);
  void grow();
  // Return the node behind bytes, -1 without one.
  int32_t find(std::string_view bytes) const;
  void encode_text(std::string_view bytes, TokenIds& found) const;

  std::vector<std::string> bytes_;
  std::vector<TrieNode> nodes_;
  std::vector<std::pair<int32_t, int32_t>> same_;  // a token of a node, another with the same bytes
  std::vector<int64_t> ends_;
  std::vector<std::pair<std::string, int64_t>> specials_;
  std::shared_ptr<const Text> text_;
  size_t longest_ = 0;
};

}  // namespace spc::constraints
