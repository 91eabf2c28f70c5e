#include "tokens.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "../errors.h"
#include "../text/bytes.h"
#include "../text/unicode.h"

namespace spc::constraints {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(Kind::kUsage, "constraint: this tokenizer's tokens have no bytes that are known: " + why, "leave constraints out");
}

// Spelling of bytes in the tokenizer's names of tokens.
struct Spelling {
  bool is_byte_level = false, has_byte_fallback = false;
  std::string space = " ";

  void read(const Json& decoder) {
    const std::string& type = decoder["type"].text();
    is_byte_level = is_byte_level || type == "ByteLevel";
    has_byte_fallback = has_byte_fallback || type == "ByteFallback";
    if (type == "Replace" && decoder["content"] == Json(" "))
      read_space(decoder["pattern"]["String"].text());
    if (type == "Metaspace") read_space(decoder["replacement"].text());
    for (const Json& each : decoder["decoders"].list()) read(each);
  }

  void read_space(const std::string& letter) {
    if (!letter.empty() && unicode::length(letter[0]) == letter.size()) space = letter;
  }
};

std::string with_bytes(const std::string& name) {
  static const std::map<std::string, char> kBytes = [] {
    std::map<std::string, char> found;
    for (int byte = 0; byte < 256; ++byte) found[std::string(letter_of_byte(static_cast<char>(byte)))] = static_cast<char>(byte);
    return found;
  }();
  std::string bytes;
  for (size_t at = 0; at < name.size();) {
    const size_t size = std::min<size_t>(unicode::length(name[at]), name.size() - at);
    const auto found = kBytes.find(name.substr(at, size));
    if (found == kBytes.end()) return "";  // such a token stands for nothing
    bytes += found->second;
    at += size;
  }
  return bytes;
}

std::optional<char> byte_of(const std::string& name) {
  if (name.size() != 6 || name.compare(0, 3, "<0x") != 0 || name[5] != '>') return std::nullopt;
  const std::string_view digits = "0123456789ABCDEF";
  const size_t high = digits.find(name[3]), low = digits.find(name[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<char>(high << 4 | low);
}

std::string spelled(const std::string& name, const Spelling& spelling) {
  if (!spelling.has_byte_fallback) return with_bytes(name);
  if (const auto byte = byte_of(name)) return std::string(1, *byte);
  std::string text = name;
  for (size_t at = 0; spelling.space != " " && (at = text.find(spelling.space, at)) != std::string::npos; ++at) text.replace(at, spelling.space.size(), " ");
  return text;
}

// Return the tokenizer without its prefixes of a text: Prepend, and Metaspace's first blank.
Json without_prefix(const Json& step, const char* several) {
  if (step["type"] == Json("Prepend")) return Json();
  Json found = step;
  if (step["type"] == Json("Metaspace")) found.set("prepend_scheme", "never");
  if (step["type"] != Json("Sequence")) return found;
  Json::List kept;
  for (const Json& each : step[several].list())
    if (Json left = without_prefix(each, several); !left.is_null()) kept.push_back(std::move(left));
  if (kept.empty()) return Json();
  found.set(several, kept);
  return found;
}

}  // namespace

Tokens::Tokens(const Json& definition, int64_t vocabulary_size, const std::vector<int64_t>& ends) : bytes_(static_cast<size_t>(vocabulary_size)) {
  for (const int64_t end : ends)
    if (end < vocabulary_size) ends_.push_back(end);
  read(definition);
  grow();
  Json own = definition;
  own.set("normalizer", without_prefix(definition["normalizer"], "normalizers"));
  own.set("pre_tokenizer", without_prefix(definition["pre_tokenizer"], "pretokenizers"));
  own.set("post_processor", Json());
  text_ = Text::of(own);
}

void Tokens::read(const Json& definition) {
  Spelling spelling;
  spelling.read(definition["decoder"]);
  if (!spelling.is_byte_level && !spelling.has_byte_fallback) refuse("its decoder is neither ByteLevel nor ByteFallback");
  const auto has_row = [&](const Json& id) { return id.is_integer() && id.integer() >= 0 && id.integer() < size(); };
  const Json& vocabulary = definition["model"]["vocab"];
  for (const auto& [name, id] : vocabulary.object())
    if (has_row(id)) bytes_[static_cast<size_t>(id.integer())] = spelled(name, spelling);
  const Json::List& pairs = vocabulary.list();  // of Unigram: token and score, in the order of their ids
  for (size_t id = 0; id < std::min(pairs.size(), bytes_.size()); ++id)
    if (!pairs[id].list().empty()) bytes_[id] = spelled(pairs[id].list()[0].text(), spelling);
  for (const Json& each : definition["added_tokens"].list()) {
    const std::string& content = each["content"].text();
    if (!has_row(each["id"]) || content.empty()) continue;
    const int64_t id = each["id"].integer();
    const bool is_special = each["special"].boolean() || (content.front() == '<' && content.back() == '>');
    const std::string text = spelled(content, spelling);
    bytes_[static_cast<size_t>(id)] = is_special ? mark(id) : text.empty() ? content : text;
    if (is_special) specials_.emplace_back(content, id);
  }
}

void Tokens::grow() {
  std::vector<int32_t> order;
  for (int32_t token = 0; token < size(); ++token) {
    longest_ = std::max(longest_, bytes(token).size());
    if (!bytes(token).empty()) order.push_back(token);
  }
  std::sort(order.begin(), order.end(), [&](int32_t left, int32_t right) { return std::pair(bytes(left), left) < std::pair(bytes(right), right); });
  std::vector<int32_t> path;  // the nodes of the token before
  const std::string* before = nullptr;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[static_cast<size_t>(path.back())].end = static_cast<int32_t>(nodes_.size());
  };
  for (const int32_t token : order) {
    const std::string& text = bytes(token);
    size_t shared = 0;
    while (before && shared < std::min(text.size(), before->size()) && text[shared] == (*before)[shared]) ++shared;
    close(shared);
    for (size_t at = shared; at < text.size(); ++at) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({static_cast<uint8_t>(text[at]), static_cast<int32_t>(at), -1, 0});
    }
    TrieNode& node = nodes_[static_cast<size_t>(path.back())];
    if (node.token < 0)
      node.token = token;
    else
      same_.emplace_back(node.token, token);
    before = &text;
  }
  close(0);
}

