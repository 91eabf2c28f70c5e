#include "added.h"

#include <algorithm>

#include "reading.h"

namespace spc {
namespace {

AddedToken read_token(const Json& json) {
  AddedToken token;
  read_number(json["id"], "id");  // not looked at: a token has the id of the vocabulary, or the next one
  token.content = read_text(json, "content");
  token.single_word = read_flag(json, "single_word");
  token.left_strip = read_flag(json, "lstrip");
  token.right_strip = read_flag(json, "rstrip");
  token.normalized = read_flag(json, "normalized");
  token.special = read_flag(json, "special");
  return token;
}

}  // namespace

bool AddedToken::operator==(const AddedToken& other) const {
  return content == other.content && single_word == other.single_word && left_strip == other.left_strip &&
         right_strip == other.right_strip && normalized == other.normalized && special == other.special;
}

void Finder::add(std::string_view text, uint32_t id) {
  uint32_t node = 0;
  for (const char byte : text) {
    const auto fresh = static_cast<uint32_t>(nodes_.size() + 1);
    node = nodes_.emplace(trie_edge(node, byte), fresh).first->second;
  }
  if (text.empty()) throw InvalidTokenizer{"an added token of no text"};
  if (!ends_.emplace(node, id).second) throw InvalidTokenizer{"two added tokens " + python_repr(text)};
  begins_[static_cast<unsigned char>(text[0])] = true;
}

bool Finder::find(std::string_view text, size_t from, Found& found) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    uint32_t node = 0;
    found.end = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto next = nodes_.find(trie_edge(node, text[at]));
      if (next == nodes_.end()) break;
      node = next->second;
      if (const auto end = ends_.find(node); end != ends_.end()) found = {begin, at + 1, end->second};
    }
    if (found.end) return true;
  }
  return false;
}

AddedTokens::AddedTokens(const Json& tokens, const Vocabulary& vocabulary, const Normalizers& normalizers)
    : normalizers_(normalizers) {
  if (!tokens.is_null() && !tokens.is_list())
    throw InvalidTokenizer{std::string("expected a list of added tokens, found ") + tokens.python_type()};
  auto next = static_cast<uint32_t>(vocabulary.size());
  for (const Json& each : tokens.list()) add(read_token(each), vocabulary, next);
  for (const auto& [id, token] : tokens_) {
    if (token.normalized)
      normalized_.add(*this->token(id), static_cast<uint32_t>(id));
    else
      plain_.add(token.content, static_cast<uint32_t>(id));
  }
}

void AddedTokens::add(AddedToken token, const Vocabulary& vocabulary, uint32_t& next) {
  if (token.content.empty()) return;
  std::optional<uint32_t> id = this->id(token.content);
  if (id && tokens_[*id] == token) return;
  if (!id) id = vocabulary.id(token.content);
  if (!id) id = next++;
  if (token.normalized) {
    NormalizedString line;
    line.text = token.content;
    std::string shown = normalized(normalizers_, std::move(line)).text;
    if (shown != token.content) shown_[*id] = std::move(shown);
  }
  ids_[token.content] = *id;
  if (token.special) special_.insert(token.content);
  tokens_[*id] = std::move(token);
}

std::optional<uint32_t> AddedTokens::id(const std::string& token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* AddedTokens::token(int64_t id) const {
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) return nullptr;
  const auto shown = shown_.find(id);
  return shown == shown_.end() ? &found->second.content : &shown->second;
}

bool AddedTokens::is_special(int64_t id) const {
  const auto found = tokens_.find(id);
  return found != tokens_.end() && found->second.special;
}

std::string AddedTokens::special_text(int64_t id) const {
  const auto found = tokens_.find(id);
  return found != tokens_.end() && found->second.special ? found->second.content : "";
}

PreTokenizedString AddedTokens::split(std::string_view text, bool tracked) const {
  std::vector<Piece> list;
  find(plain_, text, list);
  PreTokenizedString pieces{{{}, {}, tracked}, {}};
  for (const Piece& piece : list) {
    if (piece.token != kNoToken) {
      pieces.list.push_back({0, 0, piece.token});
      continue;
    }
    NormalizedString line = pieces.line.empty_like();
    line.text = text.substr(piece.begin, piece.end - piece.begin);
    for (size_t at = piece.begin; tracked && at < piece.end;) {
      const size_t size = unicode::length(text[at]);
      line.from.insert(line.from.end(), size, at);
      at += size;
    }
    line = normalized(normalizers_, std::move(line));
    const size_t start = pieces.line.text.size(), first = pieces.list.size();
    pieces.line.copy(line, 0, line.text.size());
    find(normalized_, line.text, pieces.list);
    for (size_t i = first; i < pieces.list.size(); ++i) {
      pieces.list[i].begin += start;
      pieces.list[i].end += start;
    }
  }
  return pieces;
}

void AddedTokens::find(const Finder& finder, std::string_view text, std::vector<Piece>& list) const {
  const auto is_word = [&](size_t at) { return word_.has(unicode::decode(text, at).code); };
  const auto is_space = [&](size_t at) { return space_.has(unicode::decode(text, at).code); };
  size_t last = 0;
  Finder::Found found{};
  for (size_t from = 0; !finder.empty() && finder.find(text, from, found);) {
    from = found.end;
    size_t begin = found.begin, end = found.end;
    const AddedToken& token = tokens_.at(found.id);
    const bool joined = (begin > 0 && is_word(unicode::before(text, begin))) || (end < text.size() && is_word(end));
    if (token.single_word && joined) continue;
    if (token.left_strip) {
      while (begin > 0 && is_space(unicode::before(text, begin))) begin = unicode::before(text, begin);
      begin = std::max(begin, last);  // the token before may have taken these spaces
    }
    if (token.right_strip)
      while (end < text.size() && is_space(end)) end += unicode::length(text[end]);
    if (last < begin) list.push_back({last, begin});
    list.push_back({begin, end, found.id});
    last = end;
  }
  if (last != text.size()) list.push_back({last, text.size()});
}

}  // namespace spc
