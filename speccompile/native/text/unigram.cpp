#include "unigram.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "bytes.h"
#include "reading.h"
#include "unicode.h"

namespace spc {
namespace {

// A score as the library's JSON parser reads it: the digits as a whole number, which one multiplication or division scales. It may
// be off by the last bit, which decides between paths whose scores are equal.
double score_of(double score) {
  char text[40] = {};
  const char* const end = std::to_chars(text, text + sizeof text - 1, std::fabs(score), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0;
  const char* at = text;
  for (bool is_behind = false; at < end && *at != 'e'; ++at) {
    if (*at == '.') {
      is_behind = true;
      continue;
    }
    digits = digits * 10 + static_cast<uint64_t>(*at - '0');
    exponent -= is_behind;
  }
  if (at == end) return score;  // no number
  exponent += std::atoi(at + 1);
  const double power = std::strtod(("1e" + std::to_string(std::abs(exponent))).c_str(), nullptr), whole = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? whole / power : whole * power, score);
}

constexpr double kUnknownPenalty = 10;
constexpr int64_t kNone = -1;
constexpr uint32_t kRoot = 0;

}  // namespace

Unigram::Unigram(const Json& model, const TokenFinder& ids) : ids_(ids) {
  byte_fallback_ = read_flag(model, "byte_fallback", false);
  const Json::List& pieces = read_list(model, "vocab");
  size_t bytes = 0;
  for (const Json& piece : pieces) bytes += piece.list().empty() ? 0 : piece.list()[0].text().size();
  children_ = FlatMap<uint32_t>(bytes);
  tokens_.push_back(kNone);
  double least = std::numeric_limits<double>::infinity();
  for (const Json& piece : pieces) {
    const Json::List& pair = piece.list();
    if (pair.size() != 2 || !pair[0].is_text() || !pair[1].is_number()) throw InvalidTokenizer{"expected a piece and its score, found " + piece.repr()};
    uint32_t node = kRoot;
    for (const char byte : pair[0].text()) {
      const uint32_t* const next = children_.find(trie_edge(node, byte));
      const uint32_t found = next ? *next : static_cast<uint32_t>(tokens_.size());
      if (!next) {
        children_.set(trie_edge(node, byte), found);
        tokens_.push_back(kNone);
      }
      node = found;
    }
    tokens_[node] = static_cast<int64_t>(scores_.size());  // the last of equal pieces counts
    scores_.push_back(pair[1].is_integer() ? pair[1].number() : score_of(pair[1].number()));
    least = std::min(least, scores_.back());
  }
  unknown_score_ = least - kUnknownPenalty;
  if (model["unk_id"].is_null()) return;
  unknown_ = read_number(model["unk_id"], "unk_id");
  if (*unknown_ >= scores_.size()) throw InvalidTokenizer{"unk_id " + std::to_string(*unknown_) + " of " + std::to_string(scores_.size()) + " pieces"};
}

// Return, for every position in a piece, the beginning of the last token of the best segmentation up to it.
std::vector<Unigram::Node> Unigram::best_paths(std::string_view piece) const {
  std::vector<Node> ends(piece.size() + 1);
  const auto is_better = [&](size_t start, size_t end, double score) { return !ends[end].reached || score + ends[start].score > ends[end].score; };
  const auto offer = [&](size_t start, size_t end, uint32_t id, double score) {
    if (is_better(start, end, score)) ends[end] = {score + ends[start].score, start, id, true};
  };
  for (size_t start = 0; start < piece.size();) {
    const size_t size = unicode::length(piece[start]);
    bool has_single = false;
    uint32_t node = kRoot;
    for (size_t at = start; at < piece.size(); ++at) {
      const uint32_t* const next = children_.find(trie_edge(node, piece[at]));
      if (!next) break;
      node = *next;
      if (tokens_[node] == kNone) continue;
      const auto id = static_cast<uint32_t>(tokens_[node]);
      offer(start, at + 1, id, scores_[id]);
      has_single = has_single || at + 1 - start == size;
    }
    if (!has_single && is_better(start, start + size, unknown_score_)) {
      if (!unknown_) throw NoUnknownToken{"unk_id"};
      offer(start, start + size, *unknown_, unknown_score_);
    }
    start += size;
  }
  return ends;
}

void Unigram::encode(std::string_view piece, TokenIds& ids) const {
  if (piece.empty()) return;
  const std::vector<Node> ends = best_paths(piece);
  std::vector<std::string_view> found;  // from the last to the first
  size_t unknown_end = 0;
  for (size_t end = piece.size(); end > 0; end = ends[end].start) {
    const size_t start = ends[end].start;
    if (unknown_ && ends[end].id == *unknown_) {  // unknown characters in a row are one token
      unknown_end = unknown_end ? unknown_end : end;
      if (start > 0 && ends[start].id == *unknown_) continue;
      found.push_back(piece.substr(start, unknown_end - start));
      unknown_end = 0;
    } else {
      found.push_back(piece.substr(start, end - start));
    }
  }
  for (auto each = found.rbegin(); each != found.rend(); ++each) add(*each, ids);
}

void Unigram::add(std::string_view text, TokenIds& ids) const {
  if (const std::optional<uint32_t> id = ids_.id(text)) {
    ids.push_back(*id);
    return;
  }
  if (const std::optional<TokenIds> bytes = byte_fallback_ ? byte_tokens(text, ids_) : std::nullopt) {
    ids.insert(ids.end(), bytes->begin(), bytes->end());
    return;
  }
  if (!unknown_) throw NoUnknownToken{"unk_id"};
  ids.push_back(*unknown_);
}

}  // namespace spc
