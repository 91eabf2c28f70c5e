// Responses in OpenAI's form, complete and in chunks (serving/http/response.py).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "draft_spans.h"
#include "requests.h"
#include "usage.h"

namespace spc::http {

// Builder of the response to one request. Choice i * sequences + j is the j-th sequence of the i-th prompt.
class ResponseBuilder {
 public:
  // model: the name of the response. All that is given outlives the builder.
  ResponseBuilder(const ParsedRequest& asked, const std::string& model, const Manifest& manifest, const TokenTexts& texts);

  // Return the response with all choices in order. Throws RequestError if one was cancelled or timed out.
  Json full(const Finished& sequences);
  // Return the first chunks of a stream: the role, or with echo the prompt.
  std::vector<Json> first_chunks();
  // Return the stream's chunks for a delta of one choice. Throws RequestError if it was cancelled or timed out.
  std::vector<Json> chunks(size_t choice, const OutputDelta& delta);
  // Return the last chunks of a stream: the usage, if requested.
  std::vector<Json> last_chunks(const Finished& sequences);

 private:
  Json head(const char* object) const;
  Json chunk(size_t choice, Json::Object parts) const;
  // Return the chunk with the text and tokens of a delta.
  Json delta_chunk(size_t choice, const OutputDelta& delta);
  Json choice(size_t index, const FinishedSequence& sequence);
  // Return the content and tool calls of a message, and its finish reason.
  std::pair<Json::Object, std::string> message(const FinishedSequence& sequence) const;
  void add_ending(Json& to, const Finished& sequences) const;
  Json logprobs(size_t choice, const TokenIds& tokens, const std::vector<double>& logprobs, const std::vector<BestTokens>& best,
                const FinishedSequence* finished);
  Json entry(int64_t token, double logprob) const;
  Json columns(const TokenIds& tokens, const std::vector<double>& logprobs, const std::vector<BestTokens>& best) const;
  const char* chunk_object() const { return asked_.is_chat ? "chat.completion.chunk" : "text_completion"; }

  const ParsedRequest& asked_;
  const TokenTexts& texts_;
  const int64_t drafts_, created_;
  const std::string model_, id_;
  std::vector<TextOffsets> offsets_;  // of each choice, for log-probabilities of completions
  std::vector<DraftSpans> spans_;     // of each choice, where drafts are sent
  int64_t new_tokens_ = 0, prompt_tokens_ = 0;
};

}  // namespace spc::http
