#include "draft_spans.h"

#include <algorithm>

namespace spc::http {

DraftSpans::DraftSpans(const std::shared_ptr<const Text>& text, const TokenIds& prompt) {
  if (text) detokenizer_.emplace(text, prompt, std::vector<std::string>());
}

Json DraftSpans::read(const OutputDelta& delta, const std::string& sent) {
  const auto count = static_cast<int64_t>(delta.token_ids.size());
  for (int64_t place = 0; detokenizer_ && place < count; ++place)
    lengths_.emplace_back(detokenizer_->push({delta.token_ids[static_cast<size_t>(place)]}).size(), place < delta.accepted);
  if (detokenizer_ && delta.finished) lengths_.emplace_back(detokenizer_->finish().size(), false);
  const int64_t accepted = std::min(delta.accepted, count);  // the end of the answer cuts off the rest
  Json found = Json::Object{{"draft_tokens", delta.draft_tokens}, {"accepted_tokens", accepted}};
  found.set("spans", detokenizer_ ? cut(sent) : Json::List());
  return found;
}

// Return the next text in parts, neighbours of one kind as one.
Json::List DraftSpans::cut(const std::string& sent) {
  std::vector<std::pair<std::string, bool>> spans;
  for (size_t at = 0; at < sent.size();) {
    auto [length, is_draft] = lengths_.empty() ? std::pair(sent.size() - at, false) : lengths_.front();
    if (!lengths_.empty()) lengths_.pop_front();
    const size_t taken = std::min(length, sent.size() - at);
    if (length > taken) lengths_.emplace_front(length - taken, is_draft);
    if (taken && (spans.empty() || spans.back().second != is_draft)) spans.emplace_back("", is_draft);
    if (taken) spans.back().first += sent.substr(at, taken);
    at += taken;
  }
  Json::List found;
  for (auto& [text, is_draft] : spans) found.push_back(Json::Object{{"text", std::move(text)}, {"draft", is_draft}});
  return found;
}

}  // namespace spc::http
