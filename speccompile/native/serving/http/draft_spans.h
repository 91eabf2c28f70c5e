// Parts of a streamed text that are accepted draft tokens (serving/scheduler/draft_spans.py, runtime/text/draft_spans.py).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../text/text.h"
#include "../scheduler/request.h"

namespace spc::http {

// Reader of one sequence's deltas. A stream holds text back that may become a stop string, so its pieces do not end where tokens
// do: the length of every token's text is kept until that text comes. A character of several tokens belongs to the last of them.
class DraftSpans {
 public:
  // text: none without a tokenizer. prompt: token ids, on which the text of the first new tokens depends.
  DraftSpans(const std::shared_ptr<const Text>& text, const TokenIds& prompt);

  // Return the field `drafts` of a chunk: the round's draft tokens, how many were accepted within the answer, and `sent`, the text
  // of the chunk, in parts. Call it for every delta with tokens, in order.
  Json read(const OutputDelta& delta, const std::string& sent);

 private:
  Json::List cut(const std::string& sent);

  std::optional<IncrementalDetokenizer> detokenizer_;
  std::deque<std::pair<size_t, bool>> lengths_;  // bytes, and whether they are of accepted draft tokens
};

}  // namespace spc::http
