// IncrementalDetokenizer of tokenizer.py, with UTF-8 instead of characters: both cut the same texts, for no piece ends inside a character and a
// stop string is found at the same places.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "../errors.h"
#include "../json.h"
#include "../words.h"
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
  return "[" + comma_separated(stop, [](const std::string& each) { return python_repr(each); }) + "]";
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
    const std::string special = text_->special_text(id);
    pieces += special.empty() ? until_stop(decode({id})) : pass_special(special);
  }
  return pieces;
}

std::string IncrementalDetokenizer::finish() {
  if (stopped_) return "";
  context_ = joined(context_, pending_, pending_.size());
  const std::string whole = text_->decode(context_);
  std::string piece = until_stop(new_part(known_, whole));
  piece += held_.shown(held_.size());
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

// Return the text before a special token: bytes of an incomplete character come before a stop string that the token completes.
std::string IncrementalDetokenizer::pass_special(const std::string& special) {
  const std::string rest = pending_.empty() ? "" : new_part(known_, text_->decode(joined(context_, pending_, pending_.size())));
  HeldText whole = held_;
  whole.append(rest);
  whole.append(special, true);
  if (rest.empty() || whole.first_stop(stop_) == std::string::npos) return until_stop(special, true);
  const std::string shown = until_stop(rest);
  return stopped_ ? shown : shown + until_stop(special, true);
}

// Return the part of the held text and `piece` that may be shown. hidden: `piece` is a special token's text.
std::string IncrementalDetokenizer::until_stop(const std::string& piece, bool hidden) {
  held_.append(piece, hidden);
  const size_t found = held_.first_stop(stop_);
  stopped_ = found != std::string::npos;
  const size_t end = stopped_ ? found : held_.first_open(stop_);
  std::string text = held_.shown(end);
  held_.drop(stopped_ ? held_.size() : end);
  return text;
}

void HeldText::append(std::string_view piece, bool hidden) {
  text_ += piece;
  hidden_.resize(text_.size(), hidden);
}

void HeldText::drop(size_t end) {
  text_.erase(0, end);
  hidden_.erase(hidden_.begin(), hidden_.begin() + static_cast<std::ptrdiff_t>(end));
}

std::string HeldText::shown(size_t end) const {
  std::string text;
  for (size_t at = 0; at < end; ++at)
    if (!hidden_[at]) text += text_[at];
  return text;
}

size_t HeldText::first_stop(const std::vector<std::string>& stops) const {
  size_t end = std::string::npos, begin = std::string::npos;
  for (const Reading& reading : readings()) {
    for (const std::string& stop : stops) {
      const size_t start = reading.text.find(stop);
      if (start == std::string::npos) continue;
      const auto found = std::make_pair(reading.places[start + stop.size() - 1], reading.places[start]);
      if (found < std::make_pair(end, begin)) std::tie(end, begin) = found;
    }
  }
  return begin;
}

size_t HeldText::first_open(const std::vector<std::string>& stops) const {
  size_t longest = 0, first = text_.size();
  for (const std::string& stop : stops) longest = std::max(longest, stop.size());
  for (const auto& [text, places] : readings())
    for (size_t start = text.size() - std::min(text.size(), longest); start < text.size(); ++start)
      for (const std::string& stop : stops)
        if (stop.compare(0, text.size() - start, text, start, std::string::npos) == 0) first = std::min(first, places[start]);
  return first;
}

std::vector<HeldText::Reading> HeldText::readings() const {
  std::vector<Reading> found(1);
  found[0].text = text_;
  found[0].places.resize(text_.size());
  std::iota(found[0].places.begin(), found[0].places.end(), size_t{0});
  if (std::find(hidden_.begin(), hidden_.end(), true) == hidden_.end()) return found;
  Reading shown;
  for (size_t at = 0; at < text_.size(); ++at) {
    if (hidden_[at]) continue;
    shown.text += text_[at];
    shown.places.push_back(at);
  }
  found.push_back(std::move(shown));
  return found;
}

}  // namespace spc
