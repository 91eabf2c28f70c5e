#include "token_texts.h"

#include <algorithm>
#include <utility>

#include "../../text/bytes.h"
#include "../../text/unicode.h"
#include "../../words.h"

namespace spc::http {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

TokenText complete(const std::string& text) {
  std::vector<int64_t> bytes;
  for (const char each : text) bytes.push_back(static_cast<unsigned char>(each));
  return {text, std::move(bytes)};
}

// Return the bytes for which the letters of a byte-level name stand, none if a letter stands for no byte.
std::optional<std::vector<int64_t>> bytes_of(const std::string& name) {
  std::vector<int64_t> found;
  for (size_t at = 0; at < name.size();) {
    const auto [code, size] = unicode::decode(name, at);
    const int byte = byte_of_letter(code);
    if (byte < 0) return std::nullopt;
    found.push_back(byte);
    at += size;
  }
  return found;
}

}  // namespace

int64_t characters(const std::string& text) { return static_cast<int64_t>(character_count(text)); }

TokenTexts::TokenTexts(std::shared_ptr<const Text> tokenizer) : tokenizer_(std::move(tokenizer)) {
  if (!tokenizer_) return;
  before_ = tokenizer_->encode("a", false);
  before_.resize(std::min<size_t>(before_.size(), 1));
}

const TokenText& TokenTexts::of(int64_t token) const {
  const std::lock_guard<std::mutex> held(mutex_);
  const auto found = known_.find(token);
  return found != known_.end() ? found->second : known_.emplace(token, find(token)).first->second;
}

TokenText TokenTexts::find(int64_t token) const {
  const std::string number = "token_id:" + std::to_string(token);
  if (!tokenizer_) return complete(number);
  const std::string name = tokenizer_->id_to_token(token);
  if (tokenizer_->shown({token}).empty()) return complete(name.empty() ? number : name);  // special: its name stands for it
  TokenIds both = before_;
  both.push_back(token);
  const std::string alone = tokenizer_->decode(before_), written = tokenizer_->decode(both).substr(alone.size());
  if (written.find(kReplacement) == std::string::npos) return complete(written);
  if (tokenizer_->is_byte(token)) return {kReplacement, std::vector<int64_t>{std::stoll(name.substr(3, name.size() - 4), nullptr, 16)}};  // <0x0A>
  return {written, bytes_of(name)};
}

TextOffsets::TextOffsets(const TokenTexts& texts, const TokenIds& prompt, int64_t start) : texts_(texts), end_(start) {
  if (texts.tokenizer()) stream_.emplace(texts.tokenizer(), prompt, std::vector<std::string>());
}

std::vector<int64_t> TextOffsets::take(const TokenIds& tokens, std::optional<int64_t> most) {
  std::vector<int64_t> found;
  for (const int64_t token : tokens) found.push_back(take(token));
  if (most)
    for (int64_t& offset : found) offset = std::min(offset, *most);
  return found;
}

int64_t TextOffsets::take(int64_t token) {
  if (!stream_) return end_;  // without a tokenizer there is no text
  const int64_t start = end_;
  end_ += characters(stream_->push({token}));
  // the text of a run of byte tokens appears with the token behind it, whose own text begins after that
  return end_ > start ? std::max(start, end_ - characters(texts_.of(token).text)) : start;
}

}  // namespace spc::http
