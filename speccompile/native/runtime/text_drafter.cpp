#include "text_drafter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "../words.h"
#include "session.h"

namespace spc {
namespace {

constexpr size_t kLookbehind = 10;                  // tokens of the text that are read again with the drafts
constexpr const char* kPartial = "\xEF\xBF\xBD";    // U+FFFD: bytes that are no character, or not all of one yet

class TextDrafter {
 public:
  TextDrafter(std::shared_ptr<const Bundle> writer, std::shared_ptr<const Text> target, int64_t tokens)
      : writer_(std::move(writer)), target_(std::move(target)), session_(writer_), tokens_(tokens) {}

  Drafts propose(const TokenIds& tokens) {
    const std::string text = target_->decode(tokens);
    if (text.empty() || ends_with(text, kPartial)) return {};
    TokenIds read = writer_->text()->encode(text);
    if (static_cast<int64_t>(read.size()) + tokens_ > writer_->manifest().max_length) return {};
    Request request;
    request.prompts = {std::move(read)};
    request.set(Request::kAll, "max_new_tokens", Value::of(static_cast<uint64_t>(tokens_)));
    session_.reuse_last();
    session_.start(request);
    while (session_.step()) continue;
    std::string written = session_.result(0)["text"].text();
    while (ends_with(written, kPartial)) written.resize(written.size() - std::string(kPartial).size());
    const size_t before = tokens.size() - std::min(kLookbehind, tokens.size());
    Drafts drafts{retokenized(TokenIds(tokens.begin() + static_cast<std::ptrdiff_t>(before), tokens.end()), written), {}};
    for (size_t draft = 0; draft < drafts.tokens.size(); ++draft) drafts.parents.push_back(static_cast<int64_t>(draft) - 1);
    return drafts;
  }

 private:
  // Return the target's tokens of a text after that of `tail`; none if the end of `tail` would be another one.
  TokenIds retokenized(const TokenIds& tail, const std::string& written) const {
    const std::string before = target_->decode(tail);
    const TokenIds old = target_->encode(before, false), both = target_->encode(before + written, false);
    if (both.size() < old.size() || !std::equal(old.begin(), old.end(), both.begin())) return {};
    return {both.begin() + static_cast<std::ptrdiff_t>(old.size()), both.end()};
  }

  const std::shared_ptr<const Bundle> writer_;
  const std::shared_ptr<const Text> target_;
  Session session_;
  const int64_t tokens_;
};

}  // namespace

Proposer text_proposer(std::shared_ptr<const Bundle> writer, std::shared_ptr<const Text> target, int64_t tokens) {
  const auto drafter = std::make_shared<TextDrafter>(std::move(writer), std::move(target), tokens);
  return [drafter](const TokenIds& text) { return drafter->propose(text); };
}

}  // namespace spc
