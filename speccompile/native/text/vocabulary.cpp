#include "vocabulary.h"

#include <queue>

#include "bytes.h"
#include "reading.h"
#include "unicode.h"
#include "unigram.h"
#include "word_pieces.h"

namespace spc {
namespace {

std::string optional_text(const Json& model, const char* name) {
  return model[name].is_null() ? std::string() : read_text(model, name);
}

uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

// The two tokens of a merge: ["a", "b"] or "a b".
std::pair<std::string_view, std::string_view> sides(const Json& merge) {
  if (merge.is_list() && merge.list().size() == 2 && merge.list()[0].is_text() && merge.list()[1].is_text())
    return {merge.list()[0].text(), merge.list()[1].text()};
  const std::string_view text = merge.text();
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
    throw InvalidTokenizer{"expected two tokens to merge, found " + merge.repr()};
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

// Tokens of a piece before merging. An unknown token waits for following unknown ones, which it may absorb.
class Vocabulary::Word {
 public:
  Word(const Vocabulary& of, std::vector<Symbol>& symbols) : of_(of), symbols_(symbols) {}

  void add(uint32_t id) {
    const auto place = static_cast<int32_t>(symbols_.size());
    if (place > 0) symbols_.back().next = place;
    symbols_.push_back({id, place - 1, -1, false});
  }

  void known(uint32_t id) {
    finish();
    add(id);
  }

  // False when some byte is no token.
  bool bytes(std::string_view text) {
    const std::optional<TokenIds> ids = byte_tokens(text, of_);
    if (!ids) return false;
    for (const int64_t id : *ids) add(static_cast<uint32_t>(id));
    return true;
  }

  void unknown() {
    if (!of_.unknown_ || (waits_ && of_.fuse_unknown_)) return;
    finish();
    const std::optional<uint32_t> id = of_.id(*of_.unknown_);
    if (!id) throw NoUnknownToken{*of_.unknown_};
    waiting_ = *id;
    waits_ = true;
  }

  void finish() {
    if (waits_) add(waiting_);
    waits_ = false;
  }

 private:
  const Vocabulary& of_;
  std::vector<Symbol>& symbols_;
  uint32_t waiting_ = 0;
  bool waits_ = false;
};

Vocabulary::Vocabulary(const Json& model) {
  const bool untyped = model["type"].is_null() && model["vocab"].is_object() && model["merges"].is_list();
  const std::string type = untyped ? "BPE" : read_text(model, "type");  // GPT-2's own file has no type
  if (type == "Unigram") {
    read_pieces(read_list(model, "vocab"));
    other_ = std::make_unique<const Unigram>(model, *this);
    return;
  }
  if (type == "WordPiece" || type == "WordLevel") {
    read_tokens(model["vocab"]);
    if (type == "WordPiece") {
      other_ = std::make_unique<const WordPieces>(model, *this);
    } else {
      other_ = std::make_unique<const WholeWords>(model, *this);
    }
    return;
  }
  if (type != "BPE") throw UnsupportedComponent{"tokenizer model " + python_repr(type) + ", only BPE, Unigram, WordPiece and WordLevel"};
  if (!model["dropout"].is_null() && !(model["dropout"].is_number() && model["dropout"].number() == 0))
    throw UnsupportedComponent{"dropout in the tokenizer model"};
  if (!model["unk_token"].is_null()) unknown_ = read_text(model, "unk_token");
  prefix_ = optional_text(model, "continuing_subword_prefix");
  suffix_ = optional_text(model, "end_of_word_suffix");
  fuse_unknown_ = read_flag(model, "fuse_unk", false);
  byte_fallback_ = read_flag(model, "byte_fallback", false);
  ignore_merges_ = read_flag(model, "ignore_merges", false);
  read_tokens(model["vocab"]);
  read_merges(model["merges"], prefix_.size());
}

void Vocabulary::read_tokens(const Json& tokens) {
  if (!tokens.is_object()) throw InvalidTokenizer{std::string("expected a vocabulary, found ") + tokens.python_type()};
  size_t size = 0;
  for (const auto& [token, id] : tokens.object()) size += token.size();
  reserve(size, tokens.object().size());
  for (const auto& [name, value] : tokens.object()) put(name, read_number(value, "vocab"));
}

// [["a", -1.5], ..], whose places are their ids.
void Vocabulary::read_pieces(const Json::List& pieces) {
  size_t size = 0;
  for (const Json& piece : pieces) {
    if (piece.list().empty()) throw InvalidTokenizer{"expected a piece and its score, found " + piece.repr()};
    size += piece.list()[0].text().size();
  }
  reserve(size, pieces.size());
  uint32_t id = 0;
  for (const Json& piece : pieces) {
    const std::string& name = piece.list()[0].text();
    ids_.erase(name);  // the last of equal pieces counts
    put(name, id++);
  }
}

// Room for the texts of all tokens, so that none moves.
void Vocabulary::reserve(size_t bytes, size_t count) {
  text_.reserve(bytes);
  ids_.reserve(count);
  tokens_ = FlatMap<std::string_view>(count);
  characters_ = FlatMap<uint32_t>(count);
}

void Vocabulary::put(const std::string& name, uint32_t id) {
  const std::string_view token(text_.data() + text_.size(), name.size());
  text_ += name;
  ids_.emplace(token, id);
  tokens_.set(id, token);
  if (!token.empty() && unicode::length(token[0]) == token.size()) characters_.set(unicode::decode(token, 0).code, id);
}

void Vocabulary::read_merges(const Json& merges, size_t prefix) {
  if (!merges.is_list()) throw InvalidTokenizer{std::string("expected merges, found ") + merges.python_type()};
  merges_ = FlatMap<Merge>(merges.list().size());
  std::string joined;
  uint32_t rank = 0;
  const auto found = [&](std::string_view token) {
    const std::optional<uint32_t> id = this->id(token);
    if (!id) throw InvalidTokenizer{"a merge has " + python_repr(unicode::lossy(token)) + ", which is not in the vocabulary"};
    return *id;
  };
  for (const Json& merge : merges.list()) {
    if (merge.is_text() && merge.text().compare(0, 8, "#version") == 0) continue;
    const auto [left, right] = sides(merge);
    const uint32_t left_id = found(left), right_id = found(right);
    if (right.size() < prefix) throw InvalidTokenizer{"a merge has " + python_repr(right) + ", shorter than the prefix"};
    joined.assign(left).append(right.substr(prefix));
    merges_.set(pair_of(left_id, right_id), {rank++, found(joined)});
  }
}

std::optional<uint32_t> Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string_view* Vocabulary::token(uint64_t id) const { return tokens_.find(id); }

void Vocabulary::encode(std::string_view piece, TokenIds& ids) const {
  if (other_) return other_->encode(piece, ids);
  if (ignore_merges_) {
    if (const std::optional<uint32_t> whole = id(piece)) {
      ids.push_back(*whole);
      return;
    }
  }
  std::vector<Symbol> found;
  symbols(piece, found);
  merge(found);
  for (const Symbol& symbol : found)
    if (!symbol.gone) ids.push_back(symbol.id);
}

void Vocabulary::symbols(std::string_view piece, std::vector<Symbol>& found) const {
  Word word(*this, found);
  std::string affixed;
  for (size_t at = 0; at < piece.size();) {
    const auto [code, size] = unicode::decode(piece, at);
    std::string_view text = piece.substr(at, size);
    const bool plain = (at == 0 || prefix_.empty()) && (at + size < piece.size() || suffix_.empty());
    if (!plain) {
      affixed.assign(at > 0 ? prefix_ : "").append(text).append(at + size == piece.size() ? suffix_ : "");
      text = affixed;
    }
    at += size;
    const uint32_t* character = plain ? characters_.find(code) : nullptr;
    const std::optional<uint32_t> id = character ? std::optional(*character) : plain ? std::nullopt : this->id(text);
    if (id)
      word.known(*id);
    else if (!byte_fallback_ || !word.bytes(text))
      word.unknown();
  }
  word.finish();
}

// The pair that the file merges first, of several the leftmost, until none is left.
void Vocabulary::merge(std::vector<Symbol>& symbols) const {
  struct Next {
    uint32_t rank;
    int32_t place;
    uint32_t id;
    bool operator<(const Next& other) const { return rank != other.rank ? rank > other.rank : place > other.place; }
  };
  std::priority_queue<Next> queue;
  const auto merge_at = [&](int32_t left) -> const Merge* {
    const int32_t right = left < 0 ? -1 : symbols[left].next;
    return right < 0 ? nullptr : merges_.find(pair_of(symbols[left].id, symbols[right].id));
  };
  const auto offer = [&](int32_t left) {
    if (const Merge* merge = merge_at(left)) queue.push({merge->rank, left, merge->id});
  };
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) offer(i);
  while (!queue.empty()) {
    const Next next = queue.top();
    queue.pop();
    Symbol& left = symbols[next.place];
    const Merge* merge = left.gone ? nullptr : merge_at(next.place);
    if (!merge || merge->id != next.id) continue;  // its symbols were merged with others since
    Symbol& right = symbols[left.next];
    right.gone = true;
    left.id = next.id;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].before = next.place;
    offer(left.before);
    offer(next.place);
  }
}

}  // namespace spc
