// "added_tokens" of a tokenizer.json: tokens that are found in a text before anything else is done with it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "flat_map.h"
#include "normalizers.h"
#include "pieces.h"
#include "vocabulary.h"

namespace spc {

struct AddedToken {
  std::string content;
  bool single_word = false, left_strip = false, right_strip = false, normalized = false, special = false;

  bool operator==(const AddedToken& other) const;
};

// Several texts to look for at once.
class Finder {
 public:
  // Throws NoTokenizer where the text is there already.
  void add(std::string_view text, uint32_t id);
  struct Found {
    size_t begin, end;
    uint32_t id;
  };
  // The first from `from` on, of several that begin there the longest; false for none.
  bool find(std::string_view text, size_t from, Found& found) const;
  bool empty() const { return ends_.empty(); }

 private:
  std::unordered_map<uint64_t, uint32_t> nodes_;  // by the node before and a byte
  std::unordered_map<uint32_t, uint32_t> ends_;   // the token that ends at a node
  bool begins_[256] = {};
};

class AddedTokens {
 public:
  // Throws NoTokenizer.
  AddedTokens(const Json& tokens, const Vocabulary& vocabulary, const Normalizers& normalizers);

  // Split a text into its added tokens, and the normalized texts between them.
  PreTokenizedString split(std::string_view text, bool tracked) const;

  std::optional<uint32_t> id(const std::string& token) const;
  // Return the text of an added token for decoders, null for another token.
  const std::string* token(int64_t id) const;
  bool is_special(int64_t id) const;
  // Return the text of a special token as the file writes it; "" for another token.
  std::string special_text(int64_t id) const;
  // Return whether a decoder's text is that of a special token.
  bool is_special_text(std::string_view text) const { return special_.count(std::string(text)) > 0; }

 private:
  void add(AddedToken token, const Vocabulary& vocabulary, uint32_t& next);
  void find(const Finder& finder, std::string_view text, std::vector<Piece>& list) const;

  const Normalizers& normalizers_;
  std::map<int64_t, AddedToken> tokens_;
  std::map<int64_t, std::string> shown_;
  std::map<std::string, uint32_t> ids_;
  std::set<std::string> special_;
  Finder plain_, normalized_;
  unicode::Set word_ = unicode::property("rust_word"), space_ = unicode::property("space");
};

}  // namespace spc
