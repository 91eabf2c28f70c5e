// text.py's Stream, with UTF-8 instead of characters: both cut the same texts, for no piece ends inside a character and a
// stop string is found at the same places.
#include <algorithm>

#include "../errors.h"
#include "../json.h"
#include "text.h"
#include "unicode.h"

namespace spc {
namespace {

// Token ids before the new ones that are decoded with them. What a decoder makes of a token depends on its neighbours: a
// word's leading space on the token before, and UTF-8 is in step again three bytes after any cut.
constexpr size_t kContext = 8;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string without_replacement(std::string text) {
  const size_t size = kReplacement.size();
  if (text.size() >= size && text.compare(text.size() - size, size, kReplacement) == 0) text.resize(text.size() - size);
  return text;
}

// A prompt may end inside a character, which the first new token then completes.
std::string new_part(const std::string& known, const std::string& whole) {
  size_t same = 0;
  while (same < known.size() && same < whole.size() && known[same] == whole[same]) ++same;
  while (same > 0 && same < whole.size() && unicode::continues(whole[same])) --same;
  return whole.substr(same);
}

TokenIds joined(const TokenIds& left, const TokenIds& right, size_t count) {
  TokenIds ids = left;
  ids.insert(ids.end(), right.begin(), right.begin() + static_cast<std::ptrdiff_t>(count));
  return ids;
}

std::string repr(const std::vector<std::string>& stop) {
  std::string text;
  for (const std::string& each : stop) text += (text.empty() ? "" : ", ") + python_repr(each);
  return "[" + text + "]";
}

}  // namespace

IncrementalDetokenizer::IncrementalDetokenizer(std::shared_ptr<const Text> text, const TokenIds& prompt, std::vector<std::string> stop)
    : text_(std::move(text)), stop_(std::move(stop)) {
  if (std::find(stop_.begin(), stop_.end(), "") != stop_.end())
    throw Error(Kind::kPrompt, "empty stop string in " + repr(stop_), "leave it out, or give at least one character");
  context_ = last_shown(prompt);
  known_ = text_->decode(context_);
}

std::string IncrementalDetokenizer::push(const TokenIds& ids) {
  if (!has_stop()) {
    kept_ += ids.size();
    return decode(ids);
  }
  std::string pieces;
  for (const int64_t id : ids) {
    if (stopped_) break;
    ++kept_;
    pieces += until_stop(decode({id}));
  }
  return pieces;
}

std::string IncrementalDetokenizer::finish() {
  if (stopped_) return "";
  const std::string whole = text_->decode(joined(context_, pending_, pending_.size()));
  std::string piece = until_stop(new_part(known_, whole));
  piece += held_;
  held_.clear();
  pending_.clear();
  known_ = whole;
  return piece;
}

TokenIds IncrementalDetokenizer::last_shown(const TokenIds& prompt) const {
  const TokenIds shown = text_->shown(prompt);
  size_t start = shown.size() - std::min(shown.size(), kContext);
  while (start > 0 && text_->is_byte(shown[start])) --start;
  return {shown.begin() + static_cast<std::ptrdiff_t>(start), shown.end()};
}

// The text that is certain with some more tokens.
std::string IncrementalDetokenizer::decode(const TokenIds& ids) {
  const TokenIds shown = text_->shown(ids);
  pending_.insert(pending_.end(), shown.begin(), shown.end());
  size_t ready = pending_.size();
  while (ready > 0 && text_->is_byte(pending_[ready - 1])) --ready;
  if (ready == 0) return "";
  const TokenIds all = joined(context_, pending_, ready);
  std::string piece = new_part(known_, without_replacement(text_->decode(all)));
  if (piece.empty()) return piece;
  context_.assign(all.end() - static_cast<std::ptrdiff_t>(std::min(all.size(), kContext)), all.end());
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(ready));
  known_ = without_replacement(text_->decode(context_));
  return piece;
}

// What of the held text and `piece` may be shown. Of several stop strings the one that ends first counts, and of those the
// one that begins first.
std::string IncrementalDetokenizer::until_stop(const std::string& piece) {
  std::string text = held_ + piece;
  size_t end = std::string::npos, begin = 0;
  for (const std::string& stop : stop_) {
    const size_t start = text.find(stop);
    if (start == std::string::npos || std::make_pair(start + stop.size(), start) >= std::make_pair(end, begin)) continue;
    begin = start;
    end = start + stop.size();
  }
  stopped_ = end != std::string::npos;
  if (!stopped_) begin = first_open(text);
  held_ = stopped_ ? "" : text.substr(begin);
  text.resize(begin);
  return text;
}

// Where the text begins that may yet become a stop string; its size when nothing may.
size_t IncrementalDetokenizer::first_open(const std::string& text) const {
  size_t longest = 0;
  for (const std::string& stop : stop_) longest = std::max(longest, stop.size());
  for (size_t start = text.size() - std::min(text.size(), longest); start < text.size(); ++start)
    for (const std::string& stop : stop_)
      if (stop.compare(0, text.size() - start, text, start, std::string::npos) == 0) return start;
  return text.size();
}

}  // namespace spc