int64_t Tokens::special(std::string_view text) const {
  for (const auto& [content, id] : specials_)
    if (content == text) return id;
  return -1;
}

void Tokens::allow(Parser& parser, uint8_t* mask) const {
  const size_t base = parser.size();
  for (size_t at = 0; at < nodes_.size();) {
    const TrieNode& node = nodes_[at];
    parser.pop(parser.size() - base - static_cast<size_t>(node.depth));
    if (!parser.push(node.byte)) {
      at = static_cast<size_t>(node.end);
      continue;
    }
    if (node.token >= 0) mask[node.token] = 1;
    ++at;
  }
  parser.pop(parser.size() - base);
  for (const auto& [token, other] : same_)
    if (mask[token]) mask[other] = 1;
}

int32_t Tokens::find(std::string_view bytes) const {
  int32_t at = 0, end = static_cast<int32_t>(nodes_.size()), found = -1;
  for (const char byte : bytes) {
    while (at < end && nodes_[static_cast<size_t>(at)].byte != static_cast<uint8_t>(byte)) at = nodes_[static_cast<size_t>(at)].end;
    if (at >= end) return -1;
    found = at;
    end = nodes_[static_cast<size_t>(at)].end;
    ++at;
  }
  return found;
}

void Tokens::encode_text(std::string_view bytes, TokenIds& found) const {
  while (!bytes.empty()) {
    const size_t valid = std::min(first_invalid_utf8(bytes), bytes.size());
    const TokenIds ids = text_->encode(bytes.substr(0, valid), false);
    found.insert(found.end(), ids.begin(), ids.end());
    bytes.remove_prefix(valid);
    for (bool goes_on = !bytes.empty(); goes_on;) {  // bytes that are no character: the longest token each time
      size_t taken = 1;
      int32_t token = -1;
      for (size_t count = 1; count <= std::min(bytes.size(), longest_); ++count) {
        const int32_t node = find(bytes.substr(0, count));
        if (node < 0) break;
        if (nodes_[static_cast<size_t>(node)].token < 0) continue;
        token = nodes_[static_cast<size_t>(node)].token;
        taken = count;
      }
      if (token >= 0) found.push_back(token);
      bytes.remove_prefix(taken);
      goes_on = !bytes.empty() && (static_cast<uint8_t>(bytes[0]) & 0xC0) == 0x80;
    }
  }
}

TokenIds Tokens::encode(std::string_view bytes, size_t& fixed) const {
  TokenIds found;
  fixed = 0;
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.find(kSpecialMark), bytes.size());
    const size_t before = found.size();
    encode_text(bytes.substr(0, count), found);
    for (size_t at = before; at < found.size(); ++at)
      if (found[at] < size() && is_special(found[at])) fixed = at + 1;
    bytes.remove_prefix(count);
    if (bytes.empty()) break;
    int64_t token = 0;
    const size_t end = std::min(bytes.find(']'), bytes.size() - 1);
    for (size_t at = 2; at < end; ++at) token = token * 10 + (bytes[at] - '0');
    found.push_back(token);
    fixed = found.size();
    bytes.remove_prefix(end + 1);
  }
  return found;
}

size_t Tokens::open_bytes(Parser& parser, std::string_view bytes) const {
  const size_t base = parser.size();
  for (size_t from = bytes.size() - std::min(bytes.size(), longest_); from < bytes.size(); ++from) {
    const int32_t start = find(bytes.substr(from));
    if (start < 0) continue;
    const int32_t depth = nodes_[static_cast<size_t>(start)].depth + 1;
    bool is_open = false;
    for (int32_t at = start + 1; at < nodes_[static_cast<size_t>(start)].end && !is_open;) {
      const TrieNode& node = nodes_[static_cast<size_t>(at)];
      parser.pop(parser.size() - base - static_cast<size_t>(node.depth - depth));
      if (!parser.push(node.byte)) {
        at = node.end;
        continue;
      }
      is_open = node.token >= 0;
      ++at;
    }
    parser.pop(parser.size() - base);
    if (is_open) return bytes.size() - from;
  }
  return 0;
}

}  // namespace spc::constraints
