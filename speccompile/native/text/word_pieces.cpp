#include "word_pieces.h"

#include <algorithm>

#include "reading.h"
#include "unicode.h"

namespace spc {

WordPieces::WordPieces(const Json& model, const TokenFinder& ids)
    : ids_(ids),
      unknown_(read_text(model, "unk_token")),
      prefix_(read_text(model, "continuing_subword_prefix")),
      most_characters_(read_number(model["max_input_chars_per_word"], "max_input_chars_per_word")) {}

void WordPieces::encode(std::string_view piece, TokenIds& ids) const {
  const auto characters = static_cast<size_t>(std::count_if(piece.begin(), piece.end(), [](char byte) { return !unicode::continues(byte); }));
  TokenIds found;
  std::string text;
  bool is_known = characters <= most_characters_;
  for (size_t start = 0; is_known && start < piece.size();) {
    size_t end = piece.size();
    std::optional<uint32_t> id;
    while (start < end) {
      text.assign(start > 0 ? prefix_ : "").append(piece.substr(start, end - start));
      if ((id = ids_.id(text))) break;
      end = unicode::before(piece, end);
    }
    is_known = id.has_value();
    if (is_known) found.push_back(*id);
    start = end;
  }
  if (!is_known) {
    const std::optional<uint32_t> id = ids_.id(unknown_);
    if (!id) throw NoUnknownToken{unknown_};
    found = {*id};
  }
  ids.insert(ids.end(), found.begin(), found.end());
}

WholeWords::WholeWords(const Json& model, const TokenFinder& ids) : ids_(ids), unknown_(read_text(model, "unk_token")) {}

void WholeWords::encode(std::string_view piece, TokenIds& ids) const {
  std::optional<uint32_t> id = ids_.id(piece);
  if (!id) id = ids_.id(unknown_);
  if (!id) throw NoUnknownToken{unknown_};
  ids.push_back(*id);
}

}  // namespace spc
