#include "prompts.h"

#include <algorithm>

#include "../errors.h"
#include "../words.h"

namespace spc::images {
namespace {

constexpr uint32_t kPrivate = 0xE000;  // first character without a meaning (Unicode's private use area)

// UTF-8 of a character of three bytes.
std::string utf8(uint32_t code) {
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)), static_cast<char>(0x80 | (code & 0x3F))};
}

// A tokenizer for which placeholders are text.
class PlainText : public Text {
 public:
  PlainText(std::shared_ptr<const Text> text, std::vector<std::string> placeholders) : text_(std::move(text)), placeholders_(std::move(placeholders)) {}

  TokenIds encode(std::string_view text, bool special_tokens) const override {
    const std::string given(text), mark = unused_mark({given});
    const std::vector<std::string> parts = split(marked(given, placeholders_, mark), mark);
    return parts.size() > 1 ? encode_parts(*text_, parts, special_tokens) : text_->encode(text, special_tokens);
  }
  std::string decode(const TokenIds& ids) const override { return text_->decode(ids); }
  TokenIds shown(const TokenIds& ids) const override { return text_->shown(ids); }
  bool is_byte(int64_t id) const override { return text_->is_byte(id); }
  std::string special_text(int64_t id) const override { return text_->special_text(id); }
  std::string id_to_token(int64_t id) const override { return text_->id_to_token(id); }
  int64_t size() const override { return text_->size(); }
  int64_t longest_token_bytes() const override { return text_->longest_token_bytes(); }

 private:
  const std::shared_ptr<const Text> text_;
  const std::vector<std::string> placeholders_;
};

void collect(const Json& value, std::vector<std::string>& found) {
  if (value.is_text()) found.push_back(value.text());
  for (const Json& each : value.list()) collect(each, found);
  for (const auto& [name, member] : value.object()) {
    found.push_back(name);
    collect(member, found);
  }
}

}  // namespace

std::string unused_mark(const std::vector<std::string>& texts) {
  for (uint32_t code = kPrivate;; ++code) {
    const std::string mark = utf8(code);
    if (std::all_of(texts.begin(), texts.end(), [&](const std::string& text) { return text.find(mark) == std::string::npos; })) return mark;
  }
}

std::string marked(std::string text, const std::vector<std::string>& tokens, const std::string& mark) {
  for (const std::string& token : tokens) {
    const size_t first = first_characters(token, 1).size();
    replace_all(text, token, token.substr(0, first) + mark + token.substr(first));
  }
  return text;
}

Json marked(const Json& value, const std::vector<std::string>& tokens, const std::string& mark) {
  Json changed = value;
  if (value.is_text()) return marked(value.text(), tokens, mark);
  for (Json& each : changed.list()) each = marked(each, tokens, mark);
  for (auto& [name, member] : changed.object()) {  // templates write the names of tools' parameters
    name = marked(name, tokens, mark);
    member = marked(member, tokens, mark);
  }
  return changed;
}

std::vector<std::string> texts_of(const Json& value) {
  std::vector<std::string> found;
  collect(value, found);
  return found;
}

std::string with_pictures(std::string text, const std::string& token, const std::vector<std::string>& texts, const std::string& alone) {
  std::vector<std::string> parts = split(text, token);
  if (parts.size() == 1 && !texts.empty()) {
    text.clear();
    for (size_t picture = 0; picture < texts.size(); ++picture) text += alone;
    parts = split(text + parts.front(), token);
  }
  if (parts.size() != texts.size() + 1)
    throw Error(Kind::kPrompt, "placeholders " + token + ": received " + std::to_string(parts.size() - 1) + " in the prompt, expected " +
                                   std::to_string(texts.size()) + ", one for each picture",
                "write " + token + " once where each picture belongs, or nowhere to have all of them first");
  std::string whole = parts.front();
  for (size_t picture = 0; picture < texts.size(); ++picture) whole += texts[picture] + parts[picture + 1];
  return whole;
}

TokenIds encode_parts(const Text& text, const std::vector<std::string>& parts, bool special_tokens) {
  if (special_tokens && parts.size() == 1) return text.encode(parts.front(), true);
  TokenIds ids;
  for (const std::string& part : parts) {
    const TokenIds found = text.encode(part, false);
    ids.insert(ids.end(), found.begin(), found.end());
  }
  if (!special_tokens) return ids;
  const TokenIds bare = text.encode("a", false), whole = text.encode("a", true);
  const auto at = std::search(whole.begin(), whole.end(), bare.begin(), bare.end());
  const auto start = at == whole.end() ? whole.begin() : at;
  TokenIds all(whole.begin(), start);
  all.insert(all.end(), ids.begin(), ids.end());
  const auto behind = std::min<std::ptrdiff_t>(whole.end() - start, static_cast<std::ptrdiff_t>(bare.size()));
  all.insert(all.end(), start + behind, whole.end());
  return all;
}

std::shared_ptr<const Text> without_placeholders(std::shared_ptr<const Text> text, std::vector<std::string> placeholders) {
  return std::make_shared<const PlainText>(std::move(text), std::move(placeholders));
}

std::vector<std::string> split(const std::string& text, const std::string& mark) {
  std::vector<std::string> found;
  size_t begin = 0;
  for (size_t at = mark.empty() ? std::string::npos : text.find(mark); at != std::string::npos; at = text.find(mark, begin)) {
    found.push_back(text.substr(begin, at - begin));
    begin = at + mark.size();
  }
  found.push_back(text.substr(begin));
  return found;
}

}  // namespace spc::images
